//! Attaches the scheduler without a table for some seconds, then prints what it has counted: the shortest way to see
//! whether a kernel accepts it.

use std::time::Duration;

use rota_model::Topology;
use rota_sched::{Options, Scheduler};

fn main() -> anyhow::Result<()> {
    let seconds = std::env::args().nth(1).map_or(Ok(2), |argument| argument.parse())?;
    let nr_cpus = std::thread::available_parallelism()?.get() as u32;
    let housekeeping = std::env::args().nth(2).unwrap_or_default().parse()?;
    let options = Options {
        nr_cpus,
        topology: Topology::default(),
        housekeeping,
        queues: 64 + nr_cpus,
        table_bytes: Options::TABLE_BYTES,
    };
    let scheduler = Scheduler::start(&options)?;
    println!("attached");
    std::thread::sleep(Duration::from_secs(seconds));
    println!("{:#?}\n{:#?}\nended: {:?}", scheduler.queues()?, scheduler.cpus()?, scheduler.exited());
    Ok(())
}
