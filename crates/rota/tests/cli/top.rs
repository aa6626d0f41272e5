//! `rota top` in a real terminal, tmux's, beside a daemon's end of the socket.

use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rota_rules::status::{ByCause, CpuStatus, State, Status, TenantStatus};
use rotad::server::Server;

/// A screen that does not show what it should by then never will.
const PATIENCE: Duration = Duration::from_secs(60);

fn status() -> Status {
    let tenant = |name: &str, id, missed| TenantStatus {
        name: name.to_owned(),
        id: Some(id),
        class: "reserved".to_owned(),
        state: State::Served,
        refused: None,
        cgroup: Some(format!("{name}.slice")),
        kind: "container".to_owned(),
        vcpus: 1,
        promised: Some(0.2),
        together: false,
        matching: false,
        monitor: None,
        parts: Vec::new(),
        received: 0.25,
        used_ns: 1,
        received_total: 0.2,
        wanted: 1.0,
        lag_ns: None,
        blackout_max_ns: 21_000_000,
        bound_ns: Some(20_000_000),
        missed,
        missed_by_cause: ByCause { steal: missed, ..ByCause::default() },
        lost_ns: ByCause::default(),
        dispatches: 1,
        preempted: 0,
        yields: 0,
        migrations: 0,
        spins: 0,
        spins_ns: 0,
        runnable: 1,
        waits: 0.0,
        waits_for: None,
        spending: rota_rules::profile::Spending::default(),
        queues: Vec::new(),
    };
    let cpu = CpuStatus {
        cpu: 0,
        generation: 3,
        mixed: 0,
        idle: 0.5,
        background: 0.0,
        second_level: 0.25,
        lost_ns: ByCause::default(),
    };
    Status {
        pid: 7,
        up_s: 12.0,
        generation: 3,
        table_length_ns: 102_702_600,
        window_s: 5.0,
        edit_refused: None,
        offline: String::new(),
        tenants: vec![tenant("web", 1, 0), tenant("db", 2, 4)],
        cpus: vec![cpu],
        spares: vec![],
        interference: None,
        kubernetes: None,
        scheduler: rota_rules::status::SchedulerStatus::default(),
    }
}

/// A terminal of 80 columns and 24 lines in which something runs. The server of tmux is its own, and ends with it.
struct Terminal<'a> {
    folder: &'a Path,
}

impl<'a> Terminal<'a> {
    fn new(folder: &'a Path, command: &str) -> Terminal<'a> {
        let terminal = Terminal { folder };
        let started = terminal.tmux(&["new-session", "-d", "-x", "80", "-y", "24", command]);
        assert!(started.status.success(), "{}", String::from_utf8_lossy(&started.stderr));
        terminal
    }

    fn tmux(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new("tmux");
        command.arg("-S").arg(self.folder.join("tmux")).args(["-f", "/dev/null"]).args(arguments);
        command.output().expect("tmux runs")
    }

    fn press(&self, key: &str) {
        self.tmux(&["send-keys", key]);
    }

    /// The screen as soon as it has all of these words; `more` is for tmux.
    #[track_caller]
    fn shows(&self, words: &[&str], more: &[&str]) -> String {
        let end = Instant::now() + PATIENCE;
        loop {
            let screen = self.tmux(&[&["capture-pane", "-p"], more].concat());
            let screen = String::from_utf8_lossy(&screen.stdout).into_owned();
            if words.iter().all(|word| screen.contains(word)) {
                return screen;
            }
            assert!(Instant::now() < end, "{words:?} is not on the screen:\n{screen}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Terminal<'_> {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

/// Runs `check` while a daemon answers at `socket` of a folder.
fn beside_a_daemon(check: impl FnOnce(&Path)) {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::bind(&folder.path().join("socket"), None).unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let answering = std::thread::spawn({
        let is_over = is_over.clone();
        move || {
            while !is_over.load(Ordering::Relaxed) {
                server.answer(status);
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    });
    check(folder.path());
    is_over.store(true, Ordering::Relaxed);
    answering.join().unwrap();
}

fn lacks_tmux(test: &str) -> bool {
    let lacks = Command::new("tmux").arg("-V").output().is_err();
    if lacks {
        println!("SKIPPED: {test}: tmux is not installed");
    }
    lacks
}

fn top(folder: &Path) -> String {
    format!("{} top --socket {}", env!("CARGO_BIN_EXE_rota"), folder.join("socket").display())
}

#[test]
fn a_terminal_shows_tenants_and_their_pages() {
    if lacks_tmux("a_terminal_shows_tenants_and_their_pages") {
        return;
    }
    beside_a_daemon(|folder| {
        let ended = format!("{}; echo ended with $?; cat", top(folder));
        let terminal = Terminal::new(folder, &ended);
        let screen = terminal.shows(&["Rota: table 3, 102.703 ms", "\nweb  ", "\ndb  ", "CPU   0"], &[]);
        assert_eq!(screen.lines().count(), 24, "{screen}");
        assert!(screen.lines().all(|line| line.chars().count() <= 80), "{screen}");

        terminal.press("Down");
        terminal.press("Enter");
        terminal.shows(&["db: reserved container", "missed by", "4 host steal"], &[]);
        terminal.press("Escape");
        terminal.press("/");
        terminal.press("w");
        let screen = terminal.shows(&["/w_", "\nweb  "], &[]);
        assert!(!screen.contains("\ndb  "), "{screen}");
        terminal.press("Enter");
        terminal.shows(&["/ filter: w"], &[]);
        // What was on the screen before is there again.
        terminal.press("q");
        let screen = terminal.shows(&["ended with 0"], &[]);
        assert!(!screen.contains("Rota: table 3"), "{screen}");
    });
}

#[test]
fn a_terminal_has_colors_but_with_no_color() {
    if lacks_tmux("a_terminal_has_colors_but_with_no_color") {
        return;
    }
    // 39 is the terminal's own color, and no other.
    let is_colored = |screen: &str| screen.replace("\x1b[39m", "").contains("\x1b[3");
    beside_a_daemon(|folder| {
        let terminal = Terminal::new(folder, &format!("env -u NO_COLOR {}", top(folder)));
        let screen = terminal.shows(&["web", "CPU   0"], &["-e"]);
        assert!(is_colored(&screen), "{screen}");
    });
    beside_a_daemon(|folder| {
        let terminal = Terminal::new(folder, &format!("env NO_COLOR=1 {}", top(folder)));
        let screen = terminal.shows(&["web", "CPU   0"], &["-e"]);
        assert!(!is_colored(&screen), "{screen}");
    });
}

#[test]
fn without_a_terminal_the_mend_is_said() {
    let folder = super::Folder::new("");
    let (_, err) = folder.expect(2, &["top"]);
    assert_eq!(err, "rota: rota top needs a terminal; `rota status` prints the same once\n");
}
