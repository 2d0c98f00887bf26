//! Any JSON value as its shortest text. No tree is built, so that a value takes about as much memory as its text.

use std::fmt;

use bytes::Bytes;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

/// One value, written without spaces. Members of an object keep their order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::v1) struct ShortJson(pub(in crate::v1) Bytes);

impl<'de> Deserialize<'de> for ShortJson {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut text = Vec::new();
        Writer(&mut text).deserialize(from)?;
        Ok(Self(text.into()))
    }
}

/// Writes the value that it reads.
struct Writer<'a>(&'a mut Vec<u8>);

impl Writer<'_> {
    fn write<E: Error>(self, value: impl Serialize) -> Result<(), E> {
        serde_json::to_writer(self.0, &value).map_err(E::custom)
    }
}

impl<'de> DeserializeSeed<'de> for Writer<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Writer<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.write(())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.write(value)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.write(value)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.write(value)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        self.write(value)
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        self.write(value)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        self.0.push(b'[');
        let begin = self.0.len();
        loop {
            let end = self.0.len();
            if end > begin {
                self.0.push(b',');
            }
            if list.next_element_seed(Writer(self.0))?.is_none() {
                self.0.truncate(end);
                self.0.push(b']');
                return Ok(());
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<(), A::Error> {
        self.0.push(b'{');
        let begin = self.0.len();
        loop {
            let end = self.0.len();
            if end > begin {
                self.0.push(b',');
            }
            if object.next_key_seed(Writer(self.0))?.is_none() {
                self.0.truncate(end);
                self.0.push(b'}');
                return Ok(());
            }
            self.0.push(b':');
            object.next_value_seed(Writer(self.0))?;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn short(text: &str) -> Option<String> {
        let read = serde_json::from_str::<ShortJson>(text).ok()?;
        Some(String::from_utf8(read.0.to_vec()).expect("JSON is text"))
    }

    #[test]
    fn json_value_is_written_without_spaces_in_its_order() {
        for (text, written) in [
            (" null ", "null"),
            ("[ ]", "[]"),
            ("{ }", "{}"),
            (
                r#"{ "b": [1, -2, 3.5, true], "a": {"c": "\u00fc\n"} }"#,
                "{\"b\":[1,-2,3.5,true],\"a\":{\"c\":\"\u{fc}\\n\"}}",
            ),
            ("[[], {}, \"\"]", "[[],{},\"\"]"),
            ("18446744073709551615", "18446744073709551615"),
        ] {
            assert_eq!(short(text).as_deref(), Some(written), "{text}");
            let same = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
            assert_eq!(same(text), same(written), "{text}");
        }
        for wrong in ["", "[1,]", "{\"a\"}", "{1:2}", "nul", &"[".repeat(1_000)] {
            assert_eq!(short(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn list_of_small_values_takes_about_the_memory_of_its_text() {
        let text = format!("[{}]", vec!["{}"; 10_000].join(", "));
        let read = serde_json::from_str::<ShortJson>(&text).expect("JSON");
        assert_eq!(read.0.len(), 30_001);
    }
}
