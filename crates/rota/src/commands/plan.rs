//! `rota plan`.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use clap::ValueEnum;
use rota_model::{Model, Placement, TenantId};
use rota_plan::Plan;
use rota_rules::planning;

use super::{Config, Failure, files, print, print_text};
use crate::plan::{
    Diff, Table, names, reason_texts, render_json, render_reasons, render_svg, render_tableau, render_text,
};

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
    /// Which CPU a vCPU goes to; as `placement` in the configuration if not given
    #[arg(long, value_enum)]
    placement: Option<PlacementName>,
    /// Show what changes beside an older plan, one that `rota plan --format json` wrote; as text or JSON
    #[arg(long, value_name = "OLD")]
    diff: Option<PathBuf>,
    /// Say why each vCPU is where it is; as text or JSON
    #[arg(long, conflicts_with = "diff")]
    explain: bool,
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
    /// The table as Tableau's prototype for Xen takes it: every CPU's slots written out for the whole table, tenants as
    /// domains from 1 on, CPUs below 64 only
    TableauXen,
}

impl Format {
    fn is_binary(self) -> bool {
        matches!(self, Format::Bin | Format::TableauXen)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PlacementName {
    /// The one with most room: spreads the load
    WorstFit,
    /// The one with least that will do: frees whole CPUs
    BestFit,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let mut model = arguments.config.model()?;
    if let Some(placement) = arguments.placement {
        model.host.placement = match placement {
            PlacementName::WorstFit => Placement::WorstFit,
            PlacementName::BestFit => Placement::BestFit,
        };
    }
    let options = rota_plan::Options { placement: model.host.placement };
    let planned = if arguments.explain {
        rota_plan::explain(&model, &options)
    } else {
        rota_plan::plan(&model, &options).map(|plan| (plan, Vec::new()))
    };
    let (plan, reasons) = planned.map_err(|infeasible| Failure::Infeasible(infeasible.into()))?;
    // Whatever the format: no plan is shown that would not pass as a table.
    let bytes = certified(&model, &plan)?;
    let output = match (&arguments.diff, arguments.format) {
        (Some(old), format) => diff(old, &plan, &model, format)?,
        (None, Format::Text) if arguments.explain => render_reasons(&plan, &model, &reasons).into_bytes(),
        (None, Format::Text) => render_text(&plan, &model).into_bytes(),
        (None, Format::Json) => {
            let reasons = reason_texts(&plan, &model, &reasons);
            render_json(&plan, &model, reasons).context("writing JSON")?.into_bytes()
        }
        _ if arguments.explain => {
            return Err(Failure::Usage(anyhow!(
                "--explain writes text or JSON; write --format json, or leave it out"
            )));
        }
        (None, Format::Bin) => bytes,
        (None, Format::TableauXen) => render_tableau(&plan)?,
        (None, Format::Svg) => render_svg(&plan, &model).into_bytes(),
    };
    match &arguments.output {
        Some(path) => {
            files::write(path, &output)?;
            Ok(())
        }
        None if arguments.format.is_binary() && std::io::stdout().is_terminal() => {
            Err(Failure::Usage(anyhow!("a table is not for a terminal; write it to a file with -o FILE")))
        }
        None if matches!(arguments.format, Format::Text) => print_text(&String::from_utf8_lossy(&output)),
        None => print(&output),
    }
}

fn diff(old: &Path, plan: &Plan, model: &Model, format: Format) -> Result<Vec<u8>, Failure> {
    let path = old.display();
    let text =
        std::fs::read_to_string(old).with_context(|| format!("reading {path}")).map_err(Failure::Usage)?;
    let old = serde_json::from_str(&text)
        .with_context(|| format!("{path} is no plan as `rota plan --format json` writes it"))
        .map_err(Failure::Usage)?;
    let names = names(plan, model);
    let diff = Diff::new(&old, &Table::new(plan, model, &names));
    match format {
        Format::Text => Ok(diff.render_text().into_bytes()),
        Format::Json => Ok((serde_json::to_string(&diff).context("writing JSON")? + "\n").into_bytes()),
        _ => Err(Failure::Usage(anyhow!(
            "--diff writes text or JSON; leave --format out, or write --format json"
        ))),
    }
}

/// The plan as a table that has passed the certifier. Tenants are numbered in the configuration's order.
fn certified(model: &Model, plan: &Plan) -> Result<Vec<u8>, Failure> {
    let ids: Vec<TenantId> = (0..model.tenants.len() as TenantId).collect();
    let bytes = rota_table::encode(&planning::source(plan, &ids, model.host.costs))
        .map_err(|error| Failure::Failed(error.into()))?;
    let table = rota_table::certify(&bytes, &planning::promises(model, &ids), model.host.costs)
        .context("the planned table breaks a promise; this is a bug in the planner")?;
    Ok(table.bytes().to_vec())
}
