//! Share of a topic's records whose steps are traced, and the feature levels of configurations.

use base::Level;

use super::Overrides;

/// Name of the configuration. Programs below [`Level::TRACES`] do not know it, and would refuse it.
pub const TRACE_CONFIG: &str = "trace";

const MILLION: u32 = 1_000_000;
/// Decimals of a percentage: the smallest share is one record per million.
const DECIMALS_MAX: usize = 4;

/// Parses `off`, `on`, or a percentage above 0 and below 100, such as `1%` or `0.5%`, to records
/// per million.
pub(super) fn per_million(text: &str) -> Option<u32> {
    match text {
        "off" => return Some(0),
        "on" => return Some(MILLION),
        _ => {}
    }
    let (whole, decimals) =
        text.strip_suffix('%').map(|it| it.split_once('.').unwrap_or((it, "0")))?;
    let is_number = |digits: &str, most: usize| {
        (1..=most).contains(&digits.len()) && digits.bytes().all(|digit| digit.is_ascii_digit())
    };
    if !is_number(whole, 2) || !is_number(decimals, DECIMALS_MAX) {
        return None;
    }
    let decimals = format!("{decimals:0<DECIMALS_MAX$}");
    let share = whole.parse::<u32>().ok()? * (MILLION / 100) + decimals.parse::<u32>().ok()?;
    (share > 0).then_some(share)
}

/// Names of configurations of topics and nodes that programs below [`Level::RECORD_IDS`] do not know.
const SINCE_RECORD_IDS: [&str; 3] =
    ["dedup.ids.max", "log.dedup.ids.max", "dedup.memory.max.bytes"];

/// The feature level that these values of a topic or a node require.
pub fn level_of(config: &Overrides) -> Level {
    let has = |name: &str| config.contains_key(name);
    if SINCE_RECORD_IDS.iter().any(|name| has(name)) {
        Level::RECORD_IDS
    } else if has(TRACE_CONFIG) {
        Level::TRACES
    } else {
        Level::FIRST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trace_share_is_off_on_or_a_percentage() {
        for (text, share) in [
            ("off", 0),
            ("on", MILLION),
            ("1%", 10_000),
            ("01%", 10_000),
            ("0.5%", 5_000),
            ("0.0001%", 1),
            ("12.25%", 122_500),
            ("99.9999%", 999_999),
        ] {
            assert_eq!(per_million(text), Some(share), "{text}");
        }
        for wrong in [
            "", "true", "On", "0%", "0.0%", "100%", "101%", "1", "0.01", "1.%", ".5%", "%", "-1%",
            "+1%", "1e1%", "0.00001%", "1 %", "1%%", "½%", "1,5%",
        ] {
            assert_eq!(per_million(wrong), None, "{wrong}");
        }
    }
}
