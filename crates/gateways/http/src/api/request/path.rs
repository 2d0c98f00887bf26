//! Paths and queries in the form of RabbitMQ's clients: segments are split before they are decoded, so that a name
//! may contain a slash (`%2F`), and trailing slashes are ignored.

use crate::api::request::api_error::ApiError;

/// Decoded segments after `/api`; none for an empty path.
pub(in crate::api) fn segments(path: &str) -> Result<Vec<String>, ApiError> {
    let rest = path.strip_prefix("/api").unwrap_or(path).trim_end_matches('/');
    let rest = rest.strip_prefix('/').unwrap_or(rest);
    if rest.is_empty() {
        return Ok(Vec::new());
    }
    rest.split('/').map(decoded).collect()
}

fn decoded(segment: &str) -> Result<String, ApiError> {
    let wrong = || ApiError::bad_request("the path has something in it that is no text of UTF-8");
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || (rest.next()? as char).to_digit(16);
        let (high, low) = (digit().ok_or_else(wrong)?, digit().ok_or_else(wrong)?);
        bytes.push((high * 16 + low) as u8);
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

/// Escapes text as one path segment.
pub(in crate::api) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.') {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[derive(Clone, Debug, Default)]
pub(in crate::api) struct Query(Vec<(String, String)>);

impl Query {
    pub(in crate::api) fn of(text: Option<&str>) -> Result<Self, ApiError> {
        let wrong = |_| ApiError::bad_request("the query cannot be read");
        serde_urlencoded::from_str(text.unwrap_or_default()).map(Self).map_err(wrong)
    }

    pub(in crate::api) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    pub(in crate::api) fn is_true(&self, name: &str) -> bool {
        self.get(name) == Some("true")
    }
}

/// Matches a path with a pattern; returns the values of its parameters.
pub(in crate::api) fn captured(
    pattern: &'static str,
    segments: &[String],
) -> Option<Vec<(&'static str, String)>> {
    let mut found = Vec::new();
    let mut rest = segments.iter();
    for part in pattern.split('/').filter(|part| !part.is_empty()) {
        let segment = rest.next()?;
        match part.strip_prefix('{').and_then(|part| part.strip_suffix('}')) {
            Some(name) => found.push((name, segment.clone())),
            None if part == segment => {}
            None => return None,
        }
    }
    rest.next().is_none().then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_may_contain_escaped_slashes_and_trailing_slashes_are_ignored() {
        let of = |path: &str| segments(path).expect("a path");
        assert_eq!(of("/api/queues/%2F/a%2fb+c"), ["queues", "/", "a/b+c"]);
        assert_eq!(of("/api/queues//"), ["queues"]);
        assert_eq!(of("/api/"), Vec::<String>::new());
        assert_eq!(of("/api/exchanges/%2F//publish"), ["exchanges", "/", "", "publish"]);
        for wrong in ["/api/%", "/api/%2", "/api/%zz", "/api/%ff"] {
            assert!(segments(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn escaped_text_decodes_to_itself() {
        for text in ["", "a", "a/b ~%+ü", "\n"] {
            assert_eq!(decoded(&escaped(text)).expect("text"), text);
        }
    }

    #[test]
    fn pattern_captures_its_parameters() {
        let path = segments("/api/queues/%2F/q").expect("a path");
        let found = captured("/queues/{vhost}/{name}", &path).expect("fits");
        assert_eq!(found, [("vhost", "/".to_owned()), ("name", "q".to_owned())]);
        assert!(captured("/queues/{vhost}", &path).is_none());
        assert!(captured("/queues/{vhost}/{name}/get", &path).is_none());
    }
}
