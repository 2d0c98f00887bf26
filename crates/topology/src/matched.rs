//! The part of a binding that a type of exchange matches on, and the part of a message that is compared with it.

use bytes::BytesMut;
use routing::headers::Pattern;
use routing::{Arguments, HeaderMatch, HeaderPattern, Kind, Value as Header};
use values::{RawField, Table, Value};

use crate::error::BindingError;

/// The part of a binding that a type of exchange matches on.
#[derive(Clone, Debug)]
pub(crate) enum BindingMatch {
    Key,
    Headers(HeaderPattern),
    Weight(u32),
}

impl BindingMatch {
    pub(crate) fn arguments<'a>(&'a self, key: &'a str) -> Arguments<'a> {
        match self {
            Self::Key => Arguments::Key(key),
            Self::Headers(pattern) => Arguments::Headers(pattern),
            Self::Weight(weight) => Arguments::Weight(*weight),
        }
    }
}

/// Reads a binding as its exchange's type does, or rejects it.
pub(crate) fn matched(
    kind: &Kind,
    key: &str,
    arguments: &Table,
) -> Result<BindingMatch, BindingError> {
    match kind {
        Kind::Headers => header_pattern(arguments).map(BindingMatch::Headers),
        Kind::Consistent(_) => weight(key).map(BindingMatch::Weight),
        Kind::Random if !key.is_empty() => Err(BindingError::KeyNotEmpty(key.to_owned())),
        _ => Ok(BindingMatch::Key),
    }
}

fn header_pattern(arguments: &Table) -> Result<HeaderPattern, BindingError> {
    let (which, with_x) = match arguments.get("x-match") {
        None => (HeaderMatch::All, false),
        Some(Value::LongString(text)) => match &text[..] {
            b"all" => (HeaderMatch::All, false),
            b"any" => (HeaderMatch::Any, false),
            b"all-with-x" => (HeaderMatch::All, true),
            b"any-with-x" => (HeaderMatch::Any, true),
            _ => return Err(BindingError::MatchValue(text.clone())),
        },
        Some(other) => return Err(BindingError::MatchType(other.clone())),
    };
    let counts = |name: &str| if with_x { name != "x-match" } else { !name.starts_with("x-") };
    let pairs = arguments.0.iter().filter(|(name, _)| counts(name));
    let pairs = pairs.map(|(name, value)| (name.as_str().into(), pattern(value))).collect();
    Ok(HeaderPattern { which, pairs })
}

/// Weight of a binding in a consistent hash, which its key gives. RabbitMQ creates that many buckets; here they cost
/// nothing, and the number has 32 bits.
fn weight(key: &str) -> Result<u32, BindingError> {
    let number = key.strip_prefix('+').unwrap_or(key);
    let digits = number.strip_prefix('-').unwrap_or(number);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(BindingError::WeightNotInteger(key.to_owned()));
    }
    match number.parse::<u32>() {
        Ok(weight @ 1..) => Ok(weight),
        Ok(0) => Err(BindingError::WeightNotPositive),
        Err(_) if number.starts_with('-') => Err(BindingError::WeightNotPositive),
        Err(_) => Err(BindingError::WeightTooLarge(key.to_owned())),
    }
}

// ------------------------------------------------------------------------ headers of messages

/// Converts an argument of a binding to a pattern for messages' headers.
fn pattern(value: &Value) -> Pattern {
    match value {
        Value::Void => Pattern::Void,
        Value::Boolean(yes) => Pattern::Bool(*yes),
        Value::F32(number) => Pattern::Float(f64::from(*number)),
        Value::F64(number) => Pattern::Float(*number),
        Value::LongString(bytes) | Value::ByteArray(bytes) => Pattern::Bytes(bytes.to_vec().into()),
        Value::Timestamp(seconds) => Pattern::Integer(*seconds as i64),
        Value::Decimal(..) | Value::Array(_) | Value::Table(_) => {
            let mut encoded = BytesMut::new();
            value.encode(&mut encoded);
            // Like a raw field: without the type, and without the length if there is one.
            let front = if matches!(value, Value::Decimal(..)) { 1 } else { 5 };
            Pattern::Encoded(encoded[front..].to_vec().into())
        }
        whole => Pattern::Integer(whole.as_integer().unwrap_or_default()),
    }
}

/// Converts a header of an undecoded message. `None`: it is malformed.
pub fn header_value<'a>(field: &RawField<'a>) -> Option<Header<'a>> {
    Some(match field.kind {
        b'V' => Header::Void,
        b'S' | b'x' => Header::Bytes(field.value),
        b'D' | b'A' | b'F' => Header::Encoded(field.value),
        _ => match field.decode().ok()? {
            Value::Boolean(yes) => Header::Bool(yes),
            Value::F32(number) => Header::Float(f64::from(number)),
            Value::F64(number) => Header::Float(number),
            Value::Timestamp(seconds) => Header::Integer(seconds as i64),
            other => Header::Integer(other.as_integer()?),
        },
    })
}
