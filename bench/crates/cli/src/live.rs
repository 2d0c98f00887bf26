//! Live view of a running test: a few lines redrawn each second on a terminal, a line at intervals
//! elsewhere, and nothing with `--quiet`.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use load::{Counts, Interval, Observer};
use results::{Mark, Second};

/// Seconds between two lines without a terminal.
const LINE_EVERY: i64 = 10;
const BAR: usize = 30;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Style {
    Drawn,
    Lines,
    Quiet,
}

impl Style {
    pub(crate) fn choose(quiet: bool) -> Self {
        match (quiet, std::io::stderr().is_terminal()) {
            (true, _) => Self::Quiet,
            (false, true) => Self::Drawn,
            (false, false) => Self::Lines,
        }
    }
}

/// Live view of one load.
#[derive(Debug)]
pub(crate) struct Live {
    style: Style,
    title: String,
    drawn: usize,
    rates: Vec<u64>,
}

impl Live {
    pub(crate) fn new(style: Style, title: String) -> Self {
        Self { style, title, drawn: 0, rates: Vec::new() }
    }

    fn draw(&mut self, lines: &[String]) {
        let mut out = String::new();
        if self.drawn > 0 {
            out += &format!("\x1b[{}A", self.drawn);
        }
        for line in lines {
            out += &format!("\x1b[2K{line}\n");
        }
        self.drawn = lines.len();
        let _ = std::io::stderr().write_all(out.as_bytes());
    }
}

impl Observer for Live {
    fn second(&mut self, second: &Second, phase: &str, elapsed: Duration, of: Duration) {
        self.rates.push(second.received);
        match self.style {
            Style::Quiet => {}
            Style::Lines if (second.at + 1) % LINE_EVERY == 0 => {
                eprintln!("  {:>4} s  {phase:<8}  {}", second.at + 1, figures(second));
            }
            Style::Lines => {}
            Style::Drawn => {
                let left = of.saturating_sub(elapsed).as_secs();
                let lines = [
                    format!("{}  {phase}", self.title),
                    format!("  {}  {left} s left", bar(elapsed, of)),
                    format!("  {}", figures(second)),
                    format!("  received/s {}", sparkline(&self.rates)),
                ];
                self.draw(&lines);
            }
        }
    }

    fn mark(&mut self, mark: &Mark) {
        if self.style == Style::Lines && mark.what != "senders stop" {
            eprintln!("  {:>4.0} s  {}", mark.at, mark.what);
        }
    }
}

/// Passes the progress of one load to two observers.
pub(crate) struct Both<A, B>(pub(crate) A, pub(crate) B);

impl<A: Observer, B: Observer> Observer for Both<A, B> {
    fn second(&mut self, second: &Second, phase: &str, elapsed: Duration, of: Duration) {
        self.0.second(second, phase, elapsed, of);
        self.1.second(second, phase, elapsed, of);
    }

    fn interval(&mut self, interval: &Interval, counts: Counts) {
        self.0.interval(interval, counts);
        self.1.interval(interval, counts);
    }

    fn mark(&mut self, mark: &Mark) {
        self.0.mark(mark);
        self.1.mark(mark);
    }

    fn ended(&mut self, senders: u64, receivers: u64) {
        self.0.ended(senders, receivers);
        self.1.ended(senders, receivers);
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        if self.drawn > 0 {
            // The line of the result replaces it.
            let _ = write!(std::io::stderr(), "\x1b[{}A\x1b[J", self.drawn);
        }
    }
}

fn figures(second: &Second) -> String {
    let ms = |micros: u64| micros as f64 / 1e3;
    let errors =
        if second.errors > 0 { format!("  {} ERRORS", second.errors) } else { String::new() };
    format!(
        "sent {:>8}/s  received {:>8}/s  send p99 {:>8.2} ms  receive p99 {:>8.2} ms  backlog {}{errors}",
        second.confirmed,
        second.received,
        ms(second.send_p99),
        ms(second.receive_p99),
        second.backlog,
    )
}

fn bar(elapsed: Duration, of: Duration) -> String {
    let share = (elapsed.as_secs_f64() / of.as_secs_f64().max(1e-9)).clamp(0.0, 1.0);
    let full = (share * BAR as f64).round() as usize;
    format!("[{}{}] {:>3.0} %", "#".repeat(full), ".".repeat(BAR - full), share * 100.0)
}

/// The last minute, as bars with eight heights.
fn sparkline(rates: &[u64]) -> String {
    const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let last = &rates[rates.len().saturating_sub(60)..];
    let most = last.iter().copied().max().unwrap_or(0).max(1);
    last.iter().map(|rate| HEIGHTS[(rate * 7 / most) as usize]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sparkline_shows_the_last_minute() {
        assert_eq!(sparkline(&[0, 50, 100]), "▁▄█");
        assert_eq!(sparkline(&[7; 100]).chars().count(), 60);
        assert_eq!(sparkline(&[]), "");
    }

    #[test]
    fn bar_fills_with_elapsed_time() {
        assert!(bar(Duration::ZERO, Duration::from_secs(10)).contains("[......"));
        assert!(bar(Duration::from_secs(20), Duration::from_secs(10)).contains("100 %"));
    }
}
