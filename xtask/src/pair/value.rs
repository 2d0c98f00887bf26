//! Values of field tables, as bytes and as text. Scripts and transcripts use the same text form:
//!
//! | text | type on the wire |
//! | --- | --- |
//! | `"abc"` | `S`, long string (`\"`, `\\`, `\n` and `\xNN` inside) |
//! | `bytes"00ff"` | `x`, byte array |
//! | `5`, `5i8`, `5u8`, `5i16`, `5u16`, `5u32`, `5i64` | `I`, `b`, `B`, `s`, `u`, `i`, `l` |
//! | `true`, `void` | `t`, `V` |
//! | `1.5f32`, `1.5f64` | `f`, `d` |
//! | `decimal(2,150)` | `D` |
//! | `time(0)` | `T` |
//! | `[1, "a"]`, `{a: 1}` | `A`, `F` |

use std::fmt::Write;
use std::io;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Boolean(bool),
    I8(i8),
    U8(u8),
    I16(i16),
    U16(u16),
    I32(i32),
    U32(u32),
    I64(i64),
    F32(f32),
    F64(f64),
    Decimal(u8, u32),
    Text(Vec<u8>),
    Bytes(Vec<u8>),
    Array(Vec<Value>),
    Table(Table),
    Time(u64),
    Void,
}

pub(super) type Table = Vec<(String, Value)>;

fn invalid(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

// -------------------------------------------------------------------------------------- bytes

/// Reads values from the front of a frame's payload.
#[derive(Debug)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn bytes(&mut self, count: usize) -> io::Result<&'a [u8]> {
        let (taken, rest) =
            self.0.split_at_checked(count).ok_or_else(|| invalid("a frame is cut short"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        Ok(self.bytes(N)?.try_into().expect("as many bytes as were asked for"))
    }

    pub(super) fn u8(&mut self) -> io::Result<u8> {
        Ok(u8::from_be_bytes(self.array()?))
    }

    pub(super) fn u16(&mut self) -> io::Result<u16> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    pub(super) fn u32(&mut self) -> io::Result<u32> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> io::Result<u64> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    pub(super) fn short_text(&mut self) -> io::Result<Vec<u8>> {
        let length = self.u8()?;
        Ok(self.bytes(usize::from(length))?.to_vec())
    }

    pub(super) fn long_text(&mut self) -> io::Result<Vec<u8>> {
        let length = self.u32()?;
        Ok(self.bytes(length as usize)?.to_vec())
    }

    pub(super) fn table(&mut self) -> io::Result<Table> {
        let length = self.u32()?;
        let mut inside = Reader(self.bytes(length as usize)?);
        let mut table = vec![];
        while !inside.0.is_empty() {
            let name = String::from_utf8_lossy(&inside.short_text()?).into_owned();
            table.push((name, inside.value()?));
        }
        Ok(table)
    }

    fn value(&mut self) -> io::Result<Value> {
        Ok(match self.u8()? {
            b't' => Value::Boolean(self.u8()? != 0),
            b'b' => Value::I8(i8::from_be_bytes(self.array()?)),
            b'B' => Value::U8(self.u8()?),
            b's' => Value::I16(i16::from_be_bytes(self.array()?)),
            b'u' => Value::U16(self.u16()?),
            b'I' => Value::I32(i32::from_be_bytes(self.array()?)),
            b'i' => Value::U32(self.u32()?),
            b'l' => Value::I64(i64::from_be_bytes(self.array()?)),
            b'f' => Value::F32(f32::from_be_bytes(self.array()?)),
            b'd' => Value::F64(f64::from_be_bytes(self.array()?)),
            b'D' => Value::Decimal(self.u8()?, self.u32()?),
            b'S' => Value::Text(self.long_text()?),
            b'x' => Value::Bytes(self.long_text()?),
            b'A' => {
                let length = self.u32()?;
                let mut inside = Reader(self.bytes(length as usize)?);
                let mut values = vec![];
                while !inside.0.is_empty() {
                    values.push(inside.value()?);
                }
                Value::Array(values)
            }
            b'F' => Value::Table(self.table()?),
            b'T' => Value::Time(self.u64()?),
            b'V' => Value::Void,
            other => return Err(invalid(format!("a value of type {other:?}"))),
        })
    }
}

pub(super) fn put_short_text(out: &mut Vec<u8>, text: &[u8]) {
    out.push(u8::try_from(text.len()).expect("a short string has at most 255 bytes"));
    out.extend_from_slice(text);
}

pub(super) fn put_long_text(out: &mut Vec<u8>, text: &[u8]) {
    out.extend_from_slice(&(text.len() as u32).to_be_bytes());
    out.extend_from_slice(text);
}

pub(super) fn put_table(out: &mut Vec<u8>, table: &Table) {
    let mut inside = vec![];
    for (name, value) in table {
        put_short_text(&mut inside, name.as_bytes());
        put_value(&mut inside, value);
    }
    put_long_text(out, &inside);
}

fn put_value(out: &mut Vec<u8>, value: &Value) {
    let mut put = |kind: u8, bytes: &[u8]| {
        out.push(kind);
        out.extend_from_slice(bytes);
    };
    match value {
        Value::Boolean(value) => put(b't', &[u8::from(*value)]),
        Value::I8(value) => put(b'b', &value.to_be_bytes()),
        Value::U8(value) => put(b'B', &[*value]),
        Value::I16(value) => put(b's', &value.to_be_bytes()),
        Value::U16(value) => put(b'u', &value.to_be_bytes()),
        Value::I32(value) => put(b'I', &value.to_be_bytes()),
        Value::U32(value) => put(b'i', &value.to_be_bytes()),
        Value::I64(value) => put(b'l', &value.to_be_bytes()),
        Value::F32(value) => put(b'f', &value.to_be_bytes()),
        Value::F64(value) => put(b'd', &value.to_be_bytes()),
        Value::Decimal(scale, value) => {
            put(b'D', &[*scale]);
            out.extend_from_slice(&value.to_be_bytes());
        }
        Value::Text(text) => {
            put(b'S', &[]);
            put_long_text(out, text);
        }
        Value::Bytes(bytes) => {
            put(b'x', &[]);
            put_long_text(out, bytes);
        }
        Value::Array(values) => {
            let mut inside = vec![];
            values.iter().for_each(|value| put_value(&mut inside, value));
            put(b'A', &[]);
            put_long_text(out, &inside);
        }
        Value::Table(table) => {
            put(b'F', &[]);
            put_table(out, table);
        }
        Value::Time(seconds) => put(b'T', &seconds.to_be_bytes()),
        Value::Void => put(b'V', &[]),
    }
}

// --------------------------------------------------------------------------------------- text

/// Writes a string in the syntax of scripts.
pub(super) fn show_text(text: &[u8], out: &mut String) {
    out.push('"');
    for chunk in text.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                control if control.is_control() => {
                    let _ = write!(out, "\\x{:02x}", u32::from(control));
                }
                other => out.push(other),
            }
        }
        chunk.invalid().iter().for_each(|byte| {
            let _ = write!(out, "\\x{byte:02x}");
        });
    }
    out.push('"');
}

/// Prefix of headers that only Postroad has, which cannot be compared.
const OWN: &str = "postroad.";

/// Sorted by name, since the order of a table has no meaning.
pub(super) fn show_table(table: &Table, out: &mut String) {
    let mut fields: Vec<_> = table.iter().filter(|(name, _)| !name.starts_with(OWN)).collect();
    fields.sort_by(|(a, _), (b, _)| a.cmp(b));
    out.push('{');
    for (place, (name, value)) in fields.into_iter().enumerate() {
        let _ = write!(out, "{}{name}: ", if place > 0 { ", " } else { "" });
        value.show(out);
    }
    out.push('}');
}

impl Value {
    fn show(&self, out: &mut String) {
        let _ = match self {
            Value::Boolean(value) => write!(out, "{value}"),
            Value::I8(value) => write!(out, "{value}i8"),
            Value::U8(value) => write!(out, "{value}u8"),
            Value::I16(value) => write!(out, "{value}i16"),
            Value::U16(value) => write!(out, "{value}u16"),
            Value::I32(value) => write!(out, "{value}"),
            Value::U32(value) => write!(out, "{value}u32"),
            Value::I64(value) => write!(out, "{value}i64"),
            Value::F32(value) => write!(out, "{value}f32"),
            Value::F64(value) => write!(out, "{value}f64"),
            Value::Decimal(scale, value) => write!(out, "decimal({scale},{value})"),
            Value::Text(text) => {
                show_text(text, out);
                Ok(())
            }
            Value::Bytes(bytes) => {
                out.push_str("bytes\"");
                bytes.iter().for_each(|byte| {
                    let _ = write!(out, "{byte:02x}");
                });
                out.push('"');
                Ok(())
            }
            Value::Array(values) => {
                out.push('[');
                for (place, value) in values.iter().enumerate() {
                    out.push_str(if place > 0 { ", " } else { "" });
                    value.show(out);
                }
                out.push(']');
                Ok(())
            }
            Value::Table(table) => {
                show_table(table, out);
                Ok(())
            }
            Value::Time(seconds) => write!(out, "time({seconds})"),
            Value::Void => write!(out, "void"),
        };
    }
}

/// Parses text from its front. Errors are messages that include the rest of the text.
#[derive(Debug)]
pub(super) struct Cursor<'a>(pub(super) &'a str);

impl<'a> Cursor<'a> {
    pub(super) fn skip_spaces(&mut self) {
        self.0 = self.0.trim_start();
    }

    pub(super) fn is_at_end(&mut self) -> bool {
        self.skip_spaces();
        self.0.is_empty()
    }

    pub(super) fn take(&mut self, token: &str) -> bool {
        match self.0.strip_prefix(token) {
            Some(rest) => {
                self.0 = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, token: &str) -> Result<(), String> {
        self.skip_spaces();
        if self.take(token) {
            Ok(())
        } else {
            Err(format!("'{token}' expected before: {}", self.0))
        }
    }

    /// Takes a word: letters, digits, and the other characters of method and header names.
    pub(super) fn word(&mut self) -> &'a str {
        let is_part = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        let end = self.0.find(|c| !is_part(c)).unwrap_or(self.0.len());
        let (word, rest) = self.0.split_at(end);
        self.0 = rest;
        word
    }

    /// Takes a quoted string.
    pub(super) fn text(&mut self) -> Result<Vec<u8>, String> {
        self.expect("\"")?;
        let mut text = vec![];
        loop {
            let mut characters = self.0.chars();
            let character = characters.next().ok_or("a string has no end")?;
            self.0 = characters.as_str();
            match character {
                '"' => return Ok(text),
                '\\' => text.push(self.escaped()?),
                other => text.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
    }

    fn escaped(&mut self) -> Result<u8, String> {
        let mut characters = self.0.chars();
        let character = characters.next();
        self.0 = characters.as_str();
        match character {
            Some('n') => Ok(b'\n'),
            Some(same @ ('"' | '\\')) => Ok(same as u8),
            Some('x') => {
                let (digits, rest) = self.0.split_at_checked(2).ok_or("\\xNN is cut short")?;
                self.0 = rest;
                u8::from_str_radix(digits, 16).map_err(|error| format!("\\x{digits}: {error}"))
            }
            _ => Err("\\\", \\\\, \\n or \\xNN expected after a backslash".to_owned()),
        }
    }

    pub(super) fn table(&mut self) -> Result<Table, String> {
        self.expect("{")?;
        let mut table = vec![];
        loop {
            self.skip_spaces();
            if self.take("}") {
                return Ok(table);
            }
            if !table.is_empty() {
                self.expect(",")?;
                self.skip_spaces();
            }
            let name = match self.0.starts_with('"') {
                true => String::from_utf8_lossy(&self.text()?).into_owned(),
                false => self.word().to_owned(),
            };
            self.expect(":")?;
            table.push((name, self.value()?));
        }
    }

    pub(super) fn value(&mut self) -> Result<Value, String> {
        self.skip_spaces();
        match self.0.chars().next() {
            Some('"') => return self.text().map(Value::Text),
            Some('{') => return self.table().map(Value::Table),
            Some('[') => return self.array(),
            _ => {}
        }
        let word = self.word();
        match word {
            "true" => Ok(Value::Boolean(true)),
            "false" => Ok(Value::Boolean(false)),
            "void" => Ok(Value::Void),
            "bytes" => {
                let digits = self.text()?;
                hexadecimal(&String::from_utf8_lossy(&digits)).map(Value::Bytes)
            }
            "time" => Ok(Value::Time(self.numbers::<1>()?[0])),
            "decimal" => {
                let [scale, value] = self.numbers()?;
                Ok(Value::Decimal(scale as u8, value as u32))
            }
            number => number_of(number).ok_or_else(|| format!("'{number}' is no value")),
        }
    }

    fn array(&mut self) -> Result<Value, String> {
        self.expect("[")?;
        let mut values = vec![];
        loop {
            self.skip_spaces();
            if self.take("]") {
                return Ok(Value::Array(values));
            }
            if !values.is_empty() {
                self.expect(",")?;
            }
            values.push(self.value()?);
        }
    }

    /// `(1,2)`
    fn numbers<const N: usize>(&mut self) -> Result<[u64; N], String> {
        let mut numbers = [0; N];
        self.expect("(")?;
        for (place, number) in numbers.iter_mut().enumerate() {
            if place > 0 {
                self.expect(",")?;
            }
            let word = self.word();
            *number = word.parse().map_err(|_| format!("'{word}' is no number"))?;
        }
        self.expect(")")?;
        Ok(numbers)
    }
}

/// Parses a number with its type as a suffix.
fn number_of(word: &str) -> Option<Value> {
    let at = word.find(['i', 'u', 'f']).unwrap_or(word.len());
    let (number, kind) = word.split_at(at);
    Some(match kind {
        "" => Value::I32(number.parse().ok()?),
        "i8" => Value::I8(number.parse().ok()?),
        "u8" => Value::U8(number.parse().ok()?),
        "i16" => Value::I16(number.parse().ok()?),
        "u16" => Value::U16(number.parse().ok()?),
        "u32" => Value::U32(number.parse().ok()?),
        "i64" => Value::I64(number.parse().ok()?),
        "f32" => Value::F32(number.parse().ok()?),
        "f64" => Value::F64(number.parse().ok()?),
        _ => return None,
    })
}

/// `00 ff`
pub(super) fn hexadecimal(text: &str) -> Result<Vec<u8>, String> {
    let digits: Vec<char> = text.chars().filter(|c| !c.is_whitespace()).collect();
    let byte = |pair: &[char]| {
        let pair: String = pair.iter().collect();
        u8::from_str_radix(&pair, 16).map_err(|error| format!("'{pair}': {error}"))
    };
    digits.chunks(2).map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_survives_encoding_as_text_and_as_bytes() {
        let text = r#"{a: "x\"y\xff", b: [1, -2i8, 3u8, -4i16, 5u16, 6u32, -7i64], c: true, d: void, e: 1.5f32, f: 2.5f64, g: decimal(2,150), h: time(9), i: bytes"00ff", j: {k: 1}}"#;
        let table = Cursor(text).table().expect("is one");
        let mut shown = String::new();
        show_table(&table, &mut shown);
        assert_eq!(shown, text);
        let mut bytes = vec![];
        put_table(&mut bytes, &table);
        assert_eq!(Reader(&bytes).table().expect("is one"), table);
    }

    #[test]
    fn malformed_value_is_rejected() {
        for wrong in ["{a: }", "{a 1}", "{a: \"x}", "{a: 1x}", "{a: \"\\q\"}", "{a: 1 b: 2}"] {
            assert!(Cursor(wrong).table().is_err(), "{wrong}");
        }
    }
}
