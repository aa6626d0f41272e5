//! `[host] branch_records`: each CPU's processor records the branches of programs and counts their misses, for the
//! scheduler, which so sees more threads that wait busily.
//!
//! **Not tried on a processor that records branches**: none was at hand. The simulator shows what the scheduler does
//! with records, and the lab that a kernel takes the scheduler.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rota_model::CpuSet;

use crate::installer::Installer;
use crate::perf::{Event, count_on, is_missing, reason, record_branches};

/// What is recorded of a CPU's programs as long as this is open.
pub(crate) struct Recorder {
    misses: [OwnedFd; 2],
    _branches: OwnedFd,
}

impl Recorder {
    /// Begins to record. The error is why that cannot be, for the operator.
    pub(crate) fn open(cpu: u32) -> Result<Recorder, String> {
        let record = || -> io::Result<Recorder> {
            let misses = [count_on(Event::DATA_MISSES, cpu)?, count_on(Event::TLB_MISSES, cpu)?];
            Ok(Recorder { misses, _branches: record_branches(cpu)? })
        };
        record().map_err(|error| match is_missing(&error) {
            true => "this machine's processor keeps no branch records, as in most VMs".to_owned(),
            false => format!("CPU {cpu}: {}", reason(&error, "misses")),
        })
    }
}

/// What is recorded, and for which scheduler.
#[derive(Default)]
pub struct Branches {
    of: CpuSet,
    recorders: Vec<(u32, Recorder)>,
    lacking: Option<String>,
}

impl Branches {
    /// Records on these CPUs from now on, and on no others. Returns why not, if that is news.
    pub fn follow(&mut self, cpus: CpuSet, scheduler: &impl Installer) -> Option<String> {
        if cpus == self.of {
            return None;
        }
        let before = self.lacking.take();
        self.stop(scheduler);
        self.of = cpus;
        self.lacking = self.start(scheduler).err();
        if self.lacking.is_some() {
            self.stop(scheduler);
        }
        self.lacking.clone().filter(|lacking| before.as_ref() != Some(lacking))
    }

    /// Why the configuration asks for records and there are none.
    pub fn lacking(&self) -> Option<&str> {
        self.lacking.as_deref()
    }

    fn start(&mut self, scheduler: &impl Installer) -> Result<(), String> {
        for cpu in self.of.iter() {
            let recorder = Recorder::open(cpu)?;
            let misses = recorder.misses.each_ref().map(AsFd::as_fd);
            let told = scheduler.read_branches(cpu, Some(misses));
            self.recorders.push((cpu, recorder));
            told.map_err(|error| format!("CPU {cpu}: {error:#}"))?;
        }
        Ok(())
    }

    fn stop(&mut self, scheduler: &impl Installer) {
        for (cpu, recorder) in self.recorders.drain(..) {
            // No entry that is there can be kept.
            let _ = scheduler.read_branches(cpu, None);
            drop(recorder);
        }
    }
}
