//! Threads that wait busily give way to their siblings: more threads than CPUs do nearly as much as one on each, and
//! nobody else has less.

use rota_sched::QueueAccount;
use rota_sim::programs::sync::Patience;
use rota_sim::programs::{Hog, Locking, Rounds, Waiting};
use rota_sim::{Distribution, Program, Script, Step, Thread};
use rota_twin::{Rota, apart};

use crate::host::{after, settle, start_made};

const US: u64 = 1_000;
const SECOND: u64 = 1_000_000_000;

/// Eight CPUs. The program's tenant has all of them, or nine tenths of each beside a neighbour.
fn host(class: &str, oversubscribe: &str) -> String {
    let neighbour = "[[tenant]]\nname = \"web\"\nclass = \"reserved\"\nshare = 0.05\nlatency = \"10ms\"\n\
                     match = { cgroup = \"web\" }\n";
    format!(
        "[host]\ncpus = \"0-8\"\nhousekeeping = \"0\"\n\n{neighbour}\n\
         [[tenant]]\nname = \"app\"\nvcpus = 8\n{class}\noversubscribe = \"{oversubscribe}\"\n\
         match = {{ cgroup = \"app\" }}\n"
    )
}

const SHARED: &str = "class = \"shared\"";
const RESERVED: &str = "class = \"reserved\"\nshare = 0.9\nlatency = \"20ms\"";

/// What the program's threads do in a second, what the least of its CPUs would have been, and its queue's account.
fn work(host: &str, programs: impl FnOnce() -> Vec<Box<dyn Program>> + Send) -> (f64, QueueAccount) {
    work_of(host, |rota| rota, programs)
}

/// The same of a scheduler that is made otherwise.
fn work_of(
    host: &str,
    made: fn(Rota) -> Rota,
    programs: impl FnOnce() -> Vec<Box<dyn Program>> + Send,
) -> (f64, QueueAccount) {
    apart(|| {
        let (mut run, mut tenants) = start_made(host, made);
        for program in programs() {
            run.spawn(tenants.thread("app", program));
        }
        run.spawn(tenants.thread("web", Hog));
        settle(&mut run, &tenants);
        let received = after(&mut run, SECOND);
        let of = |name: &str| &received[tenants.home(name).first_unit.index()];
        assert!(of("web").received_ns >= SECOND / 20, "the neighbour has its share");
        let (done, id) = (of("app").work as f64, tenants.home("app").unit(0).0);
        let queues = run.policy.queues(&mut run.machine);
        (done, queues.into_iter().find(|queue| queue.tenant == id).expect("its queue"))
    })
}

/// A barrier that is waited for busily; all threads together compute 16 ms in a round.
fn rounds(threads: u32) -> Vec<Box<dyn Program>> {
    let each = 16_000 * US / u64::from(threads);
    let compute = Distribution::Uniform(each * 9 / 10, each * 11 / 10);
    Rounds { threads, compute, patience: Patience::ENDLESS }.programs().into_iter().map(Box::from).collect()
}

/// Tickets: whoever has the next one is seldom on a CPU.
fn tickets(threads: u32) -> Vec<Box<dyn Program>> {
    let outside = Distribution::Constant(16_000 * US / u64::from(threads));
    let inside = Distribution::Constant(20 * US);
    Locking { threads, outside, inside, waiting: Waiting::Ordered }
        .programs()
        .into_iter()
        .map(Box::from)
        .collect()
}

#[test]
fn more_threads_than_cpus_do_nearly_as_much() {
    for class in [SHARED, RESERVED] {
        for (programs, least) in [(rounds as fn(u32) -> Vec<Box<dyn Program>>, 0.8), (tickets, 0.5)] {
            let part = |oversubscribe, threads| {
                let (done, account) = work(&host(class, oversubscribe), || programs(threads));
                (done / f64::from(threads), account.spins)
            };
            let (fit, _) = part("auto", 8);
            let (with, spins) = part("auto", 32);
            let (without, none) = part("off", 32);
            let case = format!("{class}: {fit} with 8 threads, {with} with 32, {without} if it is off");
            assert!(with >= least * fit && with >= 1.5 * without, "{case}");
            assert!(spins > 100 && none == 0, "{case}; {spins} cut short, {none} if it is off");
        }
    }
}

/// Who counts as it waits is seen by its branches, and by nothing else.
#[test]
fn loops_that_count_are_seen_where_branches_are_recorded() {
    for class in [SHARED, RESERVED] {
        for (programs, least) in [(rounds as fn(u32) -> Vec<Box<dyn Program>>, 0.8), (tickets, 0.2)] {
            let part = |host: &str, threads| {
                let (done, account) = work_of(host, Rota::counting, || programs(threads));
                (done / f64::from(threads), account.spins)
            };
            let host = host(class, "auto");
            let recorded = host.replacen("[host]", "[host]\nbranch_records = true", 1);
            let (fit, _) = part(&host, 8);
            let [(with, spins), (without, none)] = [&recorded, &host].map(|host| part(host, 32));
            let case =
                format!("{class}: {fit} with 8 threads, {with} with 32, {without} if nothing is recorded");
            println!("{case}");
            assert!(with >= least * fit && with >= 1.5 * without, "{case}");
            assert!(spins > 100 && none == 0, "{case}; {spins} cut short, {none} if nothing is recorded");
        }
    }
}

/// Nobody is looked at who has no siblings that wait, and who computes gives way to nobody.
#[test]
fn only_those_who_spin_give_way() {
    for class in [SHARED, RESERVED] {
        let host = host(class, "auto");
        for host in [host.replacen("[host]", "[host]\nbranch_records = true", 1), host] {
            let hogs = || (0..24).map(|_| Box::from(Hog)).collect();
            let (_, account) = work(&host, hogs);
            assert_eq!((account.spins, account.spins_ns), (0, 0), "{host}: {account:?}");
        }
    }
}

/// A thread that yields, again and again, lets all its siblings have their turns.
#[test]
fn who_yields_comes_after_its_siblings() {
    for class in [SHARED, RESERVED] {
        let yields = |thread: Thread| async move {
            loop {
                thread.compute(US).await;
                thread.work(1);
                thread.step(Step::Yield).await;
            }
        };
        let programs = || {
            let hogs = (0..8).map(|_| Box::from(Hog));
            hogs.chain((0..8).map(|_| Box::from(Script::new(yields)))).collect()
        };
        let [with, without] = ["auto", "off"].map(|kind| {
            let (turns, QueueAccount { profile, .. }) = work(&host(class, kind), programs);
            assert!(profile.yields as f64 >= turns && profile.preempted > 500, "{profile:?}");
            turns
        });
        assert!(with > 500.0 && with < without / 2.0, "{class}: {with} turns, {without} if it is off");
    }
}

/// Of threads that come together each goes to the CPU on which it ran last.
#[test]
fn threads_that_meet_stay_where_they_were() {
    for class in [SHARED, RESERVED] {
        let compute = Distribution::Uniform(450 * US, 550 * US);
        let meet = Rounds { threads: 32, compute, patience: Patience::NONE };
        let programs = || meet.programs().into_iter().map(Box::from).collect();
        let (turns, account) = work(&host(class, "auto"), programs);
        let part = account.migrations as f64 / turns;
        assert!(part < 0.35, "{class}: {part} migrations a turn");
    }
}
