//! Figures for people: three significant digits, units that fit the size.

/// Placeholder for a missing figure.
pub(crate) const NONE: &str = "–";

/// Format of figures with a unit.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Kind {
    /// With this many microseconds in the unit.
    Duration(f64),
    Bytes,
    /// A fraction of one, written as per cent.
    Share,
    Plain,
}

impl Kind {
    pub(crate) fn of(unit: &str) -> Self {
        match unit {
            "us" | "µs" | "microseconds" => Self::Duration(1.0),
            "ms" | "milliseconds" => Self::Duration(1e3),
            "s" | "seconds" => Self::Duration(1e6),
            "B" | "bytes" => Self::Bytes,
            "share" => Self::Share,
            _ => Self::Plain,
        }
    }
}

/// With its unit: `12,340 messages/s`, `1.23 ms`.
pub(crate) fn full(value: f64, unit: &str) -> String {
    match Kind::of(unit) {
        Kind::Plain if value.is_finite() && !unit.is_empty() => {
            format!("{} {unit}", digits(value))
        }
        _ => cell(value, unit),
    }
}

/// Without a unit that the column's head already names: `12,340`, `1.23 ms`.
pub(crate) fn cell(value: f64, unit: &str) -> String {
    written(value, unit, digits)
}

/// For narrow places: `12.3k`, `1.23 ms`.
pub(crate) fn compact(value: f64, unit: &str) -> String {
    written(value, unit, thousands)
}

/// The unit for a column's head; empty if each cell has its own.
pub(crate) fn head(unit: &str) -> &str {
    if Kind::of(unit) == Kind::Plain { unit } else { "" }
}

fn written(value: f64, unit: &str, plain: fn(f64) -> String) -> String {
    if !value.is_finite() {
        return NONE.to_owned();
    }
    match Kind::of(unit) {
        Kind::Duration(micros) => duration(value * micros),
        Kind::Bytes => bytes(value),
        Kind::Share => format!("{} %", digits(value * 100.0)),
        Kind::Plain => plain(value),
    }
}

/// Formats microseconds in a suitable unit.
pub(crate) fn duration(micros: f64) -> String {
    let (value, unit) = match micros.abs() {
        size if size >= 60e6 => return minutes(micros),
        size if size >= 999_500.0 => (micros / 1e6, "s"),
        size if size >= 999.5 => (micros / 1e3, "ms"),
        _ => (micros, "µs"),
    };
    let text = if unit == "µs" { digits(value) } else { significant(value) };
    format!("{text} {unit}")
}

fn minutes(micros: f64) -> String {
    let seconds = (micros / 1e6).round();
    let sign = if seconds < 0.0 { "-" } else { "" };
    let (whole, rest) = ((seconds.abs() / 60.0).floor(), seconds.abs() % 60.0);
    if rest == 0.0 { format!("{sign}{whole} min") } else { format!("{sign}{whole} min {rest} s") }
}

pub(crate) fn bytes(value: f64) -> String {
    let steps = [(1024f64.powi(4), "TiB"), (1024f64.powi(3), "GiB"), (1_048_576.0, "MiB")];
    let found = steps.into_iter().find(|(size, _)| value.abs() >= *size * 0.9995);
    let (size, unit) =
        found.unwrap_or(if value.abs() >= 1023.5 { (1024.0, "KiB") } else { (1.0, "B") });
    let text = if size > 1.0 { significant(value / size) } else { digits(value) };
    format!("{text} {unit}")
}

/// Three significant digits, more only for whole thousands: `0.0123`, `1.23`, `12.3`, `12,345`.
/// Integers stay integers: `3`.
pub(crate) fn digits(value: f64) -> String {
    if value.is_finite() && value.fract() == 0.0 { grouped(value) } else { significant(value) }
}

/// Three significant digits including trailing zeros: `3.00`.
fn significant(value: f64) -> String {
    if !value.is_finite() {
        return NONE.to_owned();
    }
    let size = value.abs();
    if size >= 999.5 || size == 0.0 {
        return grouped(value);
    }
    let places = match size {
        size if size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        size if size >= 0.9995 => 2,
        size if size >= 0.0995 => 3,
        size if size >= 0.00995 => 4,
        _ => 5,
    };
    let text = format!("{value:.places$}");
    if text.chars().all(|digit| matches!(digit, '0' | '.' | '-')) { "~0".to_owned() } else { text }
}

fn grouped(value: f64) -> String {
    let whole = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0.0 && whole != "0" { format!("-{text}") } else { text }
}

/// `950`, `12.3k`, `1.23M`.
fn thousands(value: f64) -> String {
    let steps = [(1e9, "G"), (1e6, "M"), (1e3, "k")];
    match steps.into_iter().find(|(size, _)| value.abs() >= *size * 0.9995) {
        Some((size, letter)) => format!("{}{letter}", significant(value / size)),
        None => digits(value),
    }
}

/// A relative change in per cent: `+12.3 %`.
pub(crate) fn change(share: f64) -> String {
    if !share.is_finite() {
        return NONE.to_owned();
    }
    format!("{share:+.1} %", share = share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_significant_digits_and_whole_thousands() {
        let written = [0.0, 0.012_34, 0.5, 1.234, 12.34, 123.4, 1_234.4, 1_234_567.0, -45_000.2];
        let texts: Vec<_> = written.into_iter().map(digits).collect();
        let expected =
            ["0", "0.0123", "0.500", "1.23", "12.3", "123", "1,234", "1,234,567", "-45,000"];
        assert_eq!(texts, expected);
    }

    #[test]
    fn durations_choose_their_unit() {
        let texts: Vec<_> =
            [5.0, 850.0, 1_230.0, 999_600.0, 2.5e6, 60e6, 127e6].map(duration).into();
        assert_eq!(texts, ["5 µs", "850 µs", "1.23 ms", "1.00 s", "2.50 s", "1 min", "2 min 7 s"]);
    }

    #[test]
    fn compact_figures_use_unit_prefixes() {
        let texts: Vec<_> = [950.0, 12_345.0, 1_234_567.0].map(|n| compact(n, "messages/s")).into();
        assert_eq!(texts, ["950", "12.3k", "1.23M"]);
        assert_eq!(compact(1536.0, "bytes"), "1.50 KiB");
    }

    #[test]
    fn non_finite_value_is_shown_as_a_dash() {
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            for unit in ["ms", "bytes", "share", "messages/s", ""] {
                assert_eq!(full(value, unit), NONE);
                assert_eq!(compact(value, unit), NONE);
            }
        }
        assert_eq!(change(f64::NAN), NONE);
    }

    #[test]
    fn tiny_figure_is_not_shown_as_zero() {
        assert_eq!(digits(0.000_000_1), "~0");
    }
}
