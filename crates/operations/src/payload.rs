//! Bytes in a JSON document: text where they are UTF-8, else `{"base64": "..."}`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Bytes of a record: of its key, its value, or a header.
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

#[derive(Deserialize)]
#[serde(untagged)]
enum Either {
    Text(String),
    Binary(Binary),
}

impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let bytes = match Either::deserialize(from)? {
            Either::Text(text) => text.into_bytes(),
            Either::Binary(Binary { base64 }) => {
                BASE64.decode(base64).map_err(de::Error::custom)?
            }
        };
        Ok(Self(bytes.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_text_and_anything_else_is_base64() {
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
        assert!(serde_json::from_str::<Payload>(r#"{"base64":"?"}"#).is_err());
    }
}
