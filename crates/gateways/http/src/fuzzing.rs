//! What must hold of what a request says, as far as it is read here and not by hyper, whatever it is: for fuzz targets,
//! and for tests of what those found.

use axum::http::header::{COOKIE, HOST};
use axum::http::{HeaderMap, HeaderValue, Request, Uri};
use operations::position::Position;
use operations::time::{parse_duration, parse_time};
use tokio::time::Instant;

use crate::frames::Frames;
use crate::{api, hosts, http2, login, sessions, v1};

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
    if let Ok(uri) = Uri::builder().scheme("http").authority(bytes).path_and_query("/a?b").build() {
        let mut request = Request::new(());
        *request.uri_mut() = uri;
        http2::as_of_http1(&mut request).expect("it is for one host");
        let host = request.headers().get(HOST).expect("the host is in its header");
        assert_eq!((host.as_bytes(), request.uri().to_string()), (bytes, "/a?b".to_owned()));
        // By a header of its own the same request would be for another one.
        request.headers_mut().append(HOST, HeaderValue::from_static("another.example"));
        assert!(http2::as_of_http1(&mut request).is_err());
    }
    let mut headers = HeaderMap::new();
    headers.insert(COOKIE, value);
    for encrypted in [false, true] {
        if let Some(id) = sessions::said(&headers, encrypted) {
            assert!(id.bytes().all(|byte| byte.is_ascii_hexdigit()));
        }
    }
}

/// What a client of HTTP/2 sends: the same frames are counted in whatever pieces it comes.
fn frames(bytes: &[u8]) {
    let now = Instant::now();
    let (mut whole, mut pieces) = (Frames::new(now), Frames::new(now));
    let of_whole = whole.came(bytes, now).is_ok();
    let of_pieces = bytes.chunks(7).all(|piece| pieces.came(piece, now).is_ok());
    assert_eq!(of_whole, of_pieces, "pieces make a difference");
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
