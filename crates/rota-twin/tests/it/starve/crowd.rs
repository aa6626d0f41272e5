//! Crowds: so many threads that the turns of all of them take seconds. None waits until the kernel's watchdog comes,
//! and no other tenant notices.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use rota_sim::programs::{Hog, Periodic};
use rota_sim::{Script, TaskId, Tenants};
use rota_twin::apart;

use super::{MS, S, appears, bound, longest_ns, start};

/// A crowd of a class beside a tenant with a reservation that uses all that it can get of two CPUs.
fn host(crowd: &str, web_share: f64) -> String {
    format!(
        "[host]\ncpus = \"0-2\"\nhousekeeping = \"0\"\n\n\
         [[tenant]]\nname = \"web\"\nclass = \"reserved\"\nshare = {web_share}\nlatency = \"20ms\"\nvcpus = 2\n\
         match = {{ cgroup = \"web\" }}\n\n\
         [[tenant]]\nname = \"crowd\"\n{crowd}\nmatch = {{ cgroup = \"crowd\" }}\n"
    )
}

/// The longest wait of a crowd's threads, and of a reserved tenant's beside it.
fn waits(crowd: &str, web_share: f64, threads: usize) -> (u64, u64) {
    apart(|| {
        let (mut run, mut tenants) = start(&host(crowd, web_share));
        ["web", "crowd"].iter().for_each(|name| appears(&mut run, &tenants, name));
        for _ in 0..2 {
            run.spawn(tenants.thread("web", Hog));
        }
        // Threads of a crowd come one after the other, and most of them compute.
        for number in 0..threads {
            match number % 16 {
                0 => run.spawn(tenants.thread("crowd", Periodic::new(MS / 50, MS))),
                _ => run.spawn(tenants.thread("crowd", Hog)),
            };
        }
        let [web, crowd] = ["web", "crowd"].map(|name| tenants.home(name).first_unit);
        let crowd_ns = longest_ns(&mut run, crowd, 30 * S);
        let web_ns = run.observer.of(&run.machine, web).wait_ns;
        (crowd_ns, web_ns)
    })
}

/// In a hundredth of a CPU and in more, as a tenant without a reservation, and of what the floor gives.
#[test]
fn ten_thousand_threads_of_any_class_end_nothing() {
    for (crowd, web_share, threads) in [
        ("class = \"reserved\"\nshare = 0.01\nlatency = \"100ms\"\ncapped = true", 0.8, 10_000),
        ("class = \"reserved\"\nshare = 0.1\nlatency = \"50ms\"", 0.8, 1030),
        ("class = \"shared\"", 0.5, 1030),
        ("class = \"shared\"", 0.99, 10_000),
        ("class = \"background\"", 0.5, 1030),
        ("class = \"background\"", 0.99, 10_000),
    ] {
        let (crowd_ns, web_ns) = waits(crowd, web_share, threads);
        assert!(crowd_ns < 28 * S, "{crowd}, {threads} threads: {crowd_ns} ns");
        assert!(web_ns <= 20 * MS, "{crowd}, {threads} threads: web waited for {web_ns} ns");
    }
}

/// What is nobody's is the system's, and runs on its own CPU.
#[test]
fn thousands_of_threads_of_the_system_end_nothing() {
    apart(|| {
        let (mut run, mut tenants) = start(&host("class = \"background\"", 0.5));
        appears(&mut run, &tenants, "web");
        run.spawn(tenants.thread("web", Hog));
        for _ in 0..3_000 {
            run.spawn(tenants.system(Hog));
        }
        let longest_ns = longest_ns(&mut run, Tenants::SYSTEM, 10 * S);
        assert!(longest_ns < 5 * S, "{longest_ns} ns");
    });
}

/// Each thread of a crowd takes a lock once, as those of a program do that starts. It sleeps until the thread before it
/// has had the lock, computes for 2 us with it, and hands it on. A thread has the rest of its turn as it wakes. If each
/// waited for all others anew, that would take two minutes.
#[test]
fn a_lock_goes_through_a_crowd() {
    let handed_on = apart(|| {
        let crowd = "class = \"reserved\"\nshare = 0.2\nlatency = \"20ms\"\ncapped = true";
        let (mut run, mut tenants) = start(&host(crowd, 0.7));
        ["web", "crowd"].iter().for_each(|name| appears(&mut run, &tenants, name));
        for _ in 0..500 {
            run.spawn(tenants.thread("crowd", Hog));
        }
        let (line, handed_on) = (Rc::new(RefCell::new(Vec::<TaskId>::new())), Rc::new(Cell::new(0)));
        for number in 0..500 {
            let (line, handed_on) = (line.clone(), handed_on.clone());
            let holder = Script::new(async move |thread| {
                line.borrow_mut().push(thread.task());
                // The last one that comes begins.
                if number < 499 {
                    thread.wait().await;
                }
                thread.compute(2_000).await;
                if let Some(next) = line.borrow().get(handed_on.replace(handed_on.get() + 1)) {
                    thread.wake(*next);
                }
                loop {
                    thread.compute(MS).await;
                }
            });
            run.spawn(tenants.thread("crowd", holder));
        }
        run.run_until(run.machine.now_ns() + 3 * S);
        handed_on.get()
    });
    assert_eq!(handed_on, 500);
}

/// Read sections of RCU that take several turns. All of the kernel waits for the end of each, and not for a rotation of
/// the crowd in each turn: after 21 s the kernel would say that RCU stalls.
#[test]
fn a_read_section_of_rcu_goes_through_a_crowd() {
    for (crowd, on_one_cpu) in [
        ("class = \"reserved\"\nshare = 0.2\nlatency = \"20ms\"\ncapped = true", false),
        ("class = \"shared\"", false),
        ("class = \"shared\"", true),
        ("class = \"background\"", false),
    ] {
        let took_ns = apart(|| {
            let (mut run, mut tenants) = start(&host(crowd, 0.3));
            ["web", "crowd"].iter().for_each(|name| appears(&mut run, &tenants, name));
            let took_ns = Rc::new(RefCell::new(Vec::new()));
            for number in 0..1_000 {
                let took_ns = took_ns.clone();
                let reader = Script::new(async move |thread| {
                    thread.compute(1).await;
                    let from_ns = thread.now_ns();
                    thread.read_rcu(true);
                    thread.compute(3 * MS).await;
                    thread.read_rcu(false);
                    took_ns.borrow_mut().push(thread.now_ns() - from_ns);
                    thread.compute(u64::MAX).await;
                });
                let spec = match number % 50 {
                    0 => tenants.thread("crowd", reader),
                    _ => tenants.thread("crowd", Hog),
                };
                let spec = if on_one_cpu { bound(&run, spec, 1) } else { spec };
                run.spawn(spec);
            }
            run.run_until(run.machine.now_ns() + 10 * S);
            took_ns.take()
        });
        let longest_ns = took_ns.iter().max();
        println!("{crowd}: {longest_ns:?} ns");
        assert_eq!(took_ns.len(), 20, "{crowd}: sections ended");
        assert!(longest_ns < Some(&S), "{crowd}: {longest_ns:?} ns");
    }
}
