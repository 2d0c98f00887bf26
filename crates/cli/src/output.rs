//! Output of commands: tables for people, JSON for scripts, with the same facts in both.
//!
//! Standard output may be a pipe whose reader has had enough (`| head`). Everything here therefore
//! returns the error instead of panicking, and `main` ends quietly on it.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::time::Duration;

use clap::{Args, ValueEnum};
use operations::time::human_duration;
use serde::Serialize;

use crate::printable;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub enum OutputFormat {
    /// For people.
    #[default]
    #[value(alias = "text")]
    Table,
    /// For scripts: the same fields in every version.
    Json,
}

impl OutputFormat {
    /// Prints `value` as JSON, or as the text that `table` returns.
    pub fn show<T: Serialize + ?Sized>(
        self,
        value: &T,
        table: impl FnOnce(&T) -> String,
    ) -> io::Result<()> {
        let mut text = match self {
            OutputFormat::Table => printable::lines(&table(value)),
            OutputFormat::Json => {
                let mut json = serde_json::to_string_pretty(value)?;
                json.push('\n');
                printable::json_lines(&json)
            }
        };
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        let mut stdout = io::stdout().lock();
        stdout.write_all(text.as_bytes())?;
        stdout.flush()
    }
}

#[derive(Args, Clone, Copy, Debug)]
pub struct OutputOption {
    /// Form of what is printed
    #[arg(short, long, global = true, value_enum, value_name = "FORM", default_value = "table")]
    pub output: OutputFormat,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Align {
    Left,
    Right,
}

/// Rows under headings, with columns as wide as needed.
#[derive(Debug)]
pub struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A heading that begins with `>` aligns its column to the right, for numbers.
    pub fn new(headings: &[&'static str]) -> Self {
        let column = |heading: &&'static str| match heading.strip_prefix('>') {
            Some(heading) => (heading, Align::Right),
            None => (*heading, Align::Left),
        };
        Self { columns: headings.iter().map(column).collect(), rows: Vec::new() }
    }

    /// Adds a row with a cell for each heading. Control sequences of a terminal are escaped.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let row: Vec<String> = cells.into_iter().map(|cell| printable::text(&cell)).collect();
        assert_eq!(row.len(), self.columns.len(), "a row has a cell for each heading");
        self.rows.push(row);
    }

    pub fn render(&self) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].chars().count());
            cells.max().unwrap_or(0).max(self.columns[column].0.len())
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let mut text = String::new();
        let headings: Vec<String> =
            self.columns.iter().map(|(heading, _)| (*heading).to_owned()).collect();
        self.line(&mut text, &headings, &widths);
        for row in &self.rows {
            self.line(&mut text, row, &widths);
        }
        text
    }

    fn line(&self, text: &mut String, cells: &[String], widths: &[usize]) {
        let mut line = String::new();
        for ((cell, width), (_, align)) in cells.iter().zip(widths).zip(&self.columns) {
            if !line.is_empty() {
                line.push_str("  ");
            }
            let _ = match align {
                Align::Left => write!(line, "{cell:<width$}"),
                Align::Right => write!(line, "{cell:>width$}"),
            };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
}

/// `1,234,567`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// `1 record`, `2 records`.
pub fn counted(number: u64, one: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {one}{plural}", count(number))
}

/// `0 B`, `1.5 KiB`, `23 MiB`.
pub fn bytes(number: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if number < 1024 {
        return format!("{number} B");
    }
    let mut value = number as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 {
        value /= 1024.0;
        unit += 1;
    }
    if value < 10.0 {
        format!("{value:.1} {}", UNITS[unit])
    } else {
        format!("{value:.0} {}", UNITS[unit])
    }
}

/// Lag of a consumer, for people: `-` if unknown.
pub(crate) fn behind(lag_seconds: Option<f64>) -> String {
    match lag_seconds {
        None => "-".into(),
        Some(0.0) => "0s".into(),
        Some(seconds) => human_duration(Duration::from_secs_f64(seconds)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_numbers_end_together() {
        let mut table = Table::new(&["TOPIC", ">RECORDS", "NOTE"]);
        table.row(["orders".into(), "1,000".into(), "x".into()]);
        table.row(["a".into(), "7".into(), String::new()]);
        let expected = "TOPIC   RECORDS  NOTE\norders    1,000  x\na             7\n";
        assert_eq!(table.render(), expected);
    }

    #[test]
    fn numbers_are_grouped_and_sizes_have_units() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(counted(1, "record"), "1 record");
        assert_eq!(counted(1000, "record"), "1,000 records");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(23 << 20), "23 MiB");
        assert_eq!(bytes(u64::MAX), "16 EiB");
    }
}
