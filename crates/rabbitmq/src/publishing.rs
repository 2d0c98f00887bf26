//! Properties of a published message that affect its delivery: expiration, delay, and further routing keys.

use message::Properties;
use message::headers::{BCC, CC};
use values::EncodedTable;

use crate::errors::{Exception, ReplyCode};
use crate::table::{FieldValue, MalformedTable, RawFields, kind_name};

pub fn malformed_headers(malformed: MalformedTable) -> Exception {
    Exception::new(ReplyCode::SyntaxError, malformed.to_string())
}

/// Time to live in milliseconds.
pub fn expiration(properties: &Properties<'_>) -> Result<Option<i64>, Exception> {
    let Some(text) = properties.expiration else { return Ok(None) };
    let text = String::from_utf8_lossy(text);
    let wrong = match leading_integer(&text) {
        None => "no_integer".to_owned(),
        Some((_, rest)) if !rest.is_empty() => format!("{{leftover_string,\"{rest}\"}}"),
        Some((0..=EXPIRATION_MS_MAX, _)) => return Ok(text.parse().ok()),
        Some((..0, _)) => format!("{{value_negative,{text}}}"),
        Some(_) => format!("{{value_too_large,{text}}}"),
    };
    Err(Exception::precondition_failed(format!("invalid expiration '{text}': {wrong}")))
}

/// The number at the start of a text, and the rest (Erlang's `string:to_integer`). A number of more than 64 bits
/// counts as the largest.
fn leading_integer(text: &str) -> Option<(i64, &str)> {
    let sign = text.starts_with(['+', '-']).into();
    let digits = text[sign..].bytes().take_while(u8::is_ascii_digit).count();
    if digits == 0 {
        return None;
    }
    let (number, rest) = text.split_at(sign + digits);
    let bound = if number.starts_with('-') { i64::MIN } else { i64::MAX };
    Some((number.parse().unwrap_or(bound), rest))
}

/// Ten years, as in RabbitMQ (`MAX_EXPIRY_TIMER`).
const EXPIRATION_MS_MAX: i64 = 315_360_000_000;

/// Delay requested for a delaying exchange, in milliseconds.
pub fn delay(properties: &Properties<'_>) -> Option<i64> {
    let table = properties.headers?;
    let field = RawFields::new(table.0).map_while(Result::ok).find(|f| f.name == b"x-delay")?;
    let ms = match field.decode().ok()? {
        FieldValue::LongString(text) => std::str::from_utf8(&text).ok()?.parse().ok()?,
        other => other.as_integer()?,
    };
    (ms > 0).then_some(ms)
}

/// Routing keys besides the message's own: its CC and BCC headers.
pub fn copies(properties: &Properties<'_>) -> Result<Vec<String>, Exception> {
    let Some(EncodedTable(table)) = properties.headers else { return Ok(Vec::new()) };
    let mut copies = Vec::new();
    for field in RawFields::new(table) {
        let field = field.map_err(malformed_headers)?;
        if field.name != CC && field.name != BCC {
            continue;
        }
        match field.decode().map_err(malformed_headers)? {
            // Values other than texts are skipped.
            FieldValue::Array(keys) => {
                copies.extend(keys.iter().filter_map(FieldValue::as_str).map(str::to_owned));
            }
            other => {
                let name = String::from_utf8_lossy(field.name);
                return Err(Exception::precondition_failed(format!(
                    "invalid message: {{unacceptable_type_in_header,\"{name}\",{}}}",
                    kind_name(&other)
                )));
            }
        }
    }
    Ok(copies)
}
