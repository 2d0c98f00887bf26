//! Bytes in a JSON document: text where they are UTF-8, else `{"base64": "..."}`.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Bytes of a record's key, value or header.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Payload(pub Bytes);

impl Payload {
    pub fn copied(bytes: &[u8]) -> Self {
        Self(Bytes::copy_from_slice(bytes))
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// `None` when it is not text.
    pub fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Binary {
    base64: String,
}

impl Serialize for Payload {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.text() {
            Some(text) => to.serialize_str(text),
            None => Binary { base64: BASE64.encode(&self.0) }.serialize(to),
        }
    }
}

impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Reader)
    }
}

/// Reads one of the two forms. An untagged enum would hold any other value in memory before it rejects it.
struct Reader;

impl<'de> de::Visitor<'de> for Reader {
    type Value = Payload;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string, or an object with base64")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Payload, E> {
        Ok(Payload::copied(text.as_bytes()))
    }

    fn visit_string<E: de::Error>(self, text: String) -> Result<Payload, E> {
        Ok(Payload(text.into_bytes().into()))
    }

    fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Payload, A::Error> {
        let Binary { base64 } = Binary::deserialize(de::value::MapAccessDeserializer::new(map))?;
        Ok(Payload(BASE64.decode(base64).map_err(de::Error::custom)?.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_is_text_if_utf8_and_base64_otherwise() {
        for (bytes, json) in [
            (&b"a\"b"[..], r#""a\"b""#),
            ("\u{fc}".as_bytes(), "\"\u{fc}\""),
            (&[0xff, 0], r#"{"base64":"/wA="}"#),
            (b"", r#""""#),
        ] {
            let payload = Payload::copied(bytes);
            assert_eq!(serde_json::to_string(&payload).expect("JSON"), json);
            assert_eq!(serde_json::from_str::<Payload>(json).expect("a payload"), payload);
        }
        for wrong in [r#"{"base64":"?"}"#, r#"{"base64":"","x":1}"#, "{}", "[]", "1", "null"] {
            assert!(serde_json::from_str::<Payload>(wrong).is_err(), "{wrong}");
        }
    }
}
