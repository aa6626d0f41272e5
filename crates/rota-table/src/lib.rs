//! The timetable as bytes: its layout, its encoder, its reader and its certifier.
//!
//! `include/rota_table.h` defines the format; [`layout`] mirrors it. [`encode`] writes a table from plain data,
//! [`TableView`] reads one as the dispatcher does, and [`certify`] is the gate that every table passes before it is
//! installed.
//!
//! **Invariants:** no I/O and no clock: same input, same bytes. The crate knows no planner, and the certifier shares
//! no code with the encoder: it sees bytes and promises only.

mod certify;
mod encode;
pub mod layout;
mod own;
mod timetable;
mod view;

pub use certify::{Certified, Promise, VcpuName, Violation, certify};
pub use encode::{CpuSource, EncodeError, SlotSource, TableSource, VcpuSource, encode};
pub use own::OwnSlots;
pub use timetable::{HostClock, NO_TIMETABLE, TextError, Timetable, VSOCK_PORT};
pub use view::{CpuView, FormatError, Owner, TableView};
