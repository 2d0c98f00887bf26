//! From the files that runs leave to what people read.
//!
//! [`html`] draws one page about many runs, [`markdown`] its tables for a README or an issue,
//! [`compare`] puts two sets of runs side by side and says which differences are noise, and
//! [`prometheus`] shows a run that is still going. Everything is drawn from the files alone, and the
//! rules of fairness stand once, in `study`: what may be compared, what counts, and who is ahead.

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
