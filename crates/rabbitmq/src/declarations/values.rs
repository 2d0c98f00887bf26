//! Values of arguments: RabbitMQ's comparison and its representation in texts.

pub(crate) use crate::erlang::{binary, string};
use crate::errors::{Exception, Resource};
use crate::table::{FieldValue, kind_name};

/// Rejects a declaration whose argument differs from the existing one (`rabbit_misc:assert_args_equivalence`).
pub(crate) fn assert_equivalent(
    resource: Resource<'_>,
    name: &str,
    current: Option<&FieldValue>,
    received: Option<&FieldValue>,
) -> Result<(), Exception> {
    let same = match (current, received) {
        (None, None) => true,
        (Some(current), Some(received)) => same_value(current, received),
        // A classic queue may be declared with or without its type.
        (None, Some(value)) | (Some(value), None) => {
            name == "x-queue-type" && value.as_str() == Some("classic")
        }
    };
    if same {
        return Ok(());
    }
    let (current, received) = match (current, received) {
        (Some(current), Some(received)) => (quoted(current), quoted(received)),
        (current, received) => (described(current), described(received)),
    };
    Err(inequivalent(resource, name, &current, &received))
}

/// The same for properties outside the arguments: `durable`, `auto_delete`, `type`.
pub(crate) fn assert_same<T: std::fmt::Display + PartialEq>(
    resource: Resource<'_>,
    name: &str,
    current: T,
    received: T,
) -> Result<(), Exception> {
    if current == received {
        return Ok(());
    }
    let (current, received) = (format!("'{current}'"), format!("'{received}'"));
    Err(inequivalent(resource, name, &current, &received))
}

fn inequivalent(resource: Resource<'_>, name: &str, current: &str, received: &str) -> Exception {
    Exception::precondition_failed(format!(
        "inequivalent arg '{name}' for {resource}: received {received} but current is {current}"
    ))
}

/// Numbers of any width compare as one type, and so do strings and byte arrays.
fn same_value(current: &FieldValue, received: &FieldValue) -> bool {
    use FieldValue::{ByteArray, F32, F64, LongString};
    match (current, received) {
        (LongString(a) | ByteArray(a), LongString(b) | ByteArray(b)) => a == b,
        (F32(a), F64(b)) | (F64(b), F32(a)) => f64::from(*a) == *b,
        (a, b) => match (a.as_integer(), b.as_integer()) {
            (Some(a), Some(b)) => a == b,
            _ => a == b,
        },
    }
}

fn described(value: Option<&FieldValue>) -> String {
    value.map_or_else(
        || "none".to_owned(),
        |value| format!("the value {} of type '{}'", quoted(value), kind_name(value)),
    )
}

fn quoted(value: &FieldValue) -> String {
    match value {
        FieldValue::LongString(bytes) | FieldValue::ByteArray(bytes) => {
            format!("'{}'", String::from_utf8_lossy(bytes))
        }
        other => format!("'{}'", term(other)),
    }
}

/// Formats a value like Erlang's `~p`.
pub(crate) fn term(value: &FieldValue) -> String {
    let typed = |value: &FieldValue| format!("{},{}", kind_name(value), term(value));
    match value {
        FieldValue::Boolean(yes) => yes.to_string(),
        FieldValue::F32(number) => format!("{number:?}"),
        FieldValue::F64(number) => format!("{number:?}"),
        FieldValue::Decimal(scale, number) => format!("{{{scale},{number}}}"),
        FieldValue::LongString(bytes) | FieldValue::ByteArray(bytes) => binary(bytes),
        FieldValue::Timestamp(seconds) => seconds.to_string(),
        FieldValue::Void => "undefined".to_owned(),
        FieldValue::Array(values) => {
            let values: Vec<_> =
                values.iter().map(|value| format!("{{{}}}", typed(value))).collect();
            format!("[{}]", values.join(","))
        }
        FieldValue::Table(table) => {
            let field = |(name, value): &(String, FieldValue)| {
                format!("{{{},{}}}", binary(name.as_bytes()), typed(value))
            };
            format!("[{}]", table.0.iter().map(field).collect::<Vec<_>>().join(","))
        }
        whole => whole.as_integer().unwrap_or_default().to_string(),
    }
}
