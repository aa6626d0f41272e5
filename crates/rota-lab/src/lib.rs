//! Boots real kernels in QEMU and runs real programs in them.
//!
//! Three steps: [`Kernel::fetch`] finds a kernel with sched_ext, [`Image`] gathers what the guest needs into an
//! initramfs, and [`Vm::run`] boots it, runs the image's command and brings `/results` and the exit status back. Most
//! guests do not boot but go on from a snapshot that the first one on an equal machine has left.
//!
//! The library prints nothing; whoever calls it hears of long work through a callback.

mod accel;
mod console;
pub mod experiment;
pub mod folder;
pub mod guest;
pub mod image;
pub mod kernel;
mod machine;
mod module;
mod qmp;
mod resync;
pub mod scenario;
mod seats;
mod snapshot;
mod strip;
pub mod vm;

pub use accel::Accel;
pub use experiment::Experiment;
pub use image::Image;
pub use kernel::Kernel;
pub use scenario::result::Clock;
pub use seats::{Seats, tell_wait};
pub use vm::{Outcome, Vm};
