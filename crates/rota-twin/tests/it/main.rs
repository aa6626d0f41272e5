//! The scheduler's own source on the model of the kernel: what tenants get of it, host by host.

mod account;
mod away;
mod background;
mod exclusive;
mod found;
mod guest;
mod handover;
mod host;
mod idle;
mod interference;
mod nested;
mod outlive;
mod profile;
mod races;
mod rota;
#[path = "../../../rota-sim/tests/it/round_robin.rs"]
mod round_robin;
mod sample;
mod second;
mod spin;
mod starve;
mod total;
mod windows;
