//! Filter of records. It is a document, not a program, so that the cost of a comparison is its length.

use record::RecordView;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::limits::HTTP_SEARCH_TEXT_BYTES_MAX;
use crate::problem::{Kind, Problem};

/// All that is said has to apply. Texts are compared byte by byte.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::v1) struct Filter {
    /// The key is this.
    key: Option<String>,
    key_prefix: Option<String>,
    /// The value has this in it.
    contains: Option<String>,
    /// It has a header of this name.
    header: Option<String>,
    /// And the value of one of them is this.
    header_value: Option<String>,
    /// The value is a JSON document with this, by a pointer (RFC 6901).
    json_pointer: Option<String>,
    /// And what stands there is this: a string as it is, all else as JSON writes it.
    json_equals: Option<String>,
    /// By the time of the record.
    after_ms: Option<i64>,
    before_ms: Option<i64>,
}

impl Filter {
    pub(in crate::v1) fn check(&self) -> Result<(), Problem> {
        let texts = [
            &self.key,
            &self.key_prefix,
            &self.contains,
            &self.header,
            &self.header_value,
            &self.json_pointer,
            &self.json_equals,
        ];
        if texts.into_iter().flatten().any(|text| text.len() > HTTP_SEARCH_TEXT_BYTES_MAX) {
            let most = HTTP_SEARCH_TEXT_BYTES_MAX;
            let detail = format!("a text that is looked for has at most {most} bytes");
            return Err(Problem::limited(Kind::BadRequest, detail, most as u64));
        }
        let lonely = |with: &Option<String>, without: &Option<String>, what: &str| match with
            .is_some()
            && without.is_none()
        {
            true => Err(Problem::new(Kind::BadRequest, format!("{what} is needed as well"))),
            false => Ok(()),
        };
        lonely(&self.header_value, &self.header, "header")?;
        lonely(&self.json_equals, &self.json_pointer, "json_pointer")?;
        match &self.json_pointer {
            Some(pointer) if !pointer.is_empty() && !pointer.starts_with('/') => {
                Err(Problem::new(Kind::BadRequest, "json_pointer begins with /, or is empty"))
            }
            _ => Ok(()),
        }
    }

    /// Checks from the cheapest to the most expensive.
    pub(in crate::v1) fn fits(&self, record: &RecordView<'_>) -> bool {
        self.fits_time(record.timestamp)
            && self.key.as_ref().is_none_or(|key| record.key == Some(key.as_bytes()))
            && self.key_prefix.as_ref().is_none_or(|prefix| {
                record.key.is_some_and(|key| key.starts_with(prefix.as_bytes()))
            })
            && self.fits_headers(record)
            && self
                .contains
                .as_ref()
                .is_none_or(|text| record.value.is_some_and(|value| is_in(text.as_bytes(), value)))
            && self.fits_json(record.value)
    }

    fn fits_time(&self, timestamp: i64) -> bool {
        self.after_ms.is_none_or(|after| timestamp >= after)
            && self.before_ms.is_none_or(|before| timestamp < before)
    }

    fn fits_headers(&self, record: &RecordView<'_>) -> bool {
        let Some(name) = &self.header else { return true };
        record.headers.iter().any(|header| {
            let is_value =
                |wanted: &String| header.value.is_some_and(|value| value == wanted.as_bytes());
            header.key == name.as_bytes() && self.header_value.as_ref().is_none_or(is_value)
        })
    }

    fn fits_json(&self, value: Option<&[u8]>) -> bool {
        let Some(pointer) = &self.json_pointer else { return true };
        let parsed = value.and_then(|it| serde_json::from_slice::<serde_json::Value>(it).ok());
        let Some(parsed) = parsed else { return false };
        let Some(found) = parsed.pointer(pointer) else { return false };
        self.json_equals.as_ref().is_none_or(|wanted| match found {
            serde_json::Value::String(text) => text == wanted,
            other => {
                let written = other.to_string();
                written == *wanted
            }
        })
    }
}

/// Substring search: finds the first byte, then compares. Both texts are mostly short.
fn is_in(text: &[u8], within: &[u8]) -> bool {
    let Some((first, rest)) = text.split_first() else { return true };
    let mut left = within;
    while let Some(at) = left.iter().position(|byte| byte == first) {
        left = &left[at + 1..];
        if left.starts_with(rest) {
            return true;
        }
        if left.len() < rest.len() {
            return false;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn substring_is_found_anywhere() {
        for (text, within, found) in [
            ("", "", true),
            ("a", "", false),
            ("aab", "aaab", true),
            ("abc", "ababc", true),
            ("abc", "abab", false),
            ("c", "abc", true),
            ("abcd", "abc", false),
        ] {
            assert_eq!(is_in(text.as_bytes(), within.as_bytes()), found, "{text} in {within}");
        }
    }

    #[test]
    fn invalid_filter_is_rejected() {
        let of = |filter: Filter| filter.check().is_err();
        let text = |text: &str| Some(text.to_owned());
        assert!(!of(Filter::default()));
        assert!(of(Filter { header_value: text("x"), ..Filter::default() }));
        assert!(of(Filter { json_equals: text("x"), ..Filter::default() }));
        assert!(of(Filter { json_pointer: text("a"), ..Filter::default() }));
        assert!(!of(Filter { json_pointer: text("/a"), ..Filter::default() }));
        let long = "x".repeat(HTTP_SEARCH_TEXT_BYTES_MAX + 1);
        assert!(of(Filter { contains: Some(long), ..Filter::default() }));
    }
}
