//! What must hold of what a request says, as far as it is read here and not by hyper, whatever it is: for fuzz targets,
//! and for tests of what those found.

use axum::http::header::COOKIE;
use axum::http::{HeaderMap, HeaderValue};
use operations::position::Position;
use operations::time::{parse_duration, parse_time};

use crate::{api, hosts, login, sessions, v1};

const NOW_MS: i64 = 1_793_019_600_000;

/// Part of a request, of which kind the first byte says.
pub fn part(data: &[u8]) {
    let Some((kind, part)) = data.split_first() else { return };
    match kind {
        b'b' => {
            api::fuzzing::body(part);
            v1::fuzzing::body(part);
        }
        b'h' => header(part),
        b'm' => api::fuzzing::form(part),
        kind => {
            let Ok(text) = std::str::from_utf8(part) else { return };
            match kind {
                b'q' => api::fuzzing::query(text),
                b'p' => api::fuzzing::path(text),
                b'l' => v1::fuzzing::lease(text),
                _ => place(text),
            }
        }
    }
}

/// A value of a header.
fn header(bytes: &[u8]) {
    let Ok(value) = HeaderValue::from_bytes(bytes) else { return };
    if let Ok(text) = value.to_str() {
        if let Some(credentials) = login::basic(text) {
            assert!(!credentials.name.contains(':'), "a name ends at the first colon");
        }
        let _ = login::of_scheme(text, "bearer");
        let _ = hosts::is_ours(text, &["node.example".to_owned()]);
    }
    let mut headers = HeaderMap::new();
    headers.insert(COOKIE, value);
    for encrypted in [false, true] {
        if let Some(id) = sessions::said(&headers, encrypted) {
            assert!(id.bytes().all(|byte| byte.is_ascii_hexdigit()));
        }
    }
}

/// A place or a time, as people type it.
fn place(text: &str) {
    let _ = Position::parse(text, NOW_MS).is_ok();
    let _ = parse_time(text, NOW_MS).is_ok();
    let _ = parse_duration(text).is_ok();
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_is_kept_of_requests_holds() {
        test_corpus::each("http_part", super::part);
    }
}
