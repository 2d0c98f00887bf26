//! The arguments of a queue, checked as in RabbitMQ 4: the same ones for the same types of queues, in the same order,
//! with the same texts (`rabbit_amqqueue:check_declare_arguments`).
//!
//! Names unknown to RabbitMQ are stored and ignored: clients declare queues with arguments of long-gone plugins, and
//! must not break. The effect of known ones is in [`topology::settings`]. One argument is specific to this broker:
//! [`ORDERING`].

use broker::config::LeaseOrdering;
use topology::QueueKind;
use topology::arguments::{DEAD_LETTER_EXCHANGE, EXPIRY_MS_MAX, ORDERING, QUEUE_TYPE, max_age_ms};

use super::values::string;
use crate::errors::{Exception, Resource};
use crate::table::{FieldTable, FieldValue, kind_name};

const PRIORITY_MAX: i64 = 255;
const STREAM_SEGMENT_BYTES_MAX: i64 = 3_000_000_000;

/// The arguments of a type of queue, in the order in which a second declaration is compared.
pub(crate) fn known(kind: QueueKind) -> &'static [&'static str] {
    match kind {
        QueueKind::Classic => &[
            "x-expires",
            "x-message-ttl",
            "x-dead-letter-exchange",
            "x-dead-letter-routing-key",
            "x-max-length",
            "x-max-length-bytes",
            "x-max-priority",
            "x-overflow",
            "x-queue-mode",
            "x-queue-version",
            "x-single-active-consumer",
            "x-queue-type",
            "x-queue-master-locator",
            "x-queue-leader-locator",
            ORDERING,
        ],
        QueueKind::Quorum => &[
            "x-dead-letter-exchange",
            "x-dead-letter-routing-key",
            "x-dead-letter-strategy",
            "x-expires",
            "x-max-length",
            "x-max-length-bytes",
            "x-max-in-memory-length",
            "x-max-in-memory-bytes",
            "x-overflow",
            "x-single-active-consumer",
            "x-queue-type",
            "x-quorum-initial-group-size",
            "x-delivery-limit",
            "x-message-ttl",
            "x-queue-leader-locator",
            ORDERING,
        ],
        QueueKind::Stream => &[
            "x-max-length-bytes",
            "x-queue-type",
            "x-max-age",
            "x-stream-max-segment-size-bytes",
            "x-initial-cluster-size",
            "x-queue-leader-locator",
        ],
    }
}

/// Checks an argument's value, given all arguments; the error is an Erlang term.
type Check = fn(&FieldValue, &FieldTable) -> Result<(), String>;

/// In the order in which they are checked.
const CHECKS: [(&str, Check); 23] = [
    ("x-expires", expires),
    ("x-message-ttl", |value, _| expiry(integer(value)?)),
    (DEAD_LETTER_EXCHANGE, |value, _| text(value).map(drop)),
    ("x-dead-letter-routing-key", routing_key),
    ("x-dead-letter-strategy", |value, _| {
        one_of(value, &["at-most-once", "at-least-once"], "invalid_dlx_strategy")
    }),
    ("x-max-length", |value, _| not_negative(value).map(drop)),
    ("x-max-length-bytes", |value, _| not_negative(value).map(drop)),
    ("x-max-in-memory-length", |value, _| not_negative(value).map(drop)),
    ("x-max-in-memory-bytes", |value, _| not_negative(value).map(drop)),
    ("x-max-priority", max_priority),
    ("x-overflow", |value, _| {
        one_of(value, &["drop-head", "reject-publish", "reject-publish-dlx"], "invalid_overflow")
    }),
    ("x-queue-mode", |value, _| match text(value)? {
        "default" | "lazy" => Ok(()),
        other => Err(string(&format!("unsupported queue mode '{other}'"))),
    }),
    ("x-queue-version", |value, _| match not_negative(value)? {
        1 | 2 => Ok(()),
        other => Err(string(&format!("unsupported queue version '{other}'"))),
    }),
    ("x-single-active-consumer", |value, _| match value {
        FieldValue::Boolean(_) => Ok(()),
        other => Err(unacceptable(other)),
    }),
    (QUEUE_TYPE, |value, _| match QueueKind::named(text(value)?) {
        Some(_) => Ok(()),
        None => {
            let named = value.as_str().unwrap_or_default();
            Err(string(&format!("unsupported queue type '{named}'")))
        }
    }),
    ("x-quorum-initial-group-size", |value, _| not_zero(value)),
    ("x-max-age", |value, _| max_age_ms(text(value)?).map(drop).ok_or("invalid_max_age".into())),
    ("x-stream-max-segment-size-bytes", |value, _| not_negative(value).map(drop)),
    ("x-stream-filter-size-bytes", |value, _| not_negative(value).map(drop)),
    ("x-initial-cluster-size", |value, _| not_zero(value)),
    ("x-queue-leader-locator", |value, _| {
        one_of(
            value,
            &["client-local", "balanced", "random", "least-leaders", "min-masters"],
            "invalid_queue_locator_arg",
        )
    }),
    // RabbitMQ checks this one only at a delivery, and then takes a value that is no number for no limit. Here it
    // would have to be ignored, so it is rejected.
    ("x-delivery-limit", |value, _| integer(value).map(drop)),
    (ORDERING, |value, _| {
        LeaseOrdering::parse(text(value)?).map(drop).ok_or_else(|| "invalid_ordering".to_owned())
    }),
];

/// Checks the arguments. Returns the requested type of queue.
pub(crate) fn check(queue: Resource<'_>, arguments: &FieldTable) -> Result<QueueKind, Exception> {
    check_one(queue, arguments, QUEUE_TYPE)?;
    let named = arguments.get(QUEUE_TYPE).and_then(FieldValue::as_str);
    let kind = named.and_then(QueueKind::named).unwrap_or(QueueKind::Classic);
    for (name, _) in CHECKS.iter().filter(|(name, _)| known(kind).contains(name)) {
        check_one(queue, arguments, name)?;
    }
    let others = || QueueKind::ALL.into_iter().flat_map(known);
    for (name, _) in &arguments.0 {
        let name = name.as_str();
        if !known(kind).contains(&name) && others().any(|other| *other == name) {
            return Err(Exception::precondition_failed(format!(
                "invalid arg '{name}' for {queue} of queue type {}",
                module(kind)
            )));
        }
    }
    if kind == QueueKind::Stream {
        check_stream(arguments)?;
    }
    Ok(kind)
}

fn check_one(queue: Resource<'_>, arguments: &FieldTable, name: &str) -> Result<(), Exception> {
    let check = CHECKS.iter().find(|(known, _)| *known == name);
    let (Some((_, check)), Some(value)) = (check, arguments.get(name)) else { return Ok(()) };
    check(value, arguments).map_err(|wrong| {
        Exception::precondition_failed(format!("invalid arg '{name}' for {queue}: {wrong}"))
    })
}

/// Further checks of a stream, once its arguments have the right types.
fn check_stream(arguments: &FieldTable) -> Result<(), Exception> {
    let number = |name| arguments.get(name).and_then(FieldValue::as_integer);
    if number("x-stream-max-segment-size-bytes").is_some_and(|n| n > STREAM_SEGMENT_BYTES_MAX) {
        return Err(Exception::precondition_failed(
            "Exceeded max value for x-stream-max-segment-size-bytes",
        ));
    }
    let filter = arguments.get("x-stream-filter-size-bytes");
    if filter.is_some_and(|value| !value.as_integer().is_some_and(|n| (16..=255).contains(&n))) {
        return Err(Exception::precondition_failed(
            "Invalid value for  x-stream-filter-size-bytes",
        ));
    }
    Ok(())
}

fn integer(value: &FieldValue) -> Result<i64, String> {
    let wrong = || string(&format!("expected integer, got {}", kind_name(value)));
    value.as_integer().ok_or_else(wrong)
}

fn not_negative(value: &FieldValue) -> Result<i64, String> {
    match integer(value)? {
        number @ 0.. => Ok(number),
        number => Err(format!("{{value_negative,{number}}}")),
    }
}

fn not_zero(value: &FieldValue) -> Result<(), String> {
    match not_negative(value)? {
        0 => Err("{value_zero,0}".to_owned()),
        _ => Ok(()),
    }
}

fn expiry(ms: i64) -> Result<(), String> {
    match ms {
        ..0 => Err(format!("{{value_negative,{ms}}}")),
        EXPIRY_MS_MAX.. if ms > EXPIRY_MS_MAX => Err(format!("{{value_too_large,{ms}}}")),
        _ => Ok(()),
    }
}

fn expires(value: &FieldValue, _: &FieldTable) -> Result<(), String> {
    match integer(value)? {
        0 => Err("{value_zero,0}".to_owned()),
        ms => expiry(ms),
    }
}

fn max_priority(value: &FieldValue, _: &FieldTable) -> Result<(), String> {
    match not_negative(value)? {
        ..=PRIORITY_MAX => Ok(()),
        number => Err(format!("{{max_value_exceeded,{number}}}")),
    }
}

fn routing_key(value: &FieldValue, arguments: &FieldTable) -> Result<(), String> {
    text(value)?;
    let exchange = arguments.get(DEAD_LETTER_EXCHANGE);
    exchange.map(drop).ok_or_else(|| "routing_key_but_no_dlx_defined".to_owned())
}

fn text(value: &FieldValue) -> Result<&str, String> {
    match value {
        FieldValue::LongString(bytes) => Ok(std::str::from_utf8(bytes).unwrap_or_default()),
        other => Err(unacceptable(other)),
    }
}

fn one_of(value: &FieldValue, names: &[&str], wrong: &str) -> Result<(), String> {
    if names.contains(&text(value)?) { Ok(()) } else { Err(wrong.to_owned()) }
}

fn unacceptable(value: &FieldValue) -> String {
    format!("{{unacceptable_type,{}}}", kind_name(value))
}

/// A type of queue as RabbitMQ's texts name it.
pub(crate) const fn module(kind: QueueKind) -> &'static str {
    match kind {
        QueueKind::Classic => "rabbit_classic_queue",
        QueueKind::Quorum => "rabbit_quorum_queue",
        QueueKind::Stream => "rabbit_stream_queue",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(arguments: &[(&str, FieldValue)]) -> String {
        let arguments = arguments.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        let arguments = FieldTable(arguments.collect());
        match check(Resource::queue("q", "/"), &arguments) {
            Ok(kind) => format!("{kind:?}"),
            Err(exception) => exception.reply_text(),
        }
    }

    #[test]
    fn invalid_arguments_are_rejected_with_the_texts_of_rabbitmq() {
        let classic: &[(&str, FieldValue, &str)] = &[
            ("x-expires", 0.into(), "{value_zero,0}"),
            ("x-expires", (-1).into(), "{value_negative,-1}"),
            ("x-expires", 315_360_000_001_i64.into(), "{value_too_large,315360000001}"),
            ("x-message-ttl", "60".into(), "\"expected integer, got longstr\""),
            ("x-message-ttl", (-1).into(), "{value_negative,-1}"),
            ("x-dead-letter-exchange", 1.into(), "{unacceptable_type,signedint}"),
            ("x-dead-letter-routing-key", "k".into(), "routing_key_but_no_dlx_defined"),
            ("x-max-length", (-1).into(), "{value_negative,-1}"),
            ("x-max-length-bytes", true.into(), "\"expected integer, got bool\""),
            ("x-max-priority", 256.into(), "{max_value_exceeded,256}"),
            ("x-overflow", "drop".into(), "invalid_overflow"),
            ("x-queue-mode", "eager".into(), "\"unsupported queue mode 'eager'\""),
            ("x-queue-version", 3.into(), "\"unsupported queue version '3'\""),
            ("x-single-active-consumer", "true".into(), "{unacceptable_type,longstr}"),
            ("x-queue-type", "fast".into(), "\"unsupported queue type 'fast'\""),
            ("x-queue-type", 1.into(), "{unacceptable_type,signedint}"),
            ("x-queue-leader-locator", "here".into(), "invalid_queue_locator_arg"),
            ("x-postroad-ordering", "keys".into(), "invalid_ordering"),
            ("x-postroad-ordering", 1.into(), "{unacceptable_type,signedint}"),
        ];
        for (name, value, wrong) in classic {
            let expected = format!(
                "PRECONDITION_FAILED - invalid arg '{name}' for queue 'q' in vhost '/': {wrong}"
            );
            assert_eq!(refused(&[(name, value.clone())]), expected);
        }
        for (kind, name, value, wrong) in [
            ("quorum", "x-quorum-initial-group-size", 0.into(), "{value_zero,0}"),
            ("quorum", "x-dead-letter-strategy", "at-once".into(), "invalid_dlx_strategy"),
            ("stream", "x-max-age", "7days".into(), "invalid_max_age"),
            ("stream", "x-initial-cluster-size", 0.into(), "{value_zero,0}"),
        ] {
            let expected = format!(
                "PRECONDITION_FAILED - invalid arg '{name}' for queue 'q' in vhost '/': {wrong}"
            );
            assert_eq!(refused(&[("x-queue-type", kind.into()), (name, value)]), expected);
        }
    }

    #[test]
    fn argument_of_another_queue_type_is_rejected() {
        assert_eq!(
            refused(&[("x-queue-type", "quorum".into()), ("x-max-priority", 5.into())]),
            "PRECONDITION_FAILED - invalid arg 'x-max-priority' for queue 'q' in vhost '/' of queue \
             type rabbit_quorum_queue"
        );
        assert_eq!(
            refused(&[("x-queue-type", "stream".into()), ("x-postroad-ordering", "key".into())]),
            "PRECONDITION_FAILED - invalid arg 'x-postroad-ordering' for queue 'q' in vhost '/' of \
             queue type rabbit_stream_queue"
        );
        assert_eq!(
            refused(&[("x-max-age", "1D".into())]),
            "PRECONDITION_FAILED - invalid arg 'x-max-age' for queue 'q' in vhost '/' of queue \
             type rabbit_classic_queue"
        );
    }

    #[test]
    fn unknown_arguments_are_accepted() {
        assert_eq!(refused(&[("x-ha-policy", "all".into())]), "Classic");
    }
}
