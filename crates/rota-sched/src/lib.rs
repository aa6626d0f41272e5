//! The scheduler: its BPF source (`src/bpf`), and the loader that talks to its maps.
//!
//! **Invariant:** nothing here decides who may run when; that is the table's matter. A table reaches the kernel only as
//! [`rota_table::Certified`].

mod account;
mod domains;
mod kernel;
mod lag;
mod object;
mod pins;
mod placement;
mod profile;
mod queues;
mod scheduler;
mod shared;
mod threads;

pub use account::{Cause, CpuAccount, QueueAccount};
pub use kernel::{Kernel, Memory};
pub use object::{Loaded, memory::Shared};
pub use pins::{BPF_FS, NoPins, Pins};
pub use placement::cpu_view;
pub use profile::{Profile, Spent};
pub use scheduler::{
    Found, FoundTenant, Installed, LetGo, MissEvents, Options, Published, SYSTEM, Scheduler, Start,
    TenantKind, TenantSpec,
};
pub use shared::{CpuView, NEVER, NR_BUFFERS, NR_MISSES, RING, Settings};
pub use threads::{Thread, Threads};
