//! `rota plan`.

use std::io::IsTerminal;
use std::path::PathBuf;

use anyhow::{Context, anyhow};
use clap::ValueEnum;
use rota_model::{Model, TenantId};
use rota_plan::Plan;
use rotad::planning;

use super::{Config, Failure, print};
use crate::plan::{render_json, render_svg, render_text};

/// Plan a timetable for every configured tenant, and touch nothing
///
/// The configuration may describe another machine than this one. Exits with 3 if the promises cannot all be kept.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    config: Config,
    /// How to write it
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Where to write it; to standard output if not given
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// For programs
    Json,
    /// The table as the scheduler takes it, for `rota check`
    Bin,
    /// A picture: one lane a CPU
    Svg,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let model = arguments.config.model()?;
    let plan = rota_plan::plan(&model, &rota_plan::Options::default())
        .map_err(|infeasible| Failure::Infeasible(infeasible.into()))?;
    // Whatever the format: no plan is shown that would not pass as a table.
    let bytes = certified(&model, &plan)?;
    let output = match arguments.format {
        Format::Text => render_text(&plan, &model).into_bytes(),
        Format::Json => render_json(&plan, &model).context("writing JSON")?.into_bytes(),
        Format::Bin => bytes,
        Format::Svg => render_svg(&plan, &model).into_bytes(),
    };
    match &arguments.output {
        Some(path) => {
            std::fs::write(path, output).with_context(|| format!("writing {}", path.display()))?;
            Ok(())
        }
        None if arguments.format == Format::Bin && std::io::stdout().is_terminal() => {
            Err(Failure::Usage(anyhow!("a table is not for a terminal; write it to a file with -o FILE")))
        }
        None => print(&output),
    }
}

/// The plan as a table that has passed the certifier. Tenants are numbered in the configuration's order.
fn certified(model: &Model, plan: &Plan) -> Result<Vec<u8>, Failure> {
    let ids: Vec<TenantId> = (0..model.tenants.len() as TenantId).collect();
    let bytes =
        rota_table::encode(&planning::source(plan, &ids)).map_err(|error| Failure::Failed(error.into()))?;
    let table = rota_table::certify(&bytes, &planning::promises(model, &ids))
        .context("the planned table breaks a promise; this is a bug in the planner")?;
    Ok(table.bytes().to_vec())
}
