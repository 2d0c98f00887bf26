//! Weight of a JSON document before it is parsed.
//!
//! A parsed value takes many times its text: `{}` has two bytes and becomes a hundred or more. A parser therefore
//! gets a document only after one pass over its bytes has bounded its depth, its number of values and their
//! memory. The pass does not validate: a document that is not JSON gets some weight, and the parser rejects it.

use std::error::Error;
use std::fmt;

/// Bounds of one document.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JsonLimits {
    /// Elements of lists, and names and values of objects.
    pub values: usize,
    /// Lists and objects within one another.
    pub depth: usize,
    /// Estimated memory of the parsed document.
    pub bytes: usize,
}

/// The limit that a document exceeds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JsonTooLarge {
    Values(usize),
    Depth(usize),
    Bytes(usize),
}

impl fmt::Display for JsonTooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Values(limit) => write!(f, "the document has more than {limit} values"),
            Self::Depth(limit) => write!(f, "the document is nested more than {limit} deep"),
            Self::Bytes(limit) => {
                write!(f, "the parsed document would take more than {limit} bytes of memory")
            }
        }
    }
}

impl Error for JsonTooLarge {}

impl JsonTooLarge {
    pub const fn limit(self) -> usize {
        let (Self::Values(limit) | Self::Depth(limit) | Self::Bytes(limit)) = self;
        limit
    }
}

/// Memory of an element: 32 bytes of a value, three times while its list grows.
const VALUE_BYTES: usize = 96;
/// Memory of the first node of an object's tree. It has room for 11 names and values.
const OBJECT_BYTES: usize = 640;

/// Rejects a document that exceeds one of the limits. Reads at most as much of it as they allow.
pub fn examine(document: &[u8], limits: &JsonLimits) -> Result<(), JsonTooLarge> {
    let JsonLimits { values: values_max, depth: depth_max, bytes: bytes_max } = *limits;
    let (mut values, mut depth) = (1, 0_usize);
    let mut bytes = document.len();
    let mut rest = document;
    while let [byte, after @ ..] = rest {
        rest = after;
        match byte {
            b'"' => rest = behind_string(rest),
            b',' | b':' => {
                values += 1;
                bytes += VALUE_BYTES;
            }
            b'[' | b'{' => {
                values += 1;
                bytes += VALUE_BYTES;
                depth += 1;
                if depth > depth_max {
                    return Err(JsonTooLarge::Depth(depth_max));
                }
                if *byte == b'{' && rest.trim_ascii_start().first() != Some(&b'}') {
                    bytes += OBJECT_BYTES;
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => continue,
        }
        if values > values_max {
            return Err(JsonTooLarge::Values(values_max));
        }
        if bytes > bytes_max {
            return Err(JsonTooLarge::Bytes(bytes_max));
        }
    }
    Ok(())
}

/// The text behind the end of a string that has begun.
fn behind_string(mut rest: &[u8]) -> &[u8] {
    while let Some(at) = rest.iter().position(|byte| matches!(byte, b'"' | b'\\')) {
        match rest[at] {
            b'"' => return &rest[at + 1..],
            // The escaped byte may be a quotation mark.
            _ => rest = rest.get(at + 2..).unwrap_or_default(),
        }
    }
    &[]
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: JsonLimits = JsonLimits { values: 10, depth: 3, bytes: 2_000 };

    fn examined(text: &str) -> Result<(), JsonTooLarge> {
        examine(text.as_bytes(), &LIMITS)
    }

    #[test]
    fn document_within_all_limits_is_accepted() {
        for text in ["", "1", "[1,2,3]", r#"{"a":[{}],"b":"[[[[[,,,,,,,,,,,,"}"#, r#"["\"[[[[[["]"#]
        {
            assert_eq!(examined(text), Ok(()), "{text}");
        }
    }

    #[test]
    fn document_over_one_limit_is_rejected_by_that_limit() {
        assert_eq!(examined("[[[[]]]]"), Err(JsonTooLarge::Depth(3)));
        assert_eq!(examined("[1,2,3,4,5,6,7,8,9,10,11]"), Err(JsonTooLarge::Values(10)));
        assert_eq!(examined(r#"[{"a":1},{"a":1},{"a":1}]"#), Err(JsonTooLarge::Bytes(2_000)));
        assert_eq!(examined(&format!("\"{}\"", "x".repeat(1_900))), Ok(()), "text is no value");
    }

    #[test]
    fn truncated_documents_have_a_weight() {
        let text = r#"{"a":["b\"c",{"d":1}]}"#;
        for end in 0..text.len() {
            assert_eq!(examined(&text[..end]), Ok(()), "{}", &text[..end]);
        }
    }
}
