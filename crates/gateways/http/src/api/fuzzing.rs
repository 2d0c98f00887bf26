//! Invariants of requests of the management API.

use crate::api::definitions::import;
use crate::api::request::call::{ObjectReader, object};
use crate::api::request::path::{Query, escaped, segments};
use crate::limits::HTTP_DOCUMENT_LIMITS;

/// Segments of a path survive escaping and decoding.
pub(crate) fn path(path: &str) {
    let Ok(named) = segments(path) else { return };
    let again: String = named.iter().map(|segment| format!("/{}", escaped(segment))).collect();
    assert_eq!(segments(&format!("/api{again}")).ok(), Some(named));
}

pub(crate) fn query(text: &str) {
    if let Ok(query) = Query::of(Some(text)) {
        let _ = (query.get("page"), query.is_true("disable_stats"));
    }
}

/// A request body.
pub(crate) fn body(bytes: &[u8]) {
    let Ok(map) = object(bytes, &HTTP_DOCUMENT_LIMITS) else { return };
    let said = ObjectReader(&map);
    for name in map.keys() {
        let _ = (said.is_there(name), said.text(name).is_ok(), said.needed(name).is_ok());
        let _ = (said.flag(name, true).is_ok(), said.integer(name, 1).is_ok());
        let _ = (said.object(name).is_ok(), said.texts(name).is_ok());
    }
}

/// A form with a file in it. The first line of the input is the boundary.
pub(crate) fn form(bytes: &[u8]) {
    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else { return };
    let (boundary, body) = (&bytes[..end], &bytes[end + 1..]);
    let Ok(boundary) = std::str::from_utf8(boundary) else { return };
    if let Some(place) = import::part(body, boundary) {
        let content = &body[place];
        let mark = format!("\r\n--{boundary}");
        let has_mark = content.windows(mark.len()).any(|window| window == mark.as_bytes());
        assert!(!has_mark, "a part goes on behind its boundary");
    }
}
