//! The vCPUs of a VM without a reservation, which share what the VM has.

use std::collections::BTreeMap;

use rota_sim::programs::Hog;
use rota_sim::{Program, Script};
use rota_twin::apart;

use super::{MS, Run, S, appears, longest_ns, start};

/// A VM of so many vCPUs on one CPU, each with a program.
fn vm(program: impl Fn(u32) -> Box<dyn Program>, vcpus: u32) -> (Run, rota_sim::UnitId) {
    let (mut run, mut tenants) = start(&format!(
        "[host]\ncpus = \"0\"\n[[tenant]]\nname = \"vm\"\nclass = \"shared\"\nvcpus = {vcpus}\n\
         match = {{ vm = \"qemu:vm\" }}\n"
    ));
    appears(&mut run, &tenants, "vm");
    let specs: Vec<_> = (0..vcpus).map(|index| tenants.vcpu("vm", index, program(index))).collect();
    let threads: BTreeMap<u32, i32> = (0..).zip(specs.iter().map(|spec| spec.pid)).collect();
    run.act(|run| run.policy.vcpu_threads(&mut run.machine, "vm", threads));
    for spec in specs {
        run.spawn(spec);
    }
    (run, tenants.home("vm").unit(0))
}

/// One has computed for a minute as its siblings slept.
#[test]
fn a_vcpu_owes_its_siblings_nothing_for_what_they_left() {
    apart(|| {
        let sleeper = || {
            Script::new(async move |thread| {
                thread.sleep(60 * S).await;
                thread.compute(1_000 * S).await;
            })
        };
        let program = |index| if index == 0 { Hog.into() } else { sleeper().into() };
        let (mut run, first) = vm(program, 6);
        run.run_until(run.machine.now_ns() + 60 * S);
        let longest_ns = longest_ns(&mut run, first, 20 * S);
        assert!(longest_ns < 100 * MS, "{longest_ns} ns");
    });
}
