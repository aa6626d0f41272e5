//! A guest that knows its timetable: its threads leave a CPU before that is taken away. Real-time threads that follow
//! the timetable stand in for the host, and vsock's loopback for the way to it.

use rota_lab::scenario::result::Work;

use crate::guest::{Guest, NEWEST, Results, script};

/// CPU 1 has half of the time, 5 ms at a stretch; CPU 0 has all of it.
const TIMETABLE: &str =
    "rota-timetable 1\ngeneration 1\nfrom 0\nclock own\nvcpu 1 of 10270260: 0-5135130\nend\n";

/// What `rota guest` says at its end: slot ends before which threads had left, those at which one still ran, and how
/// often a thread gave way that waited busily.
fn counts(results: &Results) -> [u64; 3] {
    let said = results.text("guest.txt");
    ["left in time ", "ran on ", "waited busily "].map(|name| {
        let number = said.split_once(name).unwrap().1.split([',', ';']).next().unwrap();
        number.parse().unwrap()
    })
}

#[test]
#[ignore = "boots a guest"]
fn threads_leave_a_cpu_before_it_is_taken_on_the_newest_kernel() {
    leaves(NEWEST);
}

fn leaves(kernel: &'static str) {
    let guest = Guest::exact_on(kernel, 2).halved(0).own("rota-taken").own("rota-parallel").own("rota-spin");
    // By loopback the host is this machine, whose context id is 1.
    let guest = guest.own("examples/timetables").module("vsock_loopback");
    let results = guest.file("/lab/timetable", TIMETABLE).run("", &script!("aware.sh"));
    let [left, caught, spins] = counts(&results);
    println!("{left} times left in time, {caught} times not: {}", results.text("guest.txt").trim_end());
    // In percent of what they do without: those that wait busily give way besides.
    for (program, least) in [("barrier", 95), ("spin", 115)] {
        let [without, with] =
            ["without", "with"].map(|how| results.json::<Work>(&format!("{program}-{how}")).rounds);
        println!("{program}: {without} rounds without, {with} with");
        assert!(without > 0 && with * 100 >= without * least, "{program}: {without} {with}");
    }
    // How often is left open: short turns may be enough.
    assert!(spins > 0, "no thread was seen to wait busily");
    assert!(left >= 80 && left >= 9 * caught, "left {left}, caught {caught}");
    let said = results.text("guest.log");
    let told = [
        "timetable 1 of",
        "not heard of any more",
        "timetable 2 of",
        "going by steal time",
        "timetable 1 of",
    ];
    let mut rest = said.as_str();
    for line in told {
        rest = rest.split_once(line).unwrap_or_else(|| panic!("no {line:?} after that in:\n{said}")).1;
    }
    let refused = results.text("refused.log");
    assert!(
        refused.contains("/lab/bad: line 5: \"0_5\" is no slot; write its start and end in ns"),
        "{refused}"
    );
}
