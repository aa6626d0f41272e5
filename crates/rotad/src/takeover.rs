//! How the daemon comes to its scheduler: it takes over the one that was left behind, or starts one that outlives it.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Result, bail};
use rota_host::topology;
use rota_model::Model;
use rota_rules::capacity;
use rota_sched::{BPF_FS, NoPins, Pins, Scheduler, Start};

use crate::log::say;

/// What the daemon needs to come to a scheduler, again and again.
pub struct Starter {
    system: PathBuf,
    grace: Duration,
    /// Where the scheduler is pinned, once that is known.
    pins: Option<Option<Rc<Pins>>>,
}

impl Starter {
    /// On the machine that is described at `system`. The scheduler goes on for `grace` without a daemon.
    pub fn new(system: &Path, grace: Duration) -> Starter {
        Starter { system: system.to_owned(), grace, pins: None }
    }

    /// A scheduler for this configuration.
    ///
    /// # Errors
    ///
    /// The kernel has no sched_ext, or refuses.
    pub fn start(&mut self, model: &Model) -> Result<(Scheduler, Start)> {
        if !Path::new("/sys/kernel/sched_ext").exists() {
            bail!("this kernel has no sched_ext; Linux 6.16 or later with CONFIG_SCHED_CLASS_EXT has it");
        }
        let (pins, grace) = (self.pins()?, self.grace);
        let options = capacity(model, topology::possible_count(&self.system)?);
        match pins {
            Some(pins) if !grace.is_zero() => {
                Scheduler::start_or_take_over(&options, model.host.costs, &pins, grace)
            }
            pins => {
                pins.map_or(Ok(()), |pins| pins.clear())?;
                Ok((Scheduler::start(&options)?, Start::Anew { instead: None }))
            }
        }
    }

    fn pins(&mut self) -> Result<Option<Rc<Pins>>> {
        if let Some(known) = &self.pins {
            return Ok(known.clone());
        }
        let (pins, why) = match Pins::open(Path::new(BPF_FS)) {
            Ok(pins) => (Some(Rc::new(pins)), None),
            Err(NoPins::Held(folder)) => bail!("another daemon runs: it has {}", folder.display()),
            Err(NoPins::NotMounted) => {
                (None, Some(format!("{BPF_FS} is not mounted; mount -t bpf bpf {BPF_FS}")))
            }
            Err(NoPins::Failed(error)) => (None, Some(format!("{error:#}"))),
        };
        if let Some(why) = why.filter(|_| !self.grace.is_zero()) {
            say(&format!("promises end with the daemon: {why}"));
        }
        Ok(self.pins.insert(pins).clone())
    }
}

/// How the daemon has come to the scheduler, in a few words.
pub fn told_of(start: &Start) -> String {
    match start {
        Start::Anew { instead: None } => "attached".to_owned(),
        Start::Anew { instead: Some(why) } => {
            format!("attached, in place of one that was left behind and is not taken over: {why}")
        }
        Start::TakenOver(found) => {
            format!("taken over with table {} and {} tenants", found.generation, found.tenants.len())
        }
    }
}
