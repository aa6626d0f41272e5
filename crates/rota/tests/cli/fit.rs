//! `rota fit`: a fleet's hosts, each a file.

use std::fs;

use serde_json::Value;

use super::{ELSEWHERE, Folder};

const TENANT: &str = "[[tenant]]\nname = \"db\"\nclass = \"reserved\"\nshare = 0.9\nlatency = \"20ms\"\n";

#[test]
fn hosts_with_room_come_first_and_the_others_say_why() {
    let folder = Folder::new(ELSEWHERE);
    fs::write(folder.path("full.toml"), ELSEWHERE.replace("count = 6", "count = 11")).unwrap();
    fs::write(folder.path("db.toml"), TENANT).unwrap();
    let arguments = ["fit", "full.toml", "rota.toml", "--tenant", "db.toml"];
    let (text, _) = folder.expect(0, &arguments);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("HOST       FITS  CHANGED CPUS"), "{text}");
    assert!(lines[1].starts_with("rota.toml  yes "), "{text}");
    assert!(lines[2].starts_with("full.toml  no    - "), "{text}");
    assert!(lines[3].starts_with("full.toml: over-utilised: "), "{text}");

    let (json, _) = folder.expect(0, &[&arguments[..], &["--json"]].concat());
    let answers: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&answers[0]["host"], &answers[0]["fits"]), (&"rota.toml".into(), &true.into()), "{json}");
    assert_eq!(answers[1]["fits"], false);

    let (_, err) = folder.expect(3, &["fit", "full.toml", "--tenant", "db.toml"]);
    assert_eq!(err, "rota: none of 1 hosts has room\n");
}

#[test]
fn a_wrong_file_is_named() {
    let folder = Folder::new(ELSEWHERE);
    fs::write(folder.path("db.toml"), TENANT.replace("0.9", "9")).unwrap();
    let (out, err) = folder.expect(2, &["fit", "rota.toml", "--tenant", "db.toml"]);
    assert!(out.is_empty() && err.starts_with("rota: db.toml:4:9: tenant.share: 9 is more"), "{err}");
    fs::write(folder.path("bad.toml"), "[host]\n").unwrap();
    let (_, err) = folder.expect(2, &["fit", "rota.toml", "bad.toml", "--tenant", "db.toml"]);
    assert!(err.starts_with("rota: bad.toml:1:1: host.cpus: the machine's CPUs are not known"), "{err}");
}
