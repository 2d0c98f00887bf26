//! Values other than strings, as text and back.

use values::Value;

/// A number, a boolean or a time as text.
pub(crate) fn text_of(value: &Value) -> String {
    match value {
        Value::Boolean(value) => value.to_string(),
        Value::F32(number) => number.to_string(),
        Value::F64(number) => number.to_string(),
        Value::Timestamp(seconds) => seconds.to_string(),
        Value::Decimal(scale, number) => decimal_text(*scale, *number),
        other => other.as_integer().map(|number| number.to_string()).unwrap_or_default(),
    }
}

/// The inverse of [`text_of`]; `None` if the text was changed.
pub(crate) fn value_of(kind: u8, text: &[u8]) -> Option<Value> {
    let text = std::str::from_utf8(text).ok()?;
    Some(match kind {
        b't' => Value::Boolean(text.parse().ok()?),
        b'b' => Value::I8(text.parse().ok()?),
        b'B' => Value::U8(text.parse().ok()?),
        b's' => Value::I16(text.parse().ok()?),
        b'u' => Value::U16(text.parse().ok()?),
        b'I' => Value::I32(text.parse().ok()?),
        b'i' => Value::U32(text.parse().ok()?),
        b'l' | b'L' => Value::I64(text.parse().ok()?),
        b'f' => Value::F32(text.parse().ok()?),
        b'd' => Value::F64(text.parse().ok()?),
        b'T' => Value::Timestamp(text.parse().ok()?),
        b'D' => {
            let (scale, number) = parse_decimal(text)?;
            Value::Decimal(scale, number)
        }
        _ => return None,
    })
}

/// A decimal with as many digits after the point as its scale.
fn decimal_text(scale: u8, number: u32) -> String {
    let scale = usize::from(scale);
    if scale == 0 {
        return number.to_string();
    }
    let digits = format!("{number:0width$}", width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    format!("{whole}.{fraction}")
}

fn parse_decimal(text: &str) -> Option<(u8, u32)> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let scale = u8::try_from(fraction.len()).ok()?;
    Some((scale, [whole, fraction].concat().parse().ok()?))
}

/// A number's digits without an allocation.
pub(crate) struct Text {
    digits: [u8; 20],
    from: usize,
}

impl Text {
    pub(crate) fn of(mut number: u64) -> Self {
        let mut text = Self { digits: [b'0'; 20], from: 20 };
        loop {
            text.from -= 1;
            text.digits[text.from] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                return text;
            }
        }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.digits[self.from..]
    }
}

/// The assumed type of a header without a recorded type.
pub(crate) fn guessed_kind(value: &[u8]) -> u8 {
    if std::str::from_utf8(value).is_ok() { b'S' } else { b'x' }
}
