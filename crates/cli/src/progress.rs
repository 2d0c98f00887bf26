//! The line on standard error with the progress of long work, shown on a terminal.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use operations::time::human_duration;
use world::Instant;

use crate::output::{bytes, count};

pub(crate) const EVERY: Duration = Duration::from_millis(250);
/// Work that is done before this needs no line.
const QUIET_FOR: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(crate) struct Progress {
    shown: bool,
    enabled: bool,
    began: Instant,
}

impl Progress {
    /// Shows nothing unless standard error is a terminal. `busy_terminal`: records go to the terminal too, where a line
    /// would disturb.
    pub(crate) fn new(busy_terminal: bool) -> Self {
        let enabled = io::stderr().is_terminal() && !busy_terminal;
        Self { shown: false, enabled, began: Instant::now() }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// `share`: completed part of the work, if known.
    pub(crate) fn show(&mut self, records: u64, size: u64, share: Option<f64>) {
        let elapsed = self.elapsed();
        if !self.enabled || elapsed < QUIET_FOR {
            return;
        }
        self.shown = true;
        let line = line(records, size, share, elapsed);
        // A failure to show the line must not stop the work.
        let _ = write!(io::stderr(), "\r{line}\x1b[K");
    }

    /// Removes the line: the output has the result.
    pub(crate) fn clear(&mut self) {
        if self.shown {
            let _ = write!(io::stderr(), "\r\x1b[K");
            self.shown = false;
        }
    }

    /// Removes the line and, on a terminal, prints a summary.
    pub(crate) fn finish(&mut self, verb: &str, records: u64, size: u64) {
        if !self.enabled {
            return;
        }
        let line = line(records, size, None, self.elapsed());
        let clear = if self.shown { "\r\x1b[K" } else { "" };
        let _ = writeln!(io::stderr(), "{clear}{verb} {line}");
    }
}

fn line(records: u64, size: u64, share: Option<f64>, elapsed: Duration) -> String {
    let seconds = elapsed.as_secs_f64().max(0.001);
    let mut line =
        format!("{} records, {} in {}", count(records), bytes(size), human_duration(elapsed),);
    if elapsed >= QUIET_FOR {
        let (rate, flow) = (records as f64 / seconds, size as f64 / seconds);
        line += &format!(" ({} records/s, {}/s)", count(rate as u64), bytes(flow as u64));
    }
    if let Some(share) = share {
        line += &format!(", {:.0}%", share * 100.0);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_line_has_count_size_and_rate() {
        let line = line(1_500_000, 3 << 20, Some(0.5), Duration::from_secs(3));
        assert_eq!(line, "1,500,000 records, 3.0 MiB in 3s (500,000 records/s, 1.0 MiB/s), 50%");
    }
}
