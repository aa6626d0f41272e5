//! A scenario's results for people: as text for a terminal, and as one HTML file that needs nothing beside it: no
//! script, no style sheet, no network.

pub mod chart;
mod curve;
mod finding;
pub mod format;
mod measure;
mod page;
pub mod profile;
mod run;
mod series;
mod spending;
#[cfg(test)]
mod tests;
mod text;

pub use page::{document, render};
pub use run::{Caches, Comparison, Contestant, Inside, Lag, Report, Run, Tenant};
pub use text::{compared, text, verdict};
