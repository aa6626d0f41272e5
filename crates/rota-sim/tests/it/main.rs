//! What programs, devices and guests do under a plain policy.

mod caches;
mod guest;
mod round_robin;
mod server;
mod sync;
mod threads;
