//! Names of the arguments that have a meaning here. A policy's settings have the same names without `x-`. Other
//! arguments are stored and ignored.

use values::Table;

pub const ALTERNATE_EXCHANGE: &str = "alternate-exchange";
/// Type by which a delaying exchange matches bindings.
pub const DELAYED_TYPE: &str = "x-delayed-type";
/// Most brokers that a message on its way to a federation's downstream may have passed.
pub const MAX_HOPS: &str = "x-max-hops";
/// The downstream's cluster and vhost.
pub const DOWNSTREAM_NAME: &str = "x-downstream-name";
pub const DOWNSTREAM_VHOST: &str = "x-downstream-vhost";
pub const QUEUE_TYPE: &str = "x-queue-type";
pub const DEAD_LETTER_EXCHANGE: &str = "x-dead-letter-exchange";
/// Ordering of deliveries of a queue: none, one message of each key in flight, or one message in flight.
pub const ORDERING: &str = "x-postroad-ordering";

/// Ten years.
pub const EXPIRY_MS_MAX: i64 = 315_360_000_000;

/// Parses `7D`, `12h`: a positive number and one of Y, M, D, h, m, s.
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
    // An age out of range means for ever.
    Some(number.saturating_mul(seconds * 1000))
}

/// Sorts by name, as bindings are compared.
pub fn sorted(arguments: &Table) -> Table {
    let mut sorted = arguments.clone();
    sorted.0.sort_by(|(a, _), (b, _)| a.as_bytes().cmp(b.as_bytes()));
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn max_age_is_a_positive_number_and_a_unit() {
        assert_eq!(max_age_ms("7D"), Some(7 * 86_400_000));
        assert_eq!(max_age_ms("30s"), Some(30_000));
        for wrong in ["", "D", "0D", "7", "7d", "-7D", "7DD", "7 D"] {
            assert_eq!(max_age_ms(wrong), None, "{wrong}");
        }
    }
}
