//! Reports from the result files of runs.
//!
//! [`html`] draws one page about many runs, and [`markdown`] its tables for a README or an issue.
//! [`compare`] compares two sets of runs and separates differences from noise. [`prometheus`] shows
//! a run in progress. Reports are drawn from the files alone. The rules of fairness are in `study`:
//! comparability, validity of runs, and ranking.

mod calendar;
mod chart;
mod compare;
mod family;
mod figures;
mod markdown;
mod markup;
mod page;
pub mod prometheus;
mod quantity;
mod statistics;
mod study;

pub use compare::{Comparison, Key, Line, Outcome, Pair, Side, compare};
pub use markdown::markdown;
pub use page::html;
pub use statistics::Spread;

#[cfg(test)]
#[path = "../examples/sample/invented.rs"]
mod example;
