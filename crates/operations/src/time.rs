//! Times and durations in human notation: `15m ago`, `2026-03-01T12:00`, `1m 30s`.
//!
//! Times without a zone are UTC in input and output, so that one person can type a time that another one printed.

use std::time::Duration;

use jiff::{SignedDuration, Span, SpanRelativeTo, Timestamp, civil::DateTime, tz::TimeZone};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a time: write 2026-03-01T12:00:00Z, 2026-03-01, '15m ago' or @1772366400 \
     (seconds since 1970)"
)]
pub struct NotATime(pub String);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a duration: write 15m, 1h 30m or 2d")]
pub struct NotADuration(pub String);

pub fn now_ms() -> i64 {
    Timestamp::now().as_millisecond()
}

/// A time in ms since 1970: a date, a date and time, `15m ago`, `now`, `@SECONDS` (or `@MS`, when
/// there are more digits than seconds have).
pub fn parse_time(text: &str, now_ms: i64) -> Result<i64, NotATime> {
    let wrong = || NotATime(text.to_owned());
    let text = text.trim();
    if text == "now" {
        return Ok(now_ms);
    }
    if let Some(ago) = text.strip_suffix("ago") {
        let ago = parse_duration(ago).map_err(|_| wrong())?;
        return Ok(now_ms - ago.as_millis() as i64);
    }
    if let Some(unix) = text.strip_prefix('@') {
        let number: i64 = unix.parse().map_err(|_| wrong())?;
        return if unix.len() > 11 {
            Ok(number)
        } else {
            number.checked_mul(1000).ok_or_else(wrong)
        };
    }
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(time.as_millisecond());
    }
    let civil: DateTime = text.parse().map_err(|_| wrong())?;
    let time = civil.to_zoned(TimeZone::UTC).map_err(|_| wrong())?;
    Ok(time.timestamp().as_millisecond())
}

/// `15m`, `1h 30m`, `2 days`, `500ms`. A day has 24 hours.
pub fn parse_duration(text: &str) -> Result<Duration, NotADuration> {
    let wrong = || NotADuration(text.to_owned());
    let span: Span = text.trim().parse().map_err(|_| wrong())?;
    let days = SpanRelativeTo::days_are_24_hours();
    let duration: SignedDuration = span.to_duration(days).map_err(|_| wrong())?;
    Duration::try_from(duration).map_err(|_| wrong())
}

/// RFC 3339 in UTC with milliseconds; `-` for the timestamp -1, which stands for none.
pub fn human_time(ms: i64) -> String {
    match Timestamp::from_millisecond(ms) {
        Ok(time) if ms >= 0 => format!("{time:.3}"),
        _ => "-".into(),
    }
}

/// At most two units: `320ms`, `4.2s`, `3m 12s`, `5h 3m`, `2d 4h`.
pub fn human_duration(duration: Duration) -> String {
    let ms = duration.as_millis();
    if ms < 1000 {
        return format!("{ms}ms");
    }
    if ms < 60_000 {
        return match ms / 100 {
            tenths if tenths % 10 == 0 => format!("{}s", tenths / 10),
            tenths => format!("{}.{}s", tenths / 10, tenths % 10),
        };
    }
    let seconds = duration.as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    let two = |large: u64, large_unit: &str, small: u64, small_unit: &str| match small {
        0 => format!("{large}{large_unit}"),
        _ => format!("{large}{large_unit} {small}{small_unit}"),
    };
    match (days, hours) {
        (0, 0) => two(minutes, "m", seconds % 60, "s"),
        (0, _) => two(hours, "h", minutes, "m"),
        _ => two(days, "d", hours, "h"),
    }
}

/// A duration in ms that may be unbounded: -1, or longer than anything people plan for.
pub fn human_ms(ms: i64) -> String {
    const FOR_EVER_MS: i64 = 1000 * 365 * 86_400_000;
    match u64::try_from(ms) {
        Ok(ms) if (ms as i64) < FOR_EVER_MS => human_duration(Duration::from_millis(ms)),
        _ => "for ever".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: i64 = 1_772_366_400_000;

    #[test]
    fn times_are_read_as_people_write_them() {
        let read = |text: &str| parse_time(text, NOON).ok();
        assert_eq!(read("2026-03-01T12:00:00Z"), Some(NOON));
        assert_eq!(read("2026-03-01T13:00:00+01:00"), Some(NOON));
        assert_eq!(read("2026-03-01 12:00"), Some(NOON));
        assert_eq!(read("2026-03-01T12:00:00.250Z"), Some(NOON + 250));
        assert_eq!(read("2026-03-01"), Some(NOON - 12 * 3_600_000));
        assert_eq!(read("@1772366400"), Some(NOON));
        assert_eq!(read("@1772366400000"), Some(NOON));
        assert_eq!(read("now"), Some(NOON));
        assert_eq!(read("15m ago"), Some(NOON - 15 * 60_000));
        assert_eq!(read("1h 30m ago"), Some(NOON - 90 * 60_000));
        assert_eq!(read("2 days ago"), Some(NOON - 2 * 86_400_000));
        for wrong in ["", "yesterday", "ago", "15 parsecs ago", "@x", "2026-13-01"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn durations_are_read_with_their_units() {
        let read = |text: &str| parse_duration(text).ok();
        assert_eq!(read("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(read("1h30m"), Some(Duration::from_secs(5400)));
        assert_eq!(read("2d"), Some(Duration::from_secs(172_800)));
        for wrong in ["", "5", "-5s", "soon"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn durations_are_written_in_at_most_two_units() {
        let written = |ms| human_duration(Duration::from_millis(ms));
        assert_eq!(written(0), "0ms");
        assert_eq!(written(999), "999ms");
        assert_eq!(written(1000), "1s");
        assert_eq!(written(4250), "4.2s");
        assert_eq!(written(60_000), "1m");
        assert_eq!(written(192_000), "3m 12s");
        assert_eq!(written(18_180_000), "5h 3m");
        assert_eq!(written(187_200_000), "2d 4h");
        assert_eq!(human_ms(-1), "for ever");
        assert_eq!(human_ms(604_800_000), "7d");
        assert_eq!(human_ms(i64::MAX), "for ever");
    }

    #[test]
    fn times_are_written_in_utc_with_milliseconds() {
        assert_eq!(human_time(NOON + 7), "2026-03-01T12:00:00.007Z");
        assert_eq!(human_time(-1), "-");
    }
}
