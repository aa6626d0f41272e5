//! What must not be, and was.

use std::fmt;

use rota_model::TenantId;
use rota_sim::observe::{Broken, Insane};
use rota_sim::{CpuId, TaskId};

/// Something that must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// What no scheduler may do.
    Insane(Insane),
    /// A promise, seen from outside.
    Broken(Broken),
    /// In its slot an owner waits, and the CPU does something else.
    Unserved {
        /// Where.
        cpu: CpuId,
        /// Whose slot.
        tenant: TenantId,
        /// Which of its vCPUs.
        vcpu: u32,
        /// For how long.
        ns: u64,
    },
    /// A vCPU has had too little of its budget in a window in which it waited.
    Short {
        /// Where.
        cpu: CpuId,
        /// Whose.
        tenant: TenantId,
        /// Which of its vCPUs.
        vcpu: u32,
        /// How much is missing.
        ns: u64,
    },
    /// A capped tenant runs outside of its slots.
    Overdrawn {
        /// Where.
        cpu: CpuId,
        /// Who.
        tenant: TenantId,
        /// For how long.
        ns: u64,
    },
    /// A thread that may run everywhere runs where the system, or another tenant, has the CPU to itself.
    Intrudes {
        /// Where.
        cpu: CpuId,
        /// Who.
        tenant: TenantId,
        /// For how long.
        ns: u64,
    },
    /// More threads of a reserved tenant run at once than it has vCPUs.
    Crowded {
        /// Where the last one began.
        cpu: CpuId,
        /// Who.
        tenant: TenantId,
        /// How many run.
        running: u32,
    },
    /// A CPU idles, and a thread waits that may run there.
    Idle {
        /// Where.
        cpu: CpuId,
        /// Who waits.
        tenant: TenantId,
        /// For how long.
        ns: u64,
    },
    /// A vCPU waits for the time that a CPU's slots leave, and others have had it for long.
    Unfair {
        /// Where.
        cpu: CpuId,
        /// Who waits.
        tenant: TenantId,
        /// Who has it.
        to: TenantId,
        /// How long others have had it.
        ns: u64,
    },
    /// A tenant with a weight waits, and another one has had much more by weight.
    Outweighed {
        /// Who waits.
        tenant: TenantId,
        /// Who has had more.
        to: TenantId,
        /// For how long.
        ns: u64,
    },
    /// A thread waits for longer than the floor allows.
    Starved {
        /// Which.
        task: TaskId,
        /// Whose.
        tenant: TenantId,
        /// For how long.
        ns: u64,
    },
    /// A thread would run and is in no queue.
    Lost(TaskId),
    /// CPUs saw two tables in one round, so many times.
    Mixed(u64),
    /// By the scheduler's own account a promise was missed, and not for a reason that was there.
    Missed {
        /// To whom.
        tenant: TenantId,
        /// How often, in all.
        times: u64,
        /// What the account says of the reason.
        cause: String,
    },
    /// The scheduler has given up.
    Exited(String),
    /// The daemon did not come to rest.
    Unsettled(String),
    /// A check within the simulator or the scheduler's loader failed.
    Panicked(String),
    /// Events without end at one time.
    Endless,
}

/// A fault, and when it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// In ns of the simulation's time.
    pub at_ns: u64,
    /// What.
    pub fault: Fault,
}

fn us(ns: u64) -> String {
    format!("{}.{:03} us", ns / 1000, ns % 1000)
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Insane(insane) => write!(f, "{insane:?}"),
            Fault::Broken(broken) => write!(f, "a promise is broken: {broken:?}"),
            Fault::Unserved { cpu, tenant, vcpu, ns } => write!(
                f,
                "tenant {tenant} waits in the slot of its vCPU {vcpu}, and CPU {} does something else for {}",
                cpu.0,
                us(*ns)
            ),
            Fault::Short { cpu, tenant, vcpu, ns } => write!(
                f,
                "tenant {tenant} has waited in a window of its vCPU {vcpu} on CPU {}, and has had {} too little of it",
                cpu.0,
                us(*ns)
            ),
            Fault::Overdrawn { cpu, tenant, ns } => {
                write!(
                    f,
                    "tenant {tenant}, capped, runs outside of its slots on CPU {} for {}",
                    cpu.0,
                    us(*ns)
                )
            }
            Fault::Intrudes { cpu, tenant, ns } => {
                write!(f, "tenant {tenant} runs on CPU {}, which is not for it, for {}", cpu.0, us(*ns))
            }
            Fault::Crowded { cpu, tenant, running } => {
                write!(f, "{running} threads of tenant {tenant} run at once, the last one on CPU {}", cpu.0)
            }
            Fault::Idle { cpu, tenant, ns } => {
                write!(f, "CPU {} idles for {} while tenant {tenant} waits", cpu.0, us(*ns))
            }
            Fault::Unfair { cpu, tenant, to, ns } => write!(
                f,
                "what slots leave on CPU {} others have had for {}, now tenant {to}, while tenant {tenant} waits",
                cpu.0,
                us(*ns)
            ),
            Fault::Outweighed { tenant, to, ns } => {
                write!(
                    f,
                    "tenant {tenant} waits for {}, and tenant {to} has had much more by weight",
                    us(*ns)
                )
            }
            Fault::Starved { task, tenant, ns } => {
                write!(f, "thread {} of tenant {tenant} waits for {}", task.0, us(*ns))
            }
            Fault::Lost(task) => write!(f, "thread {} would run and is in no queue", task.0),
            Fault::Mixed(times) => write!(f, "CPUs saw two tables in one round, {times} times"),
            Fault::Missed { tenant, times, cause } => write!(
                f,
                "the scheduler's own account has {times} missed promises to tenant {tenant}, by cause: {cause}"
            ),
            Fault::Exited(reason) => write!(f, "the scheduler has given up: {reason}"),
            Fault::Unsettled(said) => write!(f, "the daemon does not come to rest: {said}"),
            Fault::Panicked(message) => write!(f, "a check failed: {message}"),
            Fault::Endless => f.write_str("events without end at one time"),
        }
    }
}
