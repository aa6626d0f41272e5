use std::collections::BTreeMap;

use rota_model::config::{Source, parse};
use rota_model::{Cgroup, CpuSet, Topology};

use super::*;

const MS: u64 = 1_000_000;

fn driver(jobs: &[Job]) -> Driver {
    let text = "[host]\nhousekeeping = \"0\"\n[[tenant]]\nname = \"web\"\nclass = \"reserved\"\nshare = 0.2\n\
                latency = \"20ms\"\nmatch = { cgroup = \"web\" }\n";
    let cpus: CpuSet = "0-1".parse().unwrap();
    let sources = [Source { path: "rota.toml".to_owned(), text: text.to_owned() }];
    Driver::new(0, parse(&sources, &Topology::flat(&cpus)).unwrap(), jobs)
}

/// All that is to be done now, as far as it has a name. Counters are read, and tables are not installed.
fn chores(driver: &mut Driver, now_ns: u64) -> Vec<Chore> {
    let mut chores = Vec::new();
    while let Some(command) = driver.next(now_ns) {
        if let Command::Do(chore) = command {
            chores.push(chore);
        }
    }
    chores
}

fn appear(driver: &mut Driver) {
    let cgroup = Cgroup { path: "web".into(), id: 7 };
    driver.tell(Event::Appeared { tenant: "web".to_owned(), cgroup });
}

#[test]
fn jobs_come_back_after_their_period_in_their_order() {
    let mut driver = driver(&Job::ALL);
    assert_eq!(chores(&mut driver, 0), []);
    assert_eq!(driver.due_ns(), 250 * MS);
    assert_eq!(chores(&mut driver, 250 * MS - 1), []);
    assert_eq!(chores(&mut driver, 250 * MS), [Chore::FindThreads]);
    assert_eq!(driver.due_ns(), 500 * MS);
    let all = [Chore::Rescan, Chore::Count, Chore::LookAgain, Chore::FindVms, Chore::FindThreads];
    assert_eq!(chores(&mut driver, 10_000 * MS), all);
    assert_eq!(driver.due_ns(), 10_250 * MS);
}

#[test]
fn a_host_without_jobs_and_tenants_waits_for_ever() {
    let mut driver = driver(&[]);
    assert_eq!((driver.due_ns(), driver.is_settled()), (0, false));
    assert_eq!(chores(&mut driver, 0), []);
    assert_eq!((driver.due_ns(), driver.is_settled()), (u64::MAX, true));
}

#[test]
fn edited_files_are_read_when_they_are_left_alone() {
    let mut driver = driver(&[]);
    driver.edited(0);
    chores(&mut driver, 0);
    driver.edited(60 * MS);
    assert_eq!((chores(&mut driver, 100 * MS), driver.due_ns()), (vec![], 160 * MS));
    assert_eq!(chores(&mut driver, 160 * MS), [Chore::Configure]);
    assert_eq!(driver.due_ns(), u64::MAX);
}

#[test]
fn background_threads_are_spread_by_the_counters_of_a_job_only() {
    let mut driver = driver(&[Job::COUNTERS]);
    let cpu = |cpu| rota_sched::CpuAccount {
        cpu,
        generation: 0,
        mixed: 0,
        idle_ns: 1,
        background_ns: 0,
        second_level_ns: 0,
        lost_ns: [0; 6],
    };
    let reading =
        |at_ns| Reading { at_ns, queues: vec![], cpus: vec![cpu(0), cpu(1)], lags: BTreeMap::new() };
    driver.counted(reading(0));
    assert_eq!(chores(&mut driver, 0), [], "somebody has asked");
    assert!(matches!(driver.next(1000 * MS), Some(Command::Do(Chore::Count))));
    driver.counted(reading(1000 * MS));
    let Some(Command::Spread(ring)) = driver.next(1000 * MS) else { panic!("nothing is spread") };
    assert!(ring.iter().all(|cpu| *cpu == 1), "CPU 0 is the system's");
    assert_eq!(chores(&mut driver, 1000 * MS), [Chore::LookAgain]);
}

#[test]
fn an_answer_comes_before_what_happened_meanwhile_and_a_refusal_is_tried_again() {
    let mut driver = driver(&[]);
    appear(&mut driver);
    chores(&mut driver, 0);
    let is_table = |command: &Command| matches!(command, Command::Act(Action::Install(_)));
    let due_ns = driver.due_ns();
    assert_eq!(due_ns, 20 * MS);
    let commands: Vec<Command> = std::iter::from_fn(|| driver.next(due_ns)).collect();
    assert!(is_table(commands.last().unwrap()));
    driver.tell(Event::Vanished { tenant: "web".to_owned() });
    driver.installed(due_ns, Err(anyhow::anyhow!("busy")));
    assert!(matches!(driver.next(due_ns), Some(Command::Act(Action::Say(line))) if line.contains("busy")));
    driver.tell(Event::Tick);
    appear(&mut driver);
    assert_eq!(chores(&mut driver, due_ns), []);
    assert!(driver.due_ns() <= due_ns + RETRY_NS);
    let again: Vec<Command> = std::iter::from_fn(|| driver.next(due_ns + RETRY_NS)).collect();
    assert!(again.iter().any(is_table));
    driver.installed(due_ns + RETRY_NS, Ok(Installed { generation: 1, adopted_at_ns: due_ns + RETRY_NS }));
    chores(&mut driver, due_ns + RETRY_NS);
    assert!(driver.is_settled());
    assert_eq!(driver.status(due_ns + RETRY_NS, 1, None).generation, 1);
}
