//! A scenario's results for people: as text for a terminal, and as one HTML file that needs nothing beside it: no
//! script, no style sheet, no network.

mod chart;
mod curve;
mod finding;
mod format;
mod measure;
mod page;
#[cfg(test)]
mod tests;
mod text;

pub use page::render;
pub use text::text;
