//! The binary as its users meet it: exit codes, messages, and what comes out.

#![allow(clippy::unwrap_used)] // as in every test; here also in what the tests share

mod doctor;
mod fit;
mod gain;
mod lab;
mod load;
mod top;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rota_model::config::Source;
use rota_record::Recording;
use rota_scenario::{Scenario, policies};
use serde_json::Value;

/// A folder with a `rota.toml`.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new(config: &str) -> Folder {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("rota.toml"), config).unwrap();
        Folder(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn rota(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_rota")).args(arguments).current_dir(self.0.path()).output().unwrap()
    }

    /// Runs it and expects an exit code; returns standard output and standard error.
    #[track_caller]
    fn expect(&self, code: i32, arguments: &[&str]) -> (String, String) {
        let output = self.rota(arguments);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "rota {arguments:?}\n{out}{err}");
        (out, err)
    }
}

/// A machine that nobody has: CPU numbers from 1000 on.
const ELSEWHERE: &str = "\
[host]
cpus = \"1000-1003\"
housekeeping = \"1000\"

[[tenant]]
name = \"web-{i}\"
count = 6
class = \"reserved\"
share = 0.25
latency = \"20ms\"

[[tenant]]
name = \"idle\"
class = \"background\"
";

#[test]
fn a_plan_for_another_machine_is_written_in_every_format() {
    let folder = Folder::new(ELSEWHERE);
    let (text, _) = folder.expect(0, &["plan", "-c", "rota.toml"]);
    assert!(text.contains("web-0") && text.contains("1001"), "{text}");

    let (json, _) = folder.expect(0, &["plan", "-c", "rota.toml", "--format", "json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["vcpus"].as_array().unwrap().len(), 6);
    assert_eq!(json["cpus"][0]["cpu"], 1000);

    let (svg, _) = folder.expect(0, &["plan", "-c", "rota.toml", "--format", "svg"]);
    assert!(svg.starts_with("<svg") || svg.starts_with("<?xml"), "{svg}");

    let (out, _) = folder.expect(0, &["plan", "-c", "rota.toml", "--format", "svg", "-o", "plan.svg"]);
    assert_eq!((out.as_str(), fs::read_to_string(folder.path("plan.svg")).unwrap()), ("", svg));
}

#[test]
fn tenants_of_a_folder_beside_the_configuration_are_planned() {
    let folder = Folder::new(ELSEWHERE);
    fs::create_dir(folder.path("tenants.d")).unwrap();
    let tenant = "[[tenant]]\nname = \"db\"\nclass = \"reserved\"\nshare = 0.5\nlatency = \"5ms\"\n";
    fs::write(folder.path("tenants.d/db.toml"), tenant).unwrap();
    let (text, _) = folder.expect(0, &["plan", "-c", "rota.toml"]);
    assert!(text.contains("db/0"), "{text}");
}

fn write_table(folder: &Folder) -> PathBuf {
    folder.expect(0, &["plan", "-c", "rota.toml", "--format", "bin", "-o", "table"]);
    folder.path("table")
}

#[test]
fn a_table_is_checked_against_the_promises() {
    let folder = Folder::new(ELSEWHERE);
    write_table(&folder);
    let (out, _) = folder.expect(0, &["check", "table", "-c", "rota.toml"]);
    assert!(out.contains("certified. 6 vCPUs of 6 tenants"), "{out}");
    let (out, _) = folder.expect(0, &["check", "table", "-c", "rota.toml", "--json"]);
    let verdict: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((verdict["certified"].clone(), verdict["vcpus"].clone()), (true.into(), 6.into()));

    fs::write(folder.path("more.toml"), ELSEWHERE.replace("0.25", "0.26")).unwrap();
    let (_, err) = folder.expect(1, &["check", "table", "-c", "more.toml"]);
    assert!(err.contains("not certified") && err.contains("(tenant 0 is web-0)"), "{err}");
    let (out, _) = folder.expect(1, &["check", "table", "-c", "more.toml", "--json"]);
    let verdict: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(verdict["certified"], false);
    assert!(verdict["violation"].is_string());
}

#[test]
fn damaged_tables_are_not_certified() {
    let folder = Folder::new(ELSEWHERE);
    let table = fs::read(write_table(&folder)).unwrap();
    let middle = table.len() / 2;
    let mut flipped = table.clone();
    flipped[middle] ^= 1;
    for damaged in [&flipped[..], &table[..middle], b"", ELSEWHERE.as_bytes()] {
        fs::write(folder.path("damaged"), damaged).unwrap();
        let (_, err) = folder.expect(1, &["check", "damaged", "-c", "rota.toml"]);
        assert!(err.starts_with("rota: damaged: not certified: "), "{err}");
    }
}

#[test]
fn what_does_not_fit_is_infeasible() {
    let folder = Folder::new(&ELSEWHERE.replace("0.25", "0.75"));
    let (_, err) = folder.expect(3, &["plan", "-c", "rota.toml"]);
    assert!(err.contains("over-utilised"), "{err}");
    let feasible = Folder::new(ELSEWHERE);
    let table = write_table(&feasible);
    let (_, err) = folder.expect(3, &["check", table.to_str().unwrap(), "-c", "rota.toml"]);
    assert!(err.contains("not certified") && err.contains("over-utilised"), "{err}");
    let folder = Folder::new(&ELSEWHERE.replace("latency", "affinity = \"1003\"\nlatency"));
    let (_, err) = folder.expect(3, &["plan", "-c", "rota.toml"]);
    assert!(err.contains("bottleneck: 6 vCPUs") && err.contains("CPU 1003"), "{err}");
    let folder = Folder::new(&ELSEWHERE.replace("20ms", "20us"));
    let (_, err) = folder.expect(3, &["plan", "-c", "rota.toml"]);
    assert!(err.contains("web-0") && err.contains("the smallest"), "{err}");
}

#[test]
fn best_fit_leaves_cpus_empty() {
    let used = |config: &str, arguments: &[&str]| {
        let folder = Folder::new(config);
        let (json, _) =
            folder.expect(0, &[&["plan", "-c", "rota.toml", "--format", "json"], arguments].concat());
        let plan: Value = serde_json::from_str(&json).unwrap();
        let is_used = |cpu: &&Value| !cpu["slots"].as_array().unwrap().is_empty();
        plan["cpus"].as_array().unwrap().iter().filter(is_used).count()
    };
    let packed = ELSEWHERE.replace("[host]", "[host]\nplacement = \"best-fit\"");
    assert_eq!((used(ELSEWHERE, &[]), used(&packed, &[])), (3, 2));
    assert_eq!(used(ELSEWHERE, &["--placement", "best-fit"]), 2);
    assert_eq!(used(&packed, &["--placement", "worst-fit"]), 3);
}

#[test]
fn what_an_edit_changes_is_shown() {
    let folder = Folder::new(ELSEWHERE);
    folder.expect(0, &["plan", "-c", "rota.toml", "--format", "json", "-o", "old.json"]);
    let (same, _) = folder.expect(0, &["plan", "-c", "rota.toml", "--diff", "old.json"]);
    assert_eq!(same, "No vCPU changed; the slots of all 4 CPUs stay as they are.\n");
    fs::write(folder.path("rota.toml"), ELSEWHERE.replace("count = 6", "count = 5")).unwrap();
    let (text, _) = folder.expect(0, &["plan", "-c", "rota.toml", "--diff", "old.json"]);
    assert!(text.contains("1 vCPU went") && text.contains("web-5/0"), "{text}");
    let (json, _) = folder.expect(0, &["plan", "-c", "rota.toml", "--diff", "old.json", "--format", "json"]);
    let diff: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&diff["vcpus"][0]["vcpu"], &diff["vcpus"][0]["new"]), (&"web-5/0".into(), &Value::Null));

    folder.expect(2, &["plan", "-c", "rota.toml", "--diff", "none.json"]);
    folder.expect(2, &["plan", "-c", "rota.toml", "--diff", "old.json", "--format", "svg"]);
    let (_, err) = folder.expect(2, &["plan", "-c", "rota.toml", "--diff", "rota.toml"]);
    assert!(err.contains("rota.toml is no plan as `rota plan --format json` writes it"), "{err}");
}

/// Two CPUs with room for 0.4 more each, a vCPU that needs 0.6 of them, and one with a CPU to itself.
const FULL: &str = "\
[host]
cpus = \"0-3\"
housekeeping = \"0\"

[[tenant]]
name = \"db\"
class = \"reserved\"
share = 1
latency = \"1ms\"

[[tenant]]
name = \"web-{i}\"
count = 3
class = \"reserved\"
share = 0.6
latency = \"50ms\"
";

#[test]
fn why_a_vcpu_is_where_it_is_is_explained() {
    let folder = Folder::new(ELSEWHERE);
    let (text, _) = folder.expect(0, &["plan", "-c", "rota.toml", "--explain"]);
    let line = |text: &str, name: &str| text.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    let web = line(&text, "web-0/0: ");
    assert!(web.contains("CPU 1001, of the 3 of 3 CPUs with room the one with most"), "{web}");
    assert!(web.contains("the longest candidate period within its latency; partitioned"), "{web}");

    let folder = Folder::new(FULL);
    let (text, _) = folder.expect(0, &["plan", "-c", "rota.toml", "--explain"]);
    let db = line(&text, "db/0: ");
    assert!(
        db.contains("to itself, one of 3 CPUs that it may use: its share is a whole CPU; dedicated"),
        "{db}"
    );
    let split = text.lines().find(|line| line.ends_with("; split")).unwrap();
    assert!(split.contains(": split over CPUs ") && split.contains("no CPU had 0.6"), "{split}");
    assert!(
        split.contains("; runs ") && split.contains(", then ") && split.contains(" migrations a second"),
        "{split}"
    );

    assert!(split.contains(" migrations a second, so it waits for its slots when it wakes"), "{split}");
    let whole =
        text.lines().find(|line| line.starts_with("web-") && line.ends_with("; partitioned")).unwrap();
    let name = split.split(':').next().unwrap();
    let why = format!("waits for its slots when it wakes (CPU {}: {name} migrates)", &whole[13..14]);
    assert!(whole.contains(&why), "{whole}");
    assert!(!db.contains("waits"), "{db}");

    let (json, _) = folder.expect(0, &["plan", "-c", "rota.toml", "--explain", "--format", "json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    let reasons: Vec<&str> =
        json["vcpus"].as_array().unwrap().iter().map(|vcpu| vcpu["reason"].as_str().unwrap()).collect();
    assert!(reasons.len() == 4 && text.contains(reasons[1]), "{reasons:?}");
    folder.expect(2, &["plan", "-c", "rota.toml", "--explain", "--format", "svg"]);
}

#[test]
fn cores_of_ones_own_are_explained() {
    let config = FULL
        .replace("housekeeping = \"0\"", "housekeeping = \"0\"\nsiblings = [\"0-1\", \"2-3\"]")
        .replace("share = 1\n", "share = 0.3\nexclusive_cores = true\n");
    let folder = Folder::new(&config.replace("count = 3", "count = 1"));
    let (text, _) = folder.expect(0, &["plan", "-c", "rota.toml", "--explain"]);
    let db = text.lines().find(|line| line.starts_with("db/0: ")).unwrap();
    assert!(db.contains("the fewest cores that carry its tenant, CPUs 2-3, are its own"), "{db}");
}

/// One CPU that is nearly empty and two that are half full; then so full that the tenant with two vCPUs has no choice.
#[test]
fn why_vcpus_of_one_tenant_are_on_one_cpu_is_explained() {
    let config = "[host]\ncpus = \"0-3\"\nhousekeeping = \"0\"\n[[tenant]]\nname = \"vm\"\nclass = \"reserved\"\n\
                  vcpus = 2\nshare = 0.2\nlatency = \"10ms\"\n[[tenant]]\nname = \"o{i}\"\ncount = 2\n\
                  class = \"reserved\"\nshare = 0.45\nlatency = \"10ms\"\n";
    let explained = |config: &str, name: &str, options: &[&str]| {
        let folder = Folder::new(config);
        let (text, _) = folder.expect(0, &[&["plan", "-c", "rota.toml", "--explain"], options].concat());
        text.lines().find(|line| line.starts_with(name)).unwrap().to_owned()
    };
    let apart = explained(config, "vm/1: ", &[]);
    let why = "CPU 1 (0.5444 free), of the 3 of 3 CPUs with room, to keep vCPUs of one tenant apart; budget";
    assert!(apart.contains(why), "{apart}");
    let packed = explained(config, "vm/1: ", &["--placement", "best-fit"]);
    assert!(packed.contains("with another of its tenant: best-fit fills CPUs"), "{packed}");
    let full = explained(&config.replace("0.45", "0.85"), "vm/1: ", &[]);
    let why = "with another of its tenant: no CPU with fewer has 0.2009 left (most: 0.14";
    assert!(full.contains(why) && full.contains("), nor has one if others move; "), "{full}");
    let many = explained(&config.replace("vcpus = 2", "vcpus = 4"), "vm/3: ", &[]);
    assert!(many.contains("with another of its tenant: 4 vCPUs for 3 CPUs; "), "{many}");
}

#[test]
fn tableaus_own_layout_is_written() {
    let folder = Folder::new(&ELSEWHERE.replace("1000-1003", "0-3").replace("1000", "0"));
    folder.expect(0, &["plan", "-c", "rota.toml", "--format", "tableau-xen", "-o", "table"]);
    let table = fs::read(folder.path("table")).unwrap();
    assert_eq!((table.len() % 4096, table[..8].to_vec()), (0, 6_u64.to_le_bytes().to_vec()));
    let (_, err) = Folder::new(ELSEWHERE).expect(1, &["plan", "-c", "rota.toml", "--format", "tableau-xen"]);
    assert!(err.contains("CPU 1003: a table of Tableau has room for CPUs below 64"), "{err}");
}

#[test]
fn wrong_configurations_are_named_with_file_line_and_key() {
    let folder = Folder::new("[host]\ncpus = \"0-3\"\ncups = 3\n");
    for command in [&["plan"][..], &["check", "rota.toml"], &["up"]] {
        let (_, err) = folder.expect(2, &[command, &["-c", "rota.toml"]].concat());
        assert!(err.contains("rota.toml:3:1: host.cups"), "{err}");
    }
    let (_, err) = folder.expect(2, &["plan", "-c", "none.toml"]);
    assert!(err.contains("rota: reading none.toml: "), "{err}");
    let (_, err) = folder.expect(2, &["check", "none", "-c", "rota.toml"]);
    assert!(err.contains("rota: reading none: "), "{err}");
}

#[test]
fn wrong_usage_is_explained() {
    let folder = Folder::new("");
    for arguments in [&[][..], &["plam"], &["plan", "--format", "png"], &["check"], &["status", "x"]] {
        let (_, err) = folder.expect(2, arguments);
        assert!(err.contains("--help") || err.contains("-h"), "{err}");
    }
    let (help, _) = folder.expect(0, &["--help"]);
    for command in ["plan", "check", "up", "status"] {
        assert!(help.lines().any(|line| line.split_whitespace().next() == Some(command)), "{help}");
    }
    folder.expect(0, &["--version"]);
}

#[test]
fn up_is_for_the_machine_it_runs_on() {
    let folder = Folder::new(ELSEWHERE);
    let (_, err) = folder.expect(2, &["up", "-c", "rota.toml"]);
    assert!(err.contains("rota.toml:2:8: host.cpus: CPUs 1000-1003 are not on this machine"), "{err}");
}

#[test]
fn up_without_a_fitting_kernel_fails_and_says_why() {
    if Path::new("/sys/kernel/sched_ext").exists() {
        eprintln!("SKIPPED: up_without_a_fitting_kernel_fails_and_says_why: this kernel has sched_ext");
        return;
    }
    let folder = Folder::new("[[tenant]]\nname = \"idle\"\nclass = \"background\"\n");
    let (_, err) = folder.expect(1, &["up", "-c", "rota.toml", "--socket", "rota.sock"]);
    assert!(err.contains("sched_ext") || err.contains("cgroup2"), "{err}");
}

#[test]
fn status_without_a_daemon_says_so() {
    let folder = Folder::new("");
    for arguments in [&["status", "--socket", "none"][..], &["status", "--socket", "none", "--json"]] {
        let (out, err) = folder.expect(1, arguments);
        assert!(out.is_empty() && err.contains("is `rota up` running?"), "{err}");
    }
}

/// Two tenants on two CPUs, and what they do.
const SCENARIO: &str = "\
duration = \"500ms\"
warm_up = \"200ms\"

[host]
cpus = \"0-1\"
housekeeping = \"0\"

[[tenant]]
name = \"web\"
class = \"reserved\"
share = 0.4
latency = \"20ms\"

[[tenant]]
name = \"batch\"
class = \"background\"

[[workload]]
tenant = \"web\"
program = \"server\"
service = \"1ms\"
arrival = { exponential = \"4ms\" }

[[workload]]
tenant = \"batch\"
program = \"hog\"
";

#[test]
fn a_scenario_is_simulated() {
    let folder = Folder::new(SCENARIO);
    let arguments = ["sim", "rota.toml", "--policy", "rota"];
    let (text, err) = folder.expect(0, &arguments);
    assert!(text.contains("Rota kept every promise") && text.contains("web"), "{text}");
    assert!(err.contains("rota: simulated"), "{err}");

    let (json, _) = folder.expect(0, &[&arguments[..], &["--json", "--seed", "1,2,1"]].concat());
    let runs: Value = serde_json::from_str(&json).unwrap();
    let runs = runs.as_array().unwrap();
    assert_eq!(runs.iter().map(|run| run["seed"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 2, 1]);
    assert_eq!(runs[0]["digest"], runs[2]["digest"]);
    assert_ne!(runs[0]["digest"], runs[1]["digest"]);
    let web = &runs[0]["tenants"][0];
    assert_eq!((&web["name"], &web["class"]), (&"web".into(), &"reserved".into()));
    assert!(web["work"].as_u64().unwrap() > 50 && web["wakeups"]["p99_ns"].as_u64().unwrap() < 20_000_000);
    assert_eq!(web["service"].as_array().unwrap().len(), 100);
    assert!(web["latencies"]["p50_ns"].as_u64().unwrap() >= 1_000_000);
}

/// What one thread of several vCPUs had, a host on which nothing ran, and a crowd that starves.
/// `rota sim ... 2>&1 | head` once panicked at its first word of progress, without a result.
#[test]
fn who_stops_listening_on_standard_error_gets_the_result() {
    let folder = Folder::new(SCENARIO);
    let mut rota = Command::new(env!("CARGO_BIN_EXE_rota"));
    rota.args(["sim", "rota.toml", "--policy", "rota"]).current_dir(folder.0.path());
    let mut child = rota.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stderr.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&output.stdout).contains("web"));
}

#[test]
fn a_socket_or_an_address_that_cannot_be_is_wrong_usage() {
    let folder = Folder::new("[[tenant]]\nname = \"idle\"\nclass = \"background\"\n");
    fs::write(folder.path("precious.txt"), "precious").unwrap();
    let (_, err) = folder.expect(2, &["up", "-c", "rota.toml", "--socket", "precious.txt"]);
    assert!(err.contains("precious.txt is there, and is no socket"), "{err}");
    assert_eq!(fs::read_to_string(folder.path("precious.txt")).unwrap(), "precious");
    let (_, err) = folder.expect(2, &["up", "-c", "rota.toml", "--metrics", "9100"]);
    assert!(err.contains("write e.g. 127.0.0.1:9100"), "{err}");
    let (_, err) = folder.expect(2, &["check", "/dev/zero", "-c", "rota.toml"]);
    assert!(err.contains("/dev/zero is larger than 64 MiB"), "{err}");
}

#[test]
fn a_simulation_says_of_promises_what_it_has_seen() {
    const HOST: &str = "duration = \"1s\"\n[host]\ncpus = \"0-4\"\nhousekeeping = \"0\"\n[[tenant]]\nname = \"app\"\n\
                        class = \"reserved\"\nvcpus = 4\nshare = 0.5\nlatency = \"10ms\"\n";
    let said = |text: &str, code| Folder::new(text).expect(code, &["sim", "rota.toml", "--policy", "rota"]);
    let hog = format!("{HOST}[[workload]]\ntenant = \"app\"\nprogram = \"hog\"\n");
    let (text, _) = said(&hog, 0);
    assert!(text.contains("Rota kept every promise: no tenant with a reservation waited at all."), "{text}");
    let (text, _) = said(HOST, 0);
    assert!(text.contains("No tenant with a reservation wanted to run, so no promise was put"), "{text}");
}

#[test]
fn every_policy_is_simulated_by_default() {
    let folder = Folder::new(SCENARIO);
    let (json, _) = folder.expect(0, &["sim", "rota.toml", "--json"]);
    let runs: Value = serde_json::from_str(&json).unwrap();
    let policies: Vec<&str> =
        runs.as_array().unwrap().iter().map(|run| run["policy"].as_str().unwrap()).collect();
    let (help, _) = folder.expect(0, &["sim", "--help"]);
    assert!(policies.contains(&"rota") && policies.iter().all(|policy| help.contains(policy)), "{help}");
}

#[test]
fn a_simulation_leaves_a_report_and_a_trace() {
    let folder = Folder::new(SCENARIO);
    folder.expect(
        0,
        &["sim", "rota.toml", "--policy", "rota", "--seed", "1,2", "--report", "r.html", "--trace", "t.json"],
    );
    let page = fs::read_to_string(folder.path("r.html")).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("What the programs see"));
    let trace: Value = serde_json::from_str(&fs::read_to_string(folder.path("t.json")).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let of = |phase: &str, process: u64| {
        events.iter().filter(|event| event["ph"] == phase && event["pid"] == process).count()
    };
    assert!(of("X", 1) > 100 && of("X", 2) > 100 && of("i", 1) > 100);
    let names: Vec<&Value> = events
        .iter()
        .filter(|event| event["name"] == "process_name")
        .map(|event| &event["args"]["name"])
        .collect();
    assert_eq!(names, ["Rota, seed 1", "Rota, seed 2"]);
    assert!(events.iter().any(|event| event["name"] == "web/0" && event["tid"] == 1));
}

#[test]
fn a_wrong_scenario_is_refused_with_place_and_mend() {
    let folder = Folder::new(&SCENARIO.replace("server", "sever"));
    let (_, err) = folder.expect(2, &["sim", "rota.toml"]);
    assert!(
        err.starts_with("rota: rota.toml:20:11: workload.program: \"sever\" is no program; write one of"),
        "{err}"
    );
    let (_, err) = folder.expect(2, &["sim", "nowhere.toml"]);
    assert!(err.contains("reading nowhere.toml"), "{err}");
    let (_, err) = folder.expect(2, &["sim", "rota.toml", "--policy", "rot"]);
    assert!(err.contains("rota"), "{err}");
    let folder = Folder::new(&SCENARIO.replace("share = 0.4", "share = 0.999"));
    let (_, err) = folder.expect(3, &["sim", "rota.toml"]);
    assert!(err.contains("over-utilised"), "{err}");
}

#[test]
fn a_paper_s_figure_comes_again() {
    let folder = Folder::new("");
    let (text, err) = folder.expect(0, &["sim", "--paper", "001-fig6", "--report", "r.html"]);
    assert!(text.starts_with("## 001-fig6: ") && text.contains("| published | ours | ratio |"), "{text}");
    assert!(err.contains("simulated"), "{err}");
    assert!(fs::read_to_string(folder.path("r.html")).unwrap().contains("Where ours differ"));
    let (_, err) = folder.expect(2, &["sim", "--paper", "list"]);
    assert!(err.contains("001-fig6") && err.contains("003-fig6.3"), "{err}");
    folder.expect(2, &["sim", "--paper", "001-fig6", "rota.toml"]);
}

/// The lab's scenarios are the simulator's too: the same tenants, with something that stands for each program.
#[test]
fn a_scenario_of_the_lab_is_simulated() {
    let folder = Folder::new("");
    let scenarios = Path::new(env!("CARGO_MANIFEST_DIR")).join("../rota-lab/scenarios");
    for (name, tenants) in [("one-cpu.toml", 5), ("demo.toml", 9), ("barrier.toml", 2)] {
        let path = scenarios.join(name);
        let (json, _) = folder.expect(0, &["sim", path.to_str().unwrap(), "--policy", "rota", "--json"]);
        let runs: Value = serde_json::from_str(&json).unwrap();
        let found = runs[0]["tenants"].as_array().unwrap();
        assert_eq!(found.len(), tenants);
        assert!(found.iter().all(|tenant| tenant["received_share"].as_f64().unwrap() > 0.0), "{json}");
    }
    let text = fs::read_to_string(scenarios.join("one-cpu.toml")).unwrap();
    fs::write(folder.path("lab.toml"), text.replace("--pipe", "--matrix")).unwrap();
    let (_, err) = folder.expect(2, &["sim", "lab.toml"]);
    assert!(err.contains("stress-ng --matrix 1") && err.contains("--pipe"), "{err}");
}

/// A recording of the scenario above, under the kernel's scheduler.
fn recorded(folder: &Folder) -> Vec<u8> {
    let source = Source { path: "rota.toml".to_owned(), text: SCENARIO.to_owned() };
    let scenario = Scenario::parse(&source).unwrap();
    let recording = scenario.record(policies::find("eevdf").unwrap(), None, 500_000_000, &|_| {}).unwrap();
    let bytes = recording.to_bytes().unwrap();
    fs::write(folder.path("web.recording"), &bytes).unwrap();
    bytes
}

#[test]
fn a_recording_is_replayed_and_compared() {
    let folder = Folder::new("");
    recorded(&folder);
    let replay = ["sim", "--replay", "web.recording", "--policy", "rota,eevdf"];
    let (text, err) = folder.expect(0, &[&replay[..], &["--report", "r.html"]].concat());
    assert!(text.contains("its replay under the recorded policy, EEVDF") && text.contains("web"), "{text}");
    assert!(err.contains("eevdf: compared with the recording"), "{err}");
    assert!(fs::read_to_string(folder.path("r.html")).unwrap().contains("Beside the recording"));

    let (json, _) = folder.expect(0, &[&replay[..], &["--json", "--cpus", "3"]].concat());
    let found: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&found["recording"]["cpus"], &found["runs"][0]["cpus"]), (&2.into(), &3.into()));
    let tenants = found["distance"]["tenants"].as_array().unwrap();
    assert_eq!(tenants.iter().map(|tenant| &tenant["tenant"]).collect::<Vec<_>>(), ["web", "batch"]);
    for tenant in tenants {
        let ratio = tenant["cpu_share"]["ratio"].as_f64().unwrap();
        assert!((0.98..1.02).contains(&ratio), "{tenant}");
    }
}

/// Who made the recording called the tenants.
#[test]
fn a_recording_writes_no_escapes_to_a_terminal() {
    let folder = Folder::new("");
    let mut recording = Recording::from_bytes(&recorded(&folder)).unwrap();
    recording.tenants[0].name = "web\u{1b}[31m".to_owned();
    fs::write(folder.path("web.recording"), recording.to_bytes().unwrap()).unwrap();
    let (text, err) = folder.expect(0, &["sim", "--replay", "web.recording", "--policy", "eevdf"]);
    assert!(text.contains("web\\u{1b}[31m"), "{text}");
    assert!(!text.contains('\u{1b}') && !err.contains('\u{1b}'), "{text}{err}");
}

#[test]
fn a_wrong_recording_is_refused_with_reason_and_mend() {
    let folder = Folder::new(SCENARIO);
    let mut bytes = recorded(&folder);
    fs::write(folder.path("good.recording"), &bytes).unwrap();
    let (_, err) = folder.expect(2, &["sim", "--replay", "rota.toml"]);
    assert_eq!(err, "rota: rota.toml: this is no recording; `rota record` makes one\n");
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(folder.path("web.recording"), &bytes).unwrap();
    let (_, err) = folder.expect(2, &["sim", "--replay", "web.recording"]);
    assert!(err.starts_with("rota: web.recording: the recording is damaged: "), "{err}");
    let (_, err) = folder.expect(2, &["sim", "--replay", "good.recording", "--cpus", "1"]);
    assert!(err.contains("the housekeeping CPUs (0) leave none for tenants"), "{err}");
    let (_, err) = folder.expect(2, &["sim", "rota.toml", "--cpus", "2"]);
    assert!(err.contains("--replay"), "{err}");
    folder.expect(2, &["sim", "rota.toml", "--replay", "web.recording"]);
    let (_, err) = folder.expect(2, &["record", "--for", "soon"]);
    assert!(err.contains("soon"), "{err}");
    let (_, err) = folder.expect(2, &["record", "--config", "nowhere.toml"]);
    assert!(err.contains("reading nowhere.toml"), "{err}");
}
