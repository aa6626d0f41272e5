//! `rota doctor` and `rota up --dry-run` on the machine that runs the tests, whatever it is like.

use std::fs;

use rota_host::tree;
use serde_json::Value;

use super::Folder;

/// A cgroup that no machine has.
const NOWHERE: &str = "\
[[tenant]]
name = \"web\"
class = \"shared\"
match = { cgroup = \"rota-test-nowhere.slice\" }
";

#[test]
fn the_doctor_looks_at_this_machine_and_has_a_mend_for_all_that_it_finds() {
    let folder = Folder::new(NOWHERE);
    let (json, err) = folder.expect(1, &["doctor", "-c", "rota.toml", "--json"]);
    assert!(err.contains("problem"), "{err}");
    let answer: Value = serde_json::from_str(&json).unwrap();
    let findings = answer["findings"].as_array().unwrap();
    for finding in findings.iter().filter(|finding| finding["level"] != "ok") {
        assert!(!finding["mend"].as_str().unwrap().is_empty(), "{finding}");
    }
    let of = |about: &str| findings.iter().find(|finding| finding["about"] == about);
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert!(of("kernel").unwrap()["found"].as_str().unwrap().contains(release.trim()), "{json}");
    // Without cgroups of version 2 nobody can be found, and that is the problem.
    let about = if tree::mount_point().is_ok() { "web" } else { "cgroup v2" };
    assert_eq!(of(about).unwrap()["level"], "problem", "{json}");

    let (text, _) = folder.expect(1, &["doctor", "-c", "rota.toml"]);
    assert!(text.contains("\nproblem  ") && text.contains(" -> "), "{text}");
}

#[test]
fn a_dry_run_says_who_is_not_found_and_starts_nothing() {
    if let Err(error) = tree::mount_point() {
        println!("SKIPPED: a_dry_run_says_who_is_not_found_and_starts_nothing: {error}");
        return;
    }
    let folder = Folder::new(NOWHERE);
    let (text, err) = folder.expect(1, &["up", "--dry-run", "-c", "rota.toml"]);
    assert!(
        text.contains("\nweb     shared    absent") && text.ends_with("Nothing was started or changed.\n"),
        "{text}"
    );
    assert_eq!(err, "rota: not found: web; `rota doctor` says where to look\n");

    fs::write(folder.path("rota.toml"), "[host]\ncpu = 1\n").unwrap();
    let (_, err) = folder.expect(2, &["up", "--dry-run", "-c", "rota.toml"]);
    assert!(err.starts_with("rota: rota.toml:2:1: host.cpu: unknown key"), "{err}");
}
