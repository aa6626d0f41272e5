//! The scheduler that Rota's cost is compared with: `rota-fifo run 10`; and what operations cost: `rota-fifo costs
//! rota_`.

use std::time::Duration;

use anyhow::Result;
use clap::Parser;
use rota_lab::guest::fifo;

/// A minimal sched_ext scheduler, and what the operations of any have cost
#[derive(Parser)]
enum Arguments {
    /// Schedule first in, first out, for some seconds
    Run {
        /// How many
        seconds: u64,
    },
    /// Print as JSON what the loaded programs whose names begin with PREFIX have cost
    Costs {
        /// `rota_` or `fifo_`
        prefix: String,
    },
}

fn main() -> Result<()> {
    match Arguments::parse() {
        Arguments::Run { seconds } => fifo::run(Duration::from_secs(seconds)),
        Arguments::Costs { prefix } => {
            println!("{}", serde_json::to_string(&fifo::costs(&prefix))?);
            Ok(())
        }
    }
}
