//! A container's reservation is a total: fewer threads than vCPUs have the promised CPU time of all of them, as far as
//! that many threads can use it, and a cap is a cap on the total.

use rota_sim::programs::Hog;
use rota_twin::apart;

use crate::host::{after, settle, start};

const SECOND: u64 = 1_000_000_000;

/// Eight CPUs for tenants. The container has a quarter of each.
fn host(capped: bool, neighbours: bool) -> String {
    let host = format!(
        "[host]\ncpus = \"0-8\"\nhousekeeping = \"0\"\n\n\
         [[tenant]]\nname = \"api\"\nclass = \"reserved\"\nvcpus = 8\nshare = 0.25\nlatency = \"20ms\"\n\
         capped = {capped}\nmatch = {{ cgroup = \"api\" }}\n"
    );
    let neighbour = |number| {
        format!(
            "\n[[tenant]]\nname = \"n{number}\"\nclass = \"reserved\"\nshare = 0.7\nlatency = \"20ms\"\n\
             match = {{ cgroup = \"n{number}\" }}\n"
        )
    };
    let count = if neighbours { 8 } else { 0 };
    (0..count).fold(host, |text, number| text + &neighbour(number))
}

/// What so many busy threads of the container receive, in CPUs, and the least that a neighbour does.
fn received(capped: bool, neighbours: bool, threads: u32) -> (f64, f64) {
    apart(|| {
        let (mut run, mut tenants) = start(&host(capped, neighbours));
        for _ in 0..threads {
            run.spawn(tenants.thread("api", Hog));
        }
        for number in 0..if neighbours { 8 } else { 0 } {
            run.spawn(tenants.thread(&format!("n{number}"), Hog));
        }
        settle(&mut run, &tenants);
        let received = after(&mut run, SECOND);
        let of =
            |name: &str| received[tenants.home(name).first_unit.index()].received_ns as f64 / SECOND as f64;
        let least = (0..if neighbours { 8 } else { 0 }).map(|number| of(&format!("n{number}")));
        (of("api"), least.fold(1.0, f64::min))
    })
}

#[test]
fn few_busy_threads_have_what_all_vcpus_are_promised() {
    for (capped, neighbours) in [(true, false), (true, true), (false, true)] {
        for threads in [1, 2, 3, 8] {
            let (api, least) = received(capped, neighbours, threads);
            let promised = f64::from(threads).min(2.0);
            let case = format!("{threads} threads, capped {capped}, neighbours {neighbours}: {api}, {least}");
            assert!(api >= promised * 0.97, "{case}");
            assert!(!capped || api <= 2.04, "{case}"); // with what changes of task take
            assert!(least >= 0.7, "{case}");
        }
    }
}
