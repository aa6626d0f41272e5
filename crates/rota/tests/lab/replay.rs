//! What was recorded on a real kernel is replayed in the simulator.

use std::process::Command;

use serde_json::Value;

use crate::guest::{Guest, NEWEST, script};

/// By how much a tenant's CPU time may differ, as a part of it: a second of a small machine is recorded, and what was
/// recorded differs from guest to guest. Up to 0.084 was seen.
const CPU_TIME: f64 = 0.15;

#[test]
#[ignore = "boots a guest"]
fn a_mix_recorded_under_eevdf_is_replayed() {
    let results = Guest::exact(NEWEST).halved(2).program("stress-ng").run("", &script!("record.sh"));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mix.recording");
    std::fs::write(&path, results.bytes("mix.recording")).unwrap();
    let simulate = |format: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_rota"))
            .args(["sim", "--policy", "eevdf", "--replay"])
            .arg(&path)
            .args(format)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    println!("{}", simulate(&[]));
    let found: Value = serde_json::from_str(&simulate(&["--json"])).unwrap();
    assert_eq!((&found["recording"]["policy"], &found["recording"]["lost"]), (&"eevdf".into(), &0.into()));
    for name in ["hog", "pipe", "sleeper"] {
        let tenants = found["distance"]["tenants"].as_array().unwrap();
        let tenant = tenants.iter().find(|tenant| tenant["tenant"] == name);
        let ratio = tenant.unwrap_or_else(|| panic!("no {name} in {found}"))["cpu_share"]["ratio"].as_f64();
        assert!(
            ratio.is_some_and(|ratio| (1.0 - CPU_TIME..1.0 + CPU_TIME).contains(&ratio)),
            "{name}: {ratio:?} times its CPU time"
        );
    }
}
