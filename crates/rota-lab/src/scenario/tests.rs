use super::*;

const CONFIG: &str = r#"
[[tenant]]
name = "a"
class = "reserved"
share = 0.2
latency = "20ms"
match = { cgroup = "lab/a" }

[[tenant]]
name = "b"
class = "background"
match = { cgroup = "lab/b" }
"#;

const SCENARIO: &str = r#"
name = "small"
cpus = 1
control = "1s"
warm_up = "500ms"
window = "2s"
quota_period = "100ms"
policies = ["weight", "max"]
config_file = "tenants.toml"

[[program]]
kind = "server"
tenant = "a"
command = ["redis-server", "--port", "6379"]
port = 6379

[[program]]
kind = "client"
tenant = "a"
protocol = "redis"
port = 6379
rate_hz = 50

[[program]]
kind = "load"
tenant = "b"
command = ["stress-ng", "--cpu", "1"]
"#;

/// What loading says about these two files.
fn load(scenario: &str, config: &str) -> Result<Scenario> {
    let folder = tempfile::tempdir()?;
    fs::write(folder.path().join("tenants.toml"), config)?;
    let path = folder.path().join("scenario.toml");
    fs::write(&path, scenario)?;
    Scenario::load(&path)
}

fn refused(scenario: &str, config: &str) -> String {
    format!("{:#}", load(scenario, config).unwrap_err())
}

#[test]
fn a_scenario_is_read_with_its_configuration_and_written_as_one_text() {
    let scenario = load(SCENARIO, CONFIG).unwrap();
    assert_eq!((scenario.warm_up, scenario.window), (500_000_000, 2_000_000_000));
    assert_eq!(scenario.installed_programs(), BTreeSet::from(["redis-server", "stress-ng"]));
    let model = scenario.model().unwrap();
    let names: Vec<_> = observed(&model).map(|tenant| (tenant.name.as_str(), cgroup_of(tenant))).collect();
    assert_eq!(names, [("a", Some("lab/a")), ("b", Some("lab/b"))]);
    assert_eq!(load(&scenario.to_toml().unwrap(), "").unwrap(), scenario);
}

#[test]
fn what_is_wrong_is_named() {
    for (from, to, complaint) in [
        ("tenant = \"b\"", "tenant = \"c\"", "program 2 is for tenant c"),
        ("window = \"2s\"", "window = \"2\"", "has no unit"),
        ("window = \"2s\"", "window = \"2s\"\nlength = 1", "unknown field `length`"),
        ("rate_hz = 50", "rate_hz = 50\nrate = 1", "unknown field `rate`"),
        ("rate_hz = 50", "rate_hz = 0", "rate_hz = 0 is not between"),
        ("[\"stress-ng\", \"--cpu\", \"1\"]", "[]", "program 2, of tenant b: its command is empty"),
        ("quota_period = \"100ms\"", "quota_period = \"2s\"", "quota_period must be 1ms to 1s"),
        ("[\"weight\", \"max\"]", "[]", "policies is empty"),
        ("[\"weight\", \"max\"]", "[\"cfs\"]", "\"cfs\" is no policy; write weight, max, rota"),
        ("\"tenants.toml\"", "\"absent.toml\"", "absent.toml"),
        ("config_file", "config = \"x\"\nconfig_file", "either config or config_file"),
    ] {
        assert!(SCENARIO.contains(from), "{from}");
        let error = refused(&SCENARIO.replacen(from, to, 1), CONFIG);
        assert!(error.contains(complaint), "{complaint}: {error}");
    }
}

#[test]
fn a_second_client_or_probe_of_one_tenant_is_refused() {
    let client = &SCENARIO[SCENARIO.find("[[program]]\nkind = \"client\"").unwrap()..];
    assert!(refused(&format!("{SCENARIO}\n{client}"), CONFIG).contains("more than one client"));
}

#[test]
fn mistakes_in_the_configuration_are_shown() {
    assert!(refused(SCENARIO, &CONFIG.replace("0.2", "2")).contains("tenant.share"));
    let unmatched = CONFIG.replace("match = { cgroup = \"lab/b\" }", "");
    assert!(refused(SCENARIO, &unmatched).contains("tenant b needs match"));
}

/// The scenarios that come with the crate.
#[test]
fn the_shipped_scenarios_make_sense() {
    let mut count = 0;
    for entry in fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            Scenario::load(&path).unwrap();
            count += 1;
        }
    }
    assert!(count > 0);
}

#[test]
fn a_scheduler_has_its_arguments_and_the_others_take_none() {
    let with = |policy: &str| {
        let arguments = format!("\n[scheduler_arguments]\n\"{policy}\" = [\"--run-example\"]\n");
        SCENARIO.to_owned() + &arguments
    };
    let scenario = load(&with("scx:layered"), CONFIG).unwrap();
    let layered: Policy = "scx:layered".parse().unwrap();
    assert_eq!(scenario.scheduler_arguments[&layered], ["--run-example"]);
    // The guest reads what was written.
    assert_eq!(load(&scenario.to_toml().unwrap(), CONFIG).unwrap(), scenario);
    for policy in ["rota", "weight", "max"] {
        let error = refused(&with(policy), CONFIG);
        assert!(
            error.contains(&format!("scheduler_arguments are for {policy}, which takes none")),
            "{error}"
        );
    }
}
