//! The suite's tests by name: their order, and the meaning of a number in a name such as
//! `omb/topics-100`. The question of a test is in its result.

/// A number within a test's name.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Number {
    /// `omb/topics-N`.
    pub(crate) family: String,
    /// `topics`.
    pub(crate) label: String,
    pub(crate) value: f64,
}

/// Finds the first part of the last segment that is a number: `topics-1k`, `bp-10-cg5`, `512-mem`.
pub(crate) fn number(test: &str) -> Option<Number> {
    let (front, last) = test.rsplit_once('/').map_or(("", test), |(front, last)| (front, last));
    let mut parts: Vec<&str> = last.split('-').collect();
    let (place, value) =
        parts.iter().enumerate().find_map(|(at, part)| Some((at, parse(part)?)))?;
    parts[place] = "N";
    let slash = if front.is_empty() { "" } else { "/" };
    let family = format!("{front}{slash}{}", parts.join("-"));
    let label = LABELS.iter().find(|(name, _)| family.starts_with(name)).map_or("N", |(_, l)| l);
    Some(Number { family, label: label.to_owned(), value })
}

fn parse(part: &str) -> Option<f64> {
    let (digits, scale) = match part.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1e3),
        None => (part, 1.0),
    };
    let whole =
        !digits.is_empty() && digits.len() < 10 && digits.bytes().all(|b| b.is_ascii_digit());
    whole.then(|| digits.parse::<f64>().ok()).flatten().map(|value| value * scale)
}

const LABELS: [(&str, &str); 11] = [
    ("omb/topics-", "topics"),
    ("omb/subs-", "subscriptions of each topic"),
    ("queen/part-", "lanes"),
    ("queen/bp-", "messages in a push"),
    ("queen/q-", "queues"),
    ("queen/cg-", "consumer groups"),
    ("lowlat/", "payload bytes"),
    ("bmq/prio-", "queues"),
    ("bmq/fanout-", "consumers"),
    ("bmq/bcast-", "consumers"),
    ("zmq/", "payload bytes"),
];

/// Families in display order; others follow, by name.
const FAMILIES: [&str; 8] =
    ["mqperf/", "omb/", "queen/", "lowlat/", "bmq/", "zmq/", "verify/", "failover/"];

pub(crate) fn order(chapter: &str) -> (usize, String) {
    let place = FAMILIES.iter().position(|family| chapter.starts_with(family));
    (place.unwrap_or(FAMILIES.len()), chapter.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_in_a_test_name_is_found() {
        let found = number("omb/topics-1k").expect("a number");
        assert_eq!((found.family.as_str(), found.value), ("omb/topics-N", 1000.0));
        assert_eq!(found.label, "topics");
        assert_eq!(number("lowlat/512-mem").expect("one").family, "lowlat/N-mem");
        assert_eq!(number("queen/bp-10-cg5").expect("one").family, "queen/bp-N-cg5");
        for none in ["omb/max-rate", "verify/order", "-", "a/k", "99999999999999999999"] {
            assert!(number(none).is_none(), "{none}");
        }
    }

    #[test]
    fn known_families_come_in_order_and_others_last() {
        let mut chapters = ["own/b", "verify/order", "omb/max-rate", "mqperf/mid", "mqperf/base"];
        chapters.sort_by_key(|chapter| order(chapter));
        let expected = ["mqperf/base", "mqperf/mid", "omb/max-rate", "verify/order", "own/b"];
        assert_eq!(chapters, expected);
    }
}
