//! Pages as they look at 80 columns and 24 lines. `ROTA_SNAPSHOTS=write` writes them anew.

use std::path::Path;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Color;
use rota_rules::status::{ByCause, CpuStatus, State, TenantStatus};

use super::*;
use crate::top::history::SAMPLES;
use crate::top::view::{Order, Page};

fn tenant(name: &str, id: Option<u32>, promised: Option<f64>) -> TenantStatus {
    TenantStatus {
        name: name.into(),
        id,
        class: if promised.is_some() { "reserved" } else { "shared" }.into(),
        state: if id.is_some() { State::Served } else { State::Absent },
        refused: None,
        cgroup: id.map(|_| format!("machine.slice/{name}")),
        kind: "container".into(),
        vcpus: 1,
        promised,
        together: false,
        matching: false,
        monitor: None,
        parts: Vec::new(),
        received: 0.25,
        used_ns: 2_400_000_000,
        received_total: 0.2,
        wanted: 1.0,
        lag_ns: if promised.is_none() { Some(1_204_000) } else { None },
        blackout_max_ns: 16_300_000,
        bound_ns: promised.map(|_| 20_000_000),
        missed: 0,
        missed_by_cause: ByCause::default(),
        lost_ns: ByCause::default(),
        dispatches: 900,
        migrations: 3,
        preempted: 0,
        yields: 0,
        spins: 0,
        spins_ns: 0,
        runnable: 2,
        waits: 0.0,
        waits_for: None,
        spending: rota_rules::profile::Spending::default(),
        queues: Vec::new(),
    }
}

/// A host after so many seconds.
fn status(second: u64) -> Status {
    let mut db = TenantStatus { vcpus: 4, kind: "vm".into(), ..tenant("db", Some(2), Some(1.5)) };
    (db.received, db.blackout_max_ns) = (0.5 + 0.1 * (second % 10) as f64, 5_000_000);
    db.lost_ns =
        ByCause { kernel_thread: 400_000 * second, interrupt: 90_000 * second, ..ByCause::default() };
    let mut web = tenant("web-0", Some(1), Some(0.2));
    (web.blackout_max_ns, web.missed) = (21_500_000, second / 20);
    web.missed_by_cause.higher_class = second / 20;
    let refused = Some("tenant `batch`: no CPU has 0.9 left; lower a share".to_owned());
    let batch = TenantStatus { state: State::Refused, refused, ..tenant("batch", Some(4), None) };
    let cpu = |cpu: u32, idle: f64| CpuStatus {
        cpu,
        generation: 3,
        mixed: 0,
        idle,
        background: 0.05,
        second_level: 0.2,
        lost_ns: ByCause { steal: 2_000_000, ..ByCause::default() },
    };
    Status {
        pid: 7,
        up_s: second as f64,
        generation: 3,
        table_length_ns: 102_702_600,
        window_s: 5.0,
        edit_refused: None,
        offline: String::new(),
        tenants: vec![web, db, tenant("make", Some(3), None), batch, tenant("gone", None, Some(0.1))],
        cpus: vec![cpu(0, 0.0), cpu(1, (second % 9) as f64 / 8.0)],
        spares: vec![],
        interference: None,
        kubernetes: None,
        scheduler: rota_rules::status::SchedulerStatus::default(),
    }
}

/// After 30 answers.
fn watched() -> View {
    let mut view = View::default();
    (1..=30).for_each(|second| view.answered(Ok(status(second))));
    view
}

fn press(view: &mut View, keys: &str) {
    for key in keys.chars() {
        let code = match key {
            '\n' => KeyCode::Enter,
            '\x1b' => KeyCode::Esc,
            'v' => KeyCode::Down,
            '^' => KeyCode::Up,
            key => KeyCode::Char(key),
        };
        assert!(!view.key(KeyEvent::new(code, KeyModifiers::NONE)), "{key:?} ends it");
    }
}

fn drawn(view: &mut View, look: &Look, width: u16, height: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw::draw(frame, view, look)).unwrap();
    terminal.backend().buffer().clone()
}

/// What is on the screen, without the spaces at the ends of lines.
fn text(buffer: &Buffer) -> String {
    let lines = buffer.content.chunks(buffer.area.width.into());
    let line = |cells: &[ratatui::buffer::Cell]| {
        let line: String = cells.iter().map(|cell| cell.symbol()).collect();
        line.trim_end().to_owned() + "\n"
    };
    lines.map(line).collect()
}

#[track_caller]
fn looks_as(name: &str, view: &mut View) {
    let shown = text(&drawn(view, &Look::new(true), 80, 24));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/top/snapshots").join(name);
    if std::env::var_os("ROTA_SNAPSHOTS").is_some_and(|value| value == "write") {
        std::fs::write(path, shown).unwrap();
        return;
    }
    let expected = std::fs::read_to_string(&path).unwrap();
    assert!(shown == expected, "{name} was\n{expected}\nand is\n{shown}");
}

#[test]
fn the_pages_look_as_they_should() {
    looks_as("tenants.txt", &mut watched());

    let mut view = watched();
    press(&mut view, "v\n");
    looks_as("tenant.txt", &mut view);
    press(&mut view, "c");
    looks_as("cpus.txt", &mut view);
    press(&mut view, "?");
    looks_as("help.txt", &mut view);

    let mut view = View::default();
    view.answered(Err(anyhow::anyhow!("no daemon answers at /run/rota/rota.sock (is `rota up` running?)")));
    looks_as("nobody.txt", &mut view);
}

#[test]
fn what_is_wrong_with_all_of_it_is_said() {
    let mut view = watched();
    let edit_refused = Some("rota.toml:1:1: wrong".to_owned());
    view.answered(Ok(Status { edit_refused, offline: "3".to_owned(), ..status(31) }));
    view.answered(Err(anyhow::anyhow!("no daemon answers")));
    let shown = text(&drawn(&mut view, &Look::new(true), 80, 24));
    for line in [
        "no daemon answers",
        "the edited configuration is not used: rota.toml:1:1: wrong",
        "CPUs 3 are offline",
    ] {
        assert!(shown.contains(&format!("\n{line}\n")), "{shown}");
    }
}

#[test]
fn tenants_are_sorted_and_filtered() {
    let mut view = watched();
    let names = |view: &View| view.tenants().iter().map(|tenant| tenant.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&view), ["web-0", "db", "make", "batch", "gone"]);
    press(&mut view, "s");
    assert_eq!((view.order, names(&view)[0].as_str()), (Order::Name, "batch"));
    press(&mut view, "s");
    assert_eq!((view.order, names(&view)[0].as_str()), (Order::Received, "db"));
    press(&mut view, "r");
    assert_eq!(names(&view)[4], "db");
    press(&mut view, "rsss");
    assert_eq!((view.order, names(&view)[0].as_str()), (Order::Missed, "web-0"));
    press(&mut view, "ss");
    assert_eq!(view.order, Order::Number);

    // Each of a tenant's texts is looked through; what is typed is no command.
    press(&mut view, "/shared");
    assert!(view.is_typing);
    assert_eq!(names(&view), ["make", "batch"]);
    press(&mut view, "\nv\n");
    assert_eq!(view.page, Page::Tenant("batch".to_owned()));
    press(&mut view, "^");
    assert_eq!(view.page, Page::Tenant("make".to_owned()));
    press(&mut view, "\x1b\x1b");
    assert_eq!((view.page.clone(), names(&view).len()), (Page::Tenants, 5));
    press(&mut view, "/q");
    assert!(names(&view).is_empty());
    assert!(text(&drawn(&mut view, &Look::new(true), 80, 24)).contains("/q_"));
}

#[test]
fn it_ends_with_q_and_with_control_c() {
    let mut view = watched();
    assert!(view.key(KeyEvent::new(KeyCode::Char('q'), KeyModifiers::NONE)));
    press(&mut view, "/");
    assert!(!view.key(KeyEvent::new(KeyCode::Char('q'), KeyModifiers::NONE)), "it is typed");
    assert!(view.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)));
}

#[test]
fn another_daemon_counts_anew_and_what_is_old_is_forgotten() {
    let mut view = watched();
    let lost = |view: &View| view.history.tenant("db").next().unwrap().lost_ns;
    assert_eq!(lost(&view), 490_000);
    view.answered(Ok(Status { pid: 8, ..status(1000) }));
    assert_eq!(lost(&view), 0);
    (0..700).for_each(|second| view.answered(Ok(status(second))));
    assert_eq!(view.history.tenant("db").count(), SAMPLES);
    view.answered(Ok(Status { tenants: vec![], cpus: vec![], ..status(1) }));
    assert_eq!(view.history.tenant("db").count() + view.history.cpu(0).count(), 0);
}

#[test]
fn no_color_is_no_color() {
    for keys in ["", "\n", "c"] {
        let mut view = watched();
        press(&mut view, keys);
        let is_colored = |look: &Look, view: &mut View| {
            let buffer = drawn(view, look, 80, 24);
            buffer.content.iter().any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset)
        };
        assert!(is_colored(&Look::new(true), &mut view));
        assert!(!is_colored(&Look::new(false), &mut view));
    }
}

#[test]
fn every_size_of_terminal_will_do() {
    for keys in ["", "\n", "c", "?", "/x"] {
        for (width, height) in [(1, 1), (10, 3), (40, 6), (79, 5), (100, 40), (300, 100)] {
            let mut view = watched();
            press(&mut view, keys);
            drawn(&mut view, &Look::new(true), width, height);
        }
    }
}
