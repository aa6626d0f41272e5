//! `rota check`.

use std::path::PathBuf;

use anyhow::anyhow;
use rota_model::{Model, TenantId};
use rota_table::certify;
use serde::Serialize;

use super::{Config, Failure, files, print_json, print_text};

/// Check that a table keeps every promise of a configuration
///
/// The table is one that `rota plan --format bin` wrote, or claims to be. Exits with 1 if it breaks a promise or is
/// damaged, and with 3 if no table can keep the promises.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The table
    #[arg(value_name = "TABLE")]
    table: PathBuf,
    #[command(flatten)]
    config: Config,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

/// The answer.
#[derive(Debug, Serialize)]
struct Verdict {
    certified: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    violation: Option<String>,
    tenants: usize,
    vcpus: usize,
}

pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let path = arguments.table.display();
    let bytes = files::read(&arguments.table).map_err(Failure::Usage)?;
    let model = arguments.config.model()?;
    let ids: Vec<TenantId> = (0..model.tenants.len() as TenantId).collect();
    let promises = rota_rules::planning::promises(&model, &ids);
    let tenants = model.tenants.iter().filter(|tenant| tenant.reservation().is_some()).count();
    let result = certify(&bytes, &promises, model.host.costs);
    if arguments.json {
        let violation = result.as_ref().err().map(|violation| named(&violation.to_string(), &model));
        print_json(&Verdict { certified: result.is_ok(), violation, tenants, vcpus: promises.len() })?;
    }
    match result {
        Ok(table) if !arguments.json => {
            let length_ms = f64::from(table.view().header().length_ns) / 1e6;
            let text = format!(
                "{path}: certified. {} vCPUs of {tenants} tenants have their shares within their latencies; \
                 {length_ms:.3} ms long, {} bytes\n",
                promises.len(),
                bytes.len()
            );
            print_text(&text)
        }
        Ok(_) => Ok(()),
        Err(violation) => {
            let message = format!("{path}: not certified: {}", named(&violation.to_string(), &model));
            let options = rota_plan::Options { placement: model.host.placement };
            Err(match rota_plan::plan(&model, &options) {
                Ok(_) => Failure::Failed(anyhow!(message)),
                Err(infeasible) => {
                    Failure::Infeasible(anyhow!("{message}\nand no other table would be: {infeasible}"))
                }
            })
        }
    }
}

/// Adds the names of the tenants that a violation speaks of by number, as `vCPU 3/0` or `tenant 3`.
fn named(violation: &str, model: &Model) -> String {
    let words: Vec<&str> = violation.split(' ').collect();
    let number = |pair: &[&str]| match *pair {
        ["vCPU", vcpu] => vcpu.split_once('/')?.0.parse().ok(),
        ["tenant", tenant] => tenant.parse().ok(),
        _ => None,
    };
    let numbers = words.windows(2).filter_map(number);
    let names = numbers.filter_map(|number: usize| Some((number, &model.tenants.get(number)?.name)));
    let names: Vec<String> = names.map(|(number, name)| format!("tenant {number} is {name}")).collect();
    if names.is_empty() { violation.to_owned() } else { format!("{violation} ({})", names.join(", ")) }
}
