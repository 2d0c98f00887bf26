//! Invariants of the parts of requests that are parsed here and not by hyper, for any input: for fuzz targets, and
//! for tests of their findings.

use axum::http::header::{COOKIE, HOST};
use axum::http::{HeaderMap, HeaderValue, Request, Uri};
use operations::position::Position;
use operations::time::{parse_duration, parse_time};
use tokio::time::Instant;

use crate::connection::frames::Frames;
use crate::connection::http2;
use crate::layers::hosts;
use crate::{api, login, sessions, v1};

const NOW_MS: i64 = 1_793_019_600_000;

/// A part of a request; the first byte selects its kind.
pub fn part(data: &[u8]) {
    let Some((kind, part)) = data.split_first() else { return };
    match kind {
        b'b' => {
            api::fuzzing::body(part);
            v1::fuzzing::body(part);
        }
        b'h' => header(part),
        b'f' => frames(part),
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

/// A header value.
fn header(bytes: &[u8]) {
    let Ok(value) = HeaderValue::from_bytes(bytes) else { return };
    if let Ok(text) = value.to_str() {
        if let Some(credentials) = login::basic(text) {
            assert!(!credentials.name.contains(':'), "a name ends at the first colon");
        }
        let _ = login::credentials_of_scheme(text, "bearer");
        let _ = hosts::is_ours(text, &["node.example".to_owned()]);
    }
    if let Ok(uri) = Uri::builder().scheme("http").authority(bytes).path_and_query("/a?b").build() {
        let mut request = Request::new(());
        *request.uri_mut() = uri;
        http2::to_http1_form(&mut request).expect("it is for one host");
        let host = request.headers().get(HOST).expect("the host is in its header");
        assert_eq!((host.as_bytes(), request.uri().to_string()), (bytes, "/a?b".to_owned()));
        // With an additional Host header the request would be for another host.
        request.headers_mut().append(HOST, HeaderValue::from_static("another.example"));
        assert!(http2::to_http1_form(&mut request).is_err());
    }
    let mut headers = HeaderMap::new();
    headers.insert(COOKIE, value);
    for encrypted in [false, true] {
        if let Some(id) = sessions::session_id(&headers, encrypted) {
            assert!(id.bytes().all(|byte| byte.is_ascii_hexdigit()));
        }
    }
}

/// An HTTP/2 client's frames: the counts do not depend on how the bytes are split.
fn frames(bytes: &[u8]) {
    let now = Instant::now();
    let (mut whole, mut pieces) = (Frames::new(now), Frames::new(now));
    let of_whole = whole.came(bytes, now).is_ok();
    let of_pieces = bytes.chunks(7).all(|piece| pieces.came(piece, now).is_ok());
    assert_eq!(of_whole, of_pieces, "pieces make a difference");
}

/// A position or a time, as a user types it.
fn place(text: &str) {
    let _ = Position::parse(text, NOW_MS).is_ok();
    let _ = parse_time(text, NOW_MS).is_ok();
    let _ = parse_duration(text).is_ok();
}

#[cfg(test)]
mod tests {
    #[test]
    fn request_corpus_holds_the_invariants() {
        test_corpus::each("http_part", super::part);
    }
}
