//! Renders a comparison for a terminal and for an issue.

use results::Better;

use super::{Comparison, Key, Line, Outcome, Pair, Side};
use crate::markdown::cell;
use crate::quantity;
use crate::statistics::Spread;

const HEADS: [&str; 6] = ["measure", "before", "after", "change", "noise below", "so it is"];

impl Outcome {
    /// The printed form.
    pub fn word(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Worse => "WORSE",
            Self::Changed => "changed",
            Self::Noise => "noise",
            Self::Unproven => "unproven (single runs)",
        }
    }
}

impl Comparison {
    /// Renders aligned columns for a terminal. It has no colours, since it is also read in logs.
    pub fn terminal(&self) -> String {
        let mut text = String::new();
        for pair in &self.pairs {
            text += &format!("{}\n  {}\n", plain(&title(&pair.key)), sides(pair));
            for difference in &pair.differences {
                text += &format!("  differs: {}\n", plain(difference));
            }
            let rows: Vec<[String; 6]> = pair.lines.iter().map(columns).collect();
            let width = |place: usize| {
                let cells = rows.iter().map(|row| row[place].chars().count());
                cells.chain([HEADS[place].len()]).max().unwrap_or(0)
            };
            let widths: Vec<usize> = (0..HEADS.len()).map(width).collect();
            text += &aligned(&HEADS.map(str::to_owned), &widths);
            rows.iter().for_each(|row| text += &aligned(row, &widths));
            text.push('\n');
        }
        text + &plain_lines(&self.alone()) + &self.summary()
    }

    /// Renders Markdown for an issue or a README.
    pub fn markdown(&self) -> String {
        let mut text = String::new();
        for pair in &self.pairs {
            text += &format!("#### {}\n\n{}\n\n", cell(&title(&pair.key)), cell(&sides(pair)));
            for difference in &pair.differences {
                text += &format!("* differs: {}\n", cell(difference));
            }
            text += &format!("\n| {} |\n|---|--:|--:|--:|--:|---|\n", HEADS.join(" | "));
            for line in &pair.lines {
                text += &format!("| {} |\n", columns(line).map(|column| cell(&column)).join(" | "));
            }
            text.push('\n');
        }
        for line in self.alone() {
            text += &format!("* {}\n", cell(&line));
        }
        text + "\n" + &self.summary()
    }

    fn alone(&self) -> Vec<String> {
        let sides = [(&self.only_before, "only before"), (&self.only_after, "only after")];
        let named = |(keys, side): (&Vec<Key>, &str)| {
            keys.iter().map(|key| format!("{side}: {}", title(key))).collect::<Vec<_>>()
        };
        sides.into_iter().flat_map(named).collect()
    }

    fn summary(&self) -> String {
        if self.pairs.is_empty() {
            return "There is no run of the same test, system, tier and parameters on both sides.\n".to_owned();
        }
        let outcomes =
            [Outcome::Better, Outcome::Worse, Outcome::Changed, Outcome::Noise, Outcome::Unproven];
        let counts = outcomes.map(|outcome| format!("{} {}", self.count(outcome), outcome.word()));
        format!(
            "{} figures: {}. Noise is a difference below two standard deviations, or 2 %.\n",
            self.lines(),
            counts.join(", ")
        )
    }

    fn lines(&self) -> usize {
        self.pairs.iter().map(|pair| pair.lines.len()).sum()
    }
}

/// Removes control characters, since a file must not control the terminal.
fn plain(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

fn plain_lines(lines: &[String]) -> String {
    lines.iter().map(|line| format!("{}\n", plain(line))).collect()
}

fn title(key: &Key) -> String {
    let parameters = key.parameters.iter().map(|(name, value)| format!("{name} {value}"));
    let parameters = parameters.collect::<Vec<_>>().join(", ");
    let parameters = if parameters.is_empty() { parameters } else { format!(" ({parameters})") };
    format!("{} · {} · {} · {}{parameters}", key.test, key.system, key.tier, key.form)
}

fn sides(pair: &Pair) -> String {
    let side = |side: &Side| {
        let counts = [
            (side.passed, "passed"),
            (side.failed, "FAILED"),
            (side.interrupted, "interrupted"),
            (side.client_bound, "client-bound"),
        ];
        let some = counts.into_iter().filter(|(count, _)| *count > 0);
        some.map(|(count, what)| format!("{count} {what}")).collect::<Vec<_>>().join(", ")
    };
    format!("before: {}; after: {}", side(&pair.before), side(&pair.after))
}

fn columns(line: &Line) -> [String; 6] {
    let arrow = match line.better {
        Better::Higher => " ↑",
        Better::Lower => " ↓",
        Better::Neither => "",
    };
    let unit = quantity::head(&line.unit);
    let unit = if unit.is_empty() { String::new() } else { format!(", {unit}") };
    [
        plain(&format!("{}{unit}{arrow}", line.measure)),
        spread(&line.before, &line.unit),
        spread(&line.after, &line.unit),
        line.change.map_or_else(|| quantity::NONE.to_owned(), quantity::change),
        line.noise.map_or_else(|| "unknown".to_owned(), |noise| quantity::cell(noise, &line.unit)),
        line.outcome.word().to_owned(),
    ]
}

fn spread(spread: &Spread, unit: &str) -> String {
    let deviation = spread
        .deviation
        .map_or_else(String::new, |deviation| format!(" ± {}", quantity::cell(deviation, unit)));
    format!("{}{deviation}", quantity::cell(spread.median, unit))
}

/// Aligns the first and the last column to the left, figures to the right.
fn aligned(row: &[String; 6], widths: &[usize]) -> String {
    let mut text = String::from("  ");
    for (place, (cell, width)) in row.iter().zip(widths).enumerate() {
        let space = " ".repeat(width.saturating_sub(cell.chars().count()));
        let left = place == 0 || place + 1 == row.len();
        text += &if left { format!("{cell}{space}  ") } else { format!("{space}{cell}  ") };
    }
    format!("{}\n", text.trim_end())
}
