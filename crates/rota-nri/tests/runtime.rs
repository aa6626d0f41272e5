//! The plugin beside a runtime that says what a real one has said: `transcripts/` was recorded between the plugin and
//! NRI's own adaptation, which containerd and CRI-O have inside.

#![allow(clippy::unwrap_used)] // a failed helper is a failed test

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread::JoinHandle;
use std::time::Duration;

use rota_model::{Pod, Qos};
use rota_nri::{News, follow};

mod transcripts;

use transcripts::Step;

fn transcript(name: &str) -> Vec<Step> {
    transcripts::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts").join(name))
}

/// A runtime that says its part in pieces of `piece` bytes, and hears whether the plugin says the other.
fn runtime(steps: Vec<Step>, piece: usize) -> (UnixStream, JoinHandle<()>) {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    ours.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    theirs.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let thread = std::thread::spawn(move || {
        for (number, (is_runtimes, bytes)) in steps.into_iter().enumerate() {
            if is_runtimes {
                bytes.chunks(piece).for_each(|piece| theirs.write_all(piece).unwrap());
                continue;
            }
            let mut said = vec![0; bytes.len()];
            theirs.read_exact(&mut said).unwrap();
            assert_eq!(said, bytes, "step {number}");
        }
    });
    (ours, thread)
}

/// What is told of a transcript, and how it ends.
fn told(name: &str, updates: bool, piece: usize) -> (Vec<News>, String) {
    let (stream, thread) = runtime(transcript(name), piece);
    let mut news = Vec::new();
    let error = follow(stream, updates, |told| news.push(told)).unwrap_err();
    thread.join().unwrap();
    (news, error.to_string())
}

/// Names, classes and requests.
fn shown(news: &News) -> Vec<(&str, Qos, u64)> {
    match news {
        News::Pods(pods) => pods.iter().map(|pod| (pod.name.as_str(), pod.qos, pod.request_millis)).collect(),
        News::Runtime(_) => Vec::new(),
    }
}

const DB: (&str, Qos, u64) = ("db-0", Qos::Guaranteed, 2_000);
const WEB: (&str, Qos, u64) = ("web-7d9f", Qos::Burstable, 250);
const JOB: (&str, Qos, u64) = ("job-1", Qos::BestEffort, 0);
const LONG: (&str, Qos, u64) = ("long", Qos::Burstable, 1_002);

#[test]
fn pods_of_a_runtime_are_told_as_they_come_change_and_go() {
    for piece in [1, 7, 4096, usize::MAX] {
        let (news, error) = told("nri-0.12.txt", true, piece);
        assert_eq!(news[0], News::Runtime("containerd v2.1.4".to_owned()));
        let pods: Vec<_> = news[1..].iter().map(shown).collect();
        let resized = ("web-7d9f", Qos::Burstable, 500);
        let expected = [
            vec![DB, WEB, LONG],
            vec![DB, WEB, JOB, LONG],
            vec![DB, resized, JOB, LONG],
            vec![resized, JOB, LONG],
        ];
        assert_eq!(pods, expected);
        assert_eq!(error, "the runtime has hung up");
        let News::Pods(pods) = &news[1] else { panic!("{news:?}") };
        let Pod { uid, namespace, annotations, .. } = &pods[0];
        assert_eq!((&uid[..8], &namespace[..]), ("0a1b2c3d", "shop"));
        assert_eq!((&annotations["rota/cpus"][..], &annotations["rota/latency"][..]), ("1500m", "10ms"));
        assert!(pods[2].annotations["notes"].len() > 4096);
    }
}

/// It refuses who asks for what it does not know, and tells what becomes of pods in another way.
#[test]
fn an_older_runtime_is_understood_if_less_is_asked_of_it() {
    let (news, _) = told("nri-0.8-refused.txt", true, 64);
    assert_eq!(news, [News::Runtime("containerd v2.0.5".to_owned())]);
    let (news, _) = told("nri-0.8.txt", false, 64);
    let pods: Vec<_> = news[1..].iter().map(shown).collect();
    assert_eq!(pods, [vec![DB, WEB, LONG], vec![DB, WEB, JOB, LONG], vec![WEB, JOB, LONG]]);
}

/// Whatever the other end sends, and wherever it ends, that is one error.
#[test]
fn what_is_not_the_protocol_is_an_error() {
    let said_by_runtime = |name| {
        let steps = transcript(name).into_iter();
        steps.filter(|(is_runtimes, _)| *is_runtimes).flat_map(|(_, bytes)| bytes).collect::<Vec<u8>>()
    };
    let bytes = said_by_runtime("nri-0.12.txt");
    let end = |bytes: &[u8]| {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let bytes = bytes.to_vec();
        let thread = std::thread::spawn(move || {
            let _ = theirs.write_all(&bytes);
            theirs.shutdown(std::net::Shutdown::Write).unwrap();
            let _ = theirs.read_to_end(&mut Vec::new());
        });
        let error = follow(ours, true, |_| ()).unwrap_err().to_string();
        thread.join().unwrap();
        error
    };
    for length in (0..bytes.len()).step_by(97) {
        assert_eq!(end(&bytes[..length]), "the runtime has hung up");
    }
    let mut outcomes = std::collections::BTreeSet::new();
    for place in 0..200 {
        let mut bytes = bytes.clone();
        bytes[place] ^= 0xff;
        outcomes.insert(end(&bytes));
    }
    for part in ["is too long", "there is no connection", "is not of this protocol", "has hung up"] {
        assert!(outcomes.iter().any(|error| error.contains(part)), "{part}: {outcomes:?}");
    }
    assert!(end(b"HTTP/1.1 200 OK\r\n\r\n").contains("is too long"));
}
