//! Mistakes that the farm has found where interrupts have a CPU at the wrong moment, each on the smallest host that
//! shows it.

use std::cell::Cell;
use std::rc::Rc;

use rota_sim::{CpuId, Script, TaskId, Theft};
use rota_twin::apart;

use crate::host::{Run, after, settle, start};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
/// A table's, on every CPU.
const ROUND_NS: u64 = 102_702_600;

/// When the thread is put on the CPU next.
fn begins(run: &mut Run, thread: TaskId, cpu: u32) -> u64 {
    let runs = |run: &Run| run.machine.cpu(CpuId(cpu)).current == Some(thread);
    let most_ns = run.machine.now_ns() + 1_000 * MS;
    while runs(run) {
        run.run_until(run.machine.now_ns() + US);
    }
    while !runs(run) {
        run.run_until(run.machine.now_ns() + US);
        assert!(run.machine.now_ns() < most_ns, "it never runs on CPU {cpu}");
    }
    run.machine.now_ns()
}

/// A thread is sent to a CPU that idles in a slot of its tenant, and interrupts have that CPU until the slot is over:
/// the tenant's next slot has it, be it on another CPU, which idles too and was not told of anybody.
#[test]
fn a_slot_that_interrupts_have_is_not_the_only_one_that_is_told() {
    apart(|| {
        let (mut run, mut tenants) = start(
            r#"
            [host]
            cpus = "0-2"
            housekeeping = "0"
            [[tenant]]
            name = "web"
            class = "reserved"
            vcpus = 2
            share = 0.05
            latency = "50ms"
            capped = true
            match = { cgroup = "web" }
            [[tenant]]
            name = "long"
            class = "reserved"
            share = 0.6
            latency = "20ms"
            affinity = "1"
            match = { cgroup = "long" }
            [[tenant]]
            name = "short"
            class = "reserved"
            share = 0.6
            latency = "5ms"
            affinity = "2"
            match = { cgroup = "short" }
            "#,
        );
        let wakes_ns = Rc::new(Cell::new(u64::MAX));
        let next_ns = wakes_ns.clone();
        let web = Script::new(async move |thread| {
            while next_ns.get() == u64::MAX {
                thread.compute(50 * US).await;
            }
            for round in 0.. {
                let at_ns: u64 = next_ns.get() + round * ROUND_NS;
                thread.sleep(at_ns.saturating_sub(thread.now_ns())).await;
                thread.compute(50 * US).await;
            }
        });
        let web = run.spawn(tenants.thread("web", web));
        settle(&mut run, &tenants);
        let slot_ns = begins(&mut run, web, 2);
        let next_ns = begins(&mut run, web, 1);
        wakes_ns.set(slot_ns + ROUND_NS + 200 * US);
        for round in 1..20 {
            run.at(slot_ns + round * ROUND_NS + 100 * US, |run| {
                run.steal(CpuId(2), 3 * MS, Theft::Interrupt);
            });
        }
        run.run_until(slot_ns + ROUND_NS);
        run.observer.begin(&mut run.machine);
        let received = after(&mut run, 20 * ROUND_NS);
        let longest_ns = received[tenants.home("web").first_unit.index()].blackout_max_ns;
        // Another CPU that serves its vCPUs in windows is not told as well: it has no slot for which it would wait.
        let until_ns = (next_ns - slot_ns - 200 * US).max(3 * MS);
        assert!(longest_ns < until_ns + 50 * US, "it waited for {longest_ns} ns, for a slot in {until_ns}");
    });
}
