//! `rota load`, for a moment.

use std::time::{Duration, Instant};

use super::Folder;

/// What it says that its threads wanted, and were given, in CPUs.
fn figures(text: &str) -> (f64, f64) {
    let number = |after: &str| -> f64 {
        let rest = text.split_once(after).unwrap_or_else(|| panic!("no {after:?} in {text}")).1;
        rest.split_whitespace().next().unwrap().parse().unwrap()
    };
    (number("wanted "), number("given "))
}

#[test]
fn a_load_takes_what_it_says_and_stops() {
    let folder = Folder::new("");
    for (pattern, wanted) in [
        (&["persistent"][..], 1.0),
        (&["periodic", "--on", "5ms", "--off", "15ms"], 0.25),
        (&["intermittent", "--most", "10ms", "--demand", "20"], 0.2),
    ] {
        let began = Instant::now();
        let (out, _) = folder.expect(0, &[&["load"], pattern, &["--for", "1s"]].concat());
        let (said, given) = figures(&out);
        assert!(out.starts_with(pattern[0]) && (said - wanted).abs() < 0.006, "{out}");
        // A busy machine may give less; never more, but for the last turn.
        assert!(given > 0.0 && given < wanted + 0.1, "{out}");
        let lasted = began.elapsed();
        assert!((Duration::from_secs(1)..Duration::from_secs(30)).contains(&lasted), "{lasted:?}");
    }
}

#[test]
fn a_load_that_cannot_be_is_refused() {
    let folder = Folder::new("");
    for (arguments, word) in [
        (&["persistent", "--for", "2000000s"][..], "longer than an hour; write a shorter one"),
        (&["intermittent", "--least", "2ms", "--most", "1ms"], "exchange the two"),
        (&["intermittent", "--demand", "100"], "1..=99"),
        (&["persistent", "--cpus", "1000-1001"], "CPU 1000 of --cpus cannot be used; leave it out"),
        (&["persistent", "--cpus", ""], "names no CPU"),
        (&["persistent", "--threads", "0"], "1..=1024"),
        (&["erratic"], "erratic"),
    ] {
        let (_, err) = folder.expect(2, &[&["load"], arguments].concat());
        assert!(err.contains(word), "{arguments:?}: {err}");
    }
}
