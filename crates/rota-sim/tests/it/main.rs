//! What programs, devices and guests do under a plain policy.

mod caches;
mod freezer;
mod guest;
mod help;
mod round_robin;
mod server;
mod sync;
mod threads;
