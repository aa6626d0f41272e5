//! What the inputs in `corpus/hosts` come to, so that one can see what the fuzzer has reached:
//! `cargo run --release --example reached`.

use std::collections::BTreeMap;
use std::fs;

use arbitrary::{Arbitrary, Unstructured};
use rota_fuzz::host::Host;
use rota_plan::{Method, Options, plan};

fn main() -> std::io::Result<()> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut count = |what: &str| *counts.entry(what.to_owned()).or_default() += 1;
    for entry in fs::read_dir("corpus/hosts")? {
        count("inputs");
        let bytes = fs::read(entry?.path())?;
        let Ok(host) = Host::arbitrary_take_rest(Unstructured::new(&bytes)) else { continue };
        let Some(model) = rota_fuzz::read(&host.text()) else { continue };
        count("configurations");
        let plan = match plan(&model, &Options { placement: model.host.placement }) {
            Ok(plan) => plan,
            Err(error) => {
                let kind = format!("{error:?}");
                count(&format!("refused: {}", kind.split([' ', '{']).next().unwrap_or_default()));
                continue;
            }
        };
        count("planned");
        for method in [Method::Dedicated, Method::Partitioned, Method::Split, Method::Clustered] {
            if plan.vcpus.iter().any(|vcpu| vcpu.method == method) {
                count(&format!("planned: {method}"));
            }
        }
        for (what, is_so) in [
            ("planned: cores of one's own", plan.cpus.iter().any(|cpu| cpu.exclusive_to.is_some())),
            ("planned: changes cost", model.host.costs.switch_ns > 0),
            ("planned: migrations cost", model.host.costs.migration_ns > 0),
            ("planned: affinity", model.tenants.iter().any(|tenant| tenant.affinity.is_some() && !tenant.pinned)),
            ("planned: short slots", plan.short_slots > 0),
        ] {
            if is_so {
                count(what);
            }
        }
    }
    for (what, count) in counts {
        println!("{count:>8} {what}");
    }
    Ok(())
}
