//! Formats milliseconds since 1970 as a date, in UTC.

/// `2026-11-22 03:14 UTC`.
pub(crate) fn date_time(millis: u64) -> String {
    let minutes = millis / 60_000;
    format!("{} {:02}:{:02} UTC", date(millis), minutes / 60 % 24, minutes % 60)
}

/// `2026-11-22`.
pub(crate) fn date(millis: u64) -> String {
    let mut days = millis / 86_400_000;
    let mut year = 1970;
    // Bounds the loop if a clock is broken.
    while year < 9999 {
        let length = if is_leap(year) { 366 } else { 365 };
        if days < length {
            break;
        }
        days -= length;
        year += 1;
    }
    let february = if is_leap(year) { 29 } else { 28 };
    let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 1;
    for length in lengths {
        if days < length || month == 12 {
            break;
        }
        days -= length;
        month += 1;
    }
    format!("{year:04}-{month:02}-{:02}", days + 1)
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_match_the_calendar() {
        assert_eq!(date_time(0), "1970-01-01 00:00 UTC");
        assert_eq!(date_time(951_827_696_000), "2000-02-29 12:34 UTC");
        assert_eq!(date(1_798_761_599_999), "2026-12-31");
        assert!(date(u64::MAX).starts_with("9999-12-"));
    }
}
