//! A scenario's results as one HTML file that needs nothing beside it: no script, no style sheet, no network.

mod chart;
mod curve;
mod finding;
mod format;
mod page;
#[cfg(test)]
mod tests;

pub use page::render;
