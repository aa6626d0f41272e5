//! What recorded threads work on, and how large caches are, which no recording says: from a text of its own.
//!
//! | key | value |
//! | --- | --- |
//! | `last_level_cache` | the size of each of the host's last-level caches, in KiB; 20480 by default, as of the model |
//!
//! `[[memory]]`, any number, says it of a tenant's threads, with the keys of a scenario's workload:
//!
//! | key | value |
//! | --- | --- |
//! | `tenant` | its name in the recording; with `{i}` all tenants that are called so |
//! | `working_set` | how much memory each of its threads works on, in KiB |
//! | `references` | so many lines of it a thread refers to in each microsecond of computing that finds all at hand |
//! | `overlap` | so many of its misses are under way at a time; 1 by default: each address is known from the one before |

use std::collections::BTreeMap;

use rota_model::config::{ConfigErrors, Errors, Source, Table, parse_keys, value};
use rota_model::{Model, TenantId, quote};
use rota_sim::{Memory, PRIVATE_KIB, SHARED_KIB};

use crate::Scenario;
use crate::read::named;

/// What a text says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memories {
    /// What each thread of some tenants asks of memory.
    pub tenants: BTreeMap<TenantId, Memory>,
    /// The size of each last-level cache, in KiB.
    pub shared_kib: u64,
}

/// The last-level cache has all that private ones have, and no processor has so much as the most.
const SHARED_MIN: u32 = PRIVATE_KIB as u32;
const SHARED_MAX: u32 = 16 << 20;

const KEYS: [&str; 4] = ["tenant", "working_set", "references", "overlap"];

impl Scenario {
    /// Has the threads of a replay refer to memory as a text says, and returns what it says of which tenant. What they
    /// computed when they were recorded is taken for computing that nobody disturbed.
    ///
    /// # Errors
    ///
    /// Every mistake in the text, each with its place and mend.
    pub fn remember(&mut self, source: &Source) -> Result<Memories, ConfigErrors> {
        let memories = read(source, &self.model)?;
        if let Some(replay) = &mut self.replay {
            replay.remember(&memories);
        }
        Ok(memories)
    }
}

fn read(source: &Source, model: &Model) -> Result<Memories, ConfigErrors> {
    parse_keys(source, &["last_level_cache", "memory"], |root, errors| {
        let shared_kib =
            root.read("last_level_cache", errors, |value| value::whole(value, SHARED_MIN..=SHARED_MAX));
        let mut tenants = BTreeMap::new();
        if !root.has("memory") {
            errors.push(
                root.error("memory", "missing; write [[memory]] with a tenant's name, once for each tenant"),
            );
        }
        for table in root.tables("memory", errors) {
            for (tenant, memory) in one(&table, model, errors) {
                if tenants.insert(tenant, memory).is_some() {
                    let name = quote(&model.tenants[tenant as usize].name);
                    errors.push(
                        table.error("tenant", format!("{name} is described twice; remove one of the two")),
                    );
                }
            }
        }
        Memories { tenants, shared_kib: shared_kib.map_or(SHARED_KIB, u64::from) }
    })
}

/// What a table says of which tenants; nothing if there is a mistake.
fn one(table: &Table, model: &Model, errors: &mut Errors) -> Vec<(TenantId, Memory)> {
    table.refuse_unknown(&KEYS, errors);
    for (key, mend) in [
        ("tenant", "a tenant's name, e.g. tenant = \"web\""),
        ("working_set", "how many KiB, e.g. working_set = 2048"),
        ("references", "how many lines in a microsecond, e.g. references = 40"),
    ] {
        table.require(key, &KEYS, mend, errors);
    }
    let tenants = named(table, "tenant", Some(model), errors);
    let working_set_kib = table.read("working_set", errors, |value| value::whole(value, 1..=u32::MAX));
    let references = table.read("references", errors, |value| value::whole(value, 1..=1_000));
    let overlap = table.read("overlap", errors, |value| value::whole(value, 1..=64)).unwrap_or(1);
    let (Some(tenants), Some(working_set_kib), Some(references_per_us)) =
        (tenants, working_set_kib, references)
    else {
        return Vec::new();
    };
    let memory = Memory { working_set_kib, references_per_us, overlap };
    tenants.into_iter().map(|tenant| (tenant, memory)).collect()
}

#[cfg(test)]
mod tests {
    use rota_model::Topology;
    use rota_model::config::parse;

    use super::*;

    fn of(text: &str) -> Result<Memories, String> {
        let source = |path: &str, text: &str| Source { path: path.to_owned(), text: text.to_owned() };
        let config = "host = { cpus = \"0-1\", housekeeping = \"0\" }\n\
                      tenant = [{ name = \"web-{i}\", count = 2, class = \"background\" }]\n";
        let model = parse(&[source("rota.toml", config)], &Topology::default()).unwrap();
        read(&source("m.toml", text), &model).map_err(|errors| errors.to_string())
    }

    #[test]
    fn tenants_are_described_by_name_or_by_pattern() {
        let found =
            of("[[memory]]\ntenant = \"web-{i}\"\nworking_set = 2048\nreferences = 40\noverlap = 4\n");
        let memory = Memory { working_set_kib: 2048, references_per_us: 40, overlap: 4 };
        assert_eq!(
            found,
            Ok(Memories { tenants: BTreeMap::from([(0, memory), (1, memory)]), shared_kib: SHARED_KIB })
        );
    }

    #[test]
    fn every_mistake_is_named_with_place_and_mend() {
        let web = "[[memory]]\ntenant = \"web-0\"\nworking_set = 2048\nreferences = 40\n";
        for (text, error) in [
            ("", "m.toml:1:1: memory: missing; write [[memory]] with a tenant's name, once for each tenant"),
            (
                &["last_level_cache = 128\n", web].concat(),
                "m.toml:1:20: last_level_cache: 128 is no whole number from 256 to 16777216; write one",
            ),
            (
                "memories = 1\n",
                "m.toml:1:1: memories: unknown key; the keys here are last_level_cache, memory",
            ),
            (
                &web.replace("web-0", "wbe"),
                "m.toml:2:10: memory.tenant: \"wbe\" is no tenant; write one of web-0, web-1",
            ),
            (
                &web.replace("2048", "0"),
                "m.toml:3:15: memory.working_set: 0 is no whole number from 1 to 4294967295; write one",
            ),
            (
                &web.replace("40", "0"),
                "m.toml:4:14: memory.references: 0 is no whole number from 1 to 1000; write one",
            ),
            (
                &web.replace("references", "referenc"),
                "m.toml:4:1: memory.referenc: unknown key; did you mean \"references\"?",
            ),
            (
                &[web, web].concat(),
                "m.toml:6:10: memory.tenant: \"web-0\" is described twice; remove one of the two",
            ),
            ("[[memory]]\n", "m.toml:1:1: memory.tenant: missing; write a tenant's name"),
        ] {
            let found = of(text).unwrap_err();
            assert!(found.starts_with(error), "{found}\nfor:\n{text}");
        }
    }
}
