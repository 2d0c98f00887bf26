//! Durations in Kafka's configurations: ISO 8601 with days, hours, minutes and seconds.

/// Whole milliseconds of a duration like `P1DT2H3M4.5S`; `None` if it is invalid, negative, or out
/// of range. Days have 24 hours; fractions of a millisecond are dropped.
pub(super) fn duration_ms(text: &str) -> Option<i64> {
    let text = text.to_ascii_uppercase();
    let (days, time) = match text.strip_prefix('P')?.split_once('T') {
        Some((_, "")) => return None,
        Some((days, time)) => (days, time),
        None => (text.strip_prefix('P')?, ""),
    };
    if days.is_empty() && time.is_empty() {
        return None;
    }
    let (days, rest) = part(days, 'D')?;
    let (hours, time) = part(time, 'H')?;
    let (minutes, seconds) = part(time, 'M')?;
    if !rest.is_empty() {
        return None;
    }
    let minutes =
        days.checked_mul(24)?.checked_add(hours)?.checked_mul(60)?.checked_add(minutes)?;
    minutes.checked_mul(60_000)?.checked_add(seconds_ms(seconds)?)
}

/// The number before `unit`, or 0, and the rest.
fn part(text: &str, unit: char) -> Option<(i64, &str)> {
    match text.split_once(unit) {
        Some((number, rest)) => Some((digits(number)?, rest)),
        None => Some((0, text)),
    }
}

fn seconds_ms(text: &str) -> Option<i64> {
    if text.is_empty() {
        return Some(0);
    }
    let number = text.strip_suffix('S')?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.len() > 9 || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let mut ms = 0;
    for place in 0..3 {
        let digit = fraction.as_bytes().get(place).map_or(0, |byte| i64::from(byte - b'0'));
        ms = ms * 10 + digit;
    }
    digits(whole)?.checked_mul(1000)?.checked_add(ms)
}

fn digits(text: &str) -> Option<i64> {
    let all_digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if all_digits { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::duration_ms;

    #[test]
    fn durations_are_read_as_java_does() {
        let day = 24 * 60 * 60 * 1000;
        for (text, ms) in [
            ("P1D", day),
            ("PT1H", 3_600_000),
            ("PT1M", 60_000),
            ("PT0S", 0),
            ("pt1.5s", 1500),
            ("PT0.0009S", 0),
            ("P2DT3H4M5.678S", 2 * day + 3 * 3_600_000 + 4 * 60_000 + 5678),
        ] {
            assert_eq!(duration_ms(text), Some(ms), "{text}");
        }
        for text in [
            "",
            "P",
            "PT",
            "P1DT",
            "1D",
            "P-1D",
            "-P1D",
            "PT1",
            "PTS",
            "PT1.S1",
            "P1W",
            "P1H",
            "PT1D",
            "PT1S1M",
            "PT1M1H",
            "P1DX",
            "PT1.0000000000S",
            "P99999999999999999D",
        ] {
            assert_eq!(duration_ms(text), None, "{text}");
        }
    }
}
