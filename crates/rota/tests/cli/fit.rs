//! `rota fit`: a fleet's hosts, each a file.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

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

/// Asks the extender as Kubernetes' scheduler does, twice over one connection.
#[test]
fn kubernetes_scheduler_is_answered() {
    let folder = Folder::new(ELSEWHERE);
    fs::create_dir(folder.path("hosts")).unwrap();
    fs::copy(folder.path("rota.toml"), folder.path("hosts/node-1.toml")).unwrap();
    let mut server = Command::new(env!("CARGO_BIN_EXE_rota"))
        .args(["fit", "hosts", "--serve", "127.0.0.1:0"])
        .current_dir(folder.path("."))
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    BufReader::new(server.stderr.take().unwrap()).read_line(&mut said).unwrap();
    let address = said.trim().rsplit("http://").next().unwrap().to_owned();
    let answered = std::panic::catch_unwind(|| {
        let stream = TcpStream::connect(&address).unwrap();
        let pod = r#"{"Pod": {"metadata": {"name": "p", "annotations": {"rota/cpus": "100m", "rota/latency": "20ms"}}},
            "NodeNames": ["node-1", "../rota"]}"#;
        let filtered = post(&stream, "/filter", pod);
        assert_eq!(filtered["NodeNames"], serde_json::json!(["node-1"]), "{filtered}");
        assert!(filtered["FailedNodes"]["../rota"].is_string(), "{filtered}");
        assert_eq!(post(&stream, "/prioritize", pod)[0]["Score"], 10);
        // Another tenant has all of the node from now on.
        let own = fs::read_to_string(folder.path("rota.toml")).unwrap();
        let full = own
            + "[[tenant]]\nname = \"all\"\nclass = \"reserved\"\nlatency = \"20ms\"\nshare = 0.9\nvcpus = 64\n";
        fs::write(folder.path("hosts/node-1.toml"), full).unwrap();
        let filtered = post(&stream, "/filter", pod);
        assert!(filtered["FailedNodes"]["node-1"].is_string(), "{filtered}");
    });
    server.kill().unwrap();
    server.wait().unwrap();
    answered.unwrap();
}

fn post(stream: &TcpStream, path: &str, body: &str) -> Value {
    let length = body.len();
    let head = format!("POST {path} HTTP/1.1\r\nHost: rota\r\nContent-Length: {length}\r\n\r\n");
    (&*stream).write_all(format!("{head}{body}").as_bytes()).unwrap();
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if line == "\r\n" {
            break;
        }
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    serde_json::from_slice(&body).unwrap()
}
