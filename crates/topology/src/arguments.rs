//! The names of arguments that mean something here. A policy's settings have the same names without
//! `x-`. Others are kept, and mean nothing.

use values::Table;

pub const ALTERNATE_EXCHANGE: &str = "alternate-exchange";
/// How the exchange within a delaying one matches.
pub const DELAYED_TYPE: &str = "x-delayed-type";
/// How many brokers a message may have come by that goes to the downstream of a federation.
pub const MAX_HOPS: &str = "x-max-hops";
/// The cluster and the vhost of that downstream.
pub const DOWNSTREAM_NAME: &str = "x-downstream-name";
pub const DOWNSTREAM_VHOST: &str = "x-downstream-vhost";
pub const QUEUE_TYPE: &str = "x-queue-type";
pub const DEAD_LETTER_EXCHANGE: &str = "x-dead-letter-exchange";
/// What of a queue may be with consumers at a time: anything, one message of each key, or one.
pub const ORDERING: &str = "x-postroad-ordering";

/// Ten years.
pub const EXPIRY_MS_MAX: i64 = 315_360_000_000;

/// `7D`, `12h`: a positive number and one of Y, M, D, h, m, s.
pub fn max_age_ms(text: &str) -> Option<i64> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let seconds = match unit {
        "Y" => 365 * 86_400,
        "M" => 30 * 86_400,
        "D" => 86_400,
        "h" => 3_600,
        "m" => 60,
        "s" => 1,
        _ => return None,
    };
    let number: i64 = number.parse().ok().filter(|number| *number > 0)?;
    // Longer than time lasts is for ever.
    Some(number.saturating_mul(seconds * 1000))
}

/// In the order of names, as bindings are compared.
pub fn sorted(arguments: &Table) -> Table {
    let mut sorted = arguments.clone();
    sorted.0.sort_by(|(a, _), (b, _)| a.as_bytes().cmp(b.as_bytes()));
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_a_number_and_a_unit() {
        assert_eq!(max_age_ms("7D"), Some(7 * 86_400_000));
        assert_eq!(max_age_ms("30s"), Some(30_000));
        for wrong in ["", "D", "0D", "7", "7d", "-7D", "7DD", "7 D"] {
            assert_eq!(max_age_ms(wrong), None, "{wrong}");
        }
    }
}
