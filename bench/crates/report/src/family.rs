//! The suite's tests by name: what each asks, in what order they are shown, and what the number in
//! a name such as `omb/topics-100` is.

/// A number within a test's name.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Number {
    /// `omb/topics-N`.
    pub(crate) family: String,
    /// `topics`.
    pub(crate) label: String,
    pub(crate) value: f64,
}

/// The first part of the last segment that is a number: `topics-1k`, `bp-10-cg5`, `512-mem`.
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

/// As the suite runs them; others after, by name.
pub(crate) fn order(chapter: &str) -> (usize, String) {
    let place = ASKS.iter().position(|(name, _)| chapter.starts_with(name));
    (place.unwrap_or(ASKS.len()), chapter.to_owned())
}

/// What the test asks, in one sentence.
pub(crate) fn asks(test: &str) -> Option<&'static str> {
    ASKS.iter().find(|(name, _)| test.starts_with(name)).map(|(_, question)| *question)
}

/// By the beginning of a name; the longer names stand before those that they begin with.
const ASKS: &[(&str, &str)] = &[
    (
        "mqperf/base",
        "How many small messages does one sender, waiting for each batch to be safe, pass to receivers that settle each?",
    ),
    ("mqperf/mid", "How many do ten senders and four receivers pass, each batch waited for?"),
    (
        "mqperf/peak",
        "How many do a hundred senders and a hundred receivers pass: where is the top?",
    ),
    ("mqperf/bigbatch", "What do batches of up to 100 messages gain?"),
    ("mqperf/hugebatch", "What do batches of up to 1,000 messages gain?"),
    (
        "mqperf/crash",
        "What does a `kill -9` of the broker in the middle of the load cost: messages, time, latency?",
    ),
    ("mqperf/kmq", "What do individual acknowledgements cost on a log?"),
    (
        "mqperf/",
        "The load of mqperf/base and mqperf/mid through another protocol of the same broker.",
    ),
    (
        "omb/max-rate",
        "What is the highest fixed rate of 1 KB messages that is sustained without errors, growing backlog or a slipping schedule?",
    ),
    ("omb/fixed-load", "How does latency rise as the load nears the system's own limit?"),
    ("omb/node-failure", "What happens to rate and latency when a node leaves and comes back?"),
    ("omb/topics-", "How do rate and latency change with the number of topics?"),
    ("omb/subs-", "How do rate and latency change with the number of subscriptions of each topic?"),
    (
        "omb/backlog",
        "How fast is a backlog larger than memory drained, and what does it cost those who send meanwhile?",
    ),
    ("queen/part-", "How do rate and fairness change with the number of ordered lanes?"),
    ("queen/bp-", "What does batching on the sender's side gain?"),
    ("queen/q-", "How does the rate change when it is spread over queues?"),
    ("queen/cg-", "What does each further consumer group cost, and are they served alike?"),
    (
        "queen/pipeline-ordered",
        "How long does a message take through a pipeline of two queues and workers, in order in each lane?",
    ),
    (
        "queen/pipeline-throughput",
        "How much does a pipeline of two queues and workers carry in large batches?",
    ),
    ("queen/soak", "Does the time that messages dwell stay flat over a long run?"),
    ("queen/vs-", "The same load, driven by the other system's own load generator."),
    (
        "lowlat/",
        "How long is one message under way, from its sender to its receiver, at a low fixed rate?",
    ),
    (
        "bmq/prio-",
        "How long are messages under way when each queue has one producer and one consumer, at a fixed rate?",
    ),
    (
        "bmq/fanout-",
        "How long are messages under way when every message goes to each of several groups?",
    ),
    ("bmq/bcast-", "How long are messages under way to several consumers when nothing is stored?"),
    ("zmq/", "How fast are messages handed on when no one keeps them?"),
    (
        "verify/lossless",
        "Is every confirmed message still there after the broker was killed again and again?",
    ),
    (
        "verify/powerfail",
        "Is every confirmed message still there after the disk lost what was not synced?",
    ),
    ("verify/order", "Does each lane keep its order, whatever happens to consumers?"),
    ("verify/dedup", "Is a message that is sent twice under one identity delivered once?"),
    (
        "verify/lease",
        "Is a message that its receiver did not settle hidden as long as promised, and no longer?",
    ),
    ("verify/dlq", "Does a message that fails again and again end up where it should?"),
    ("verify/disk-full", "What happens when the disk is full, and after?"),
    ("verify/slow-consumer", "Does one slow consumer hold up the others?"),
    ("verify/", "Does the system keep what it promises when things go wrong?"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_in_a_name_is_found() {
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
    fn each_question_is_reached_by_its_own_name() {
        for (name, question) in ASKS {
            assert_eq!(asks(name), Some(*question), "{name}");
        }
        assert!(asks("of/its-own").is_none());
    }
}
