//! The web console, whose pages use only `/v1`.
//!
//! Its files are built from `console/` at the root of the repository and committed, so that the broker builds without
//! Node. They are embedded in the binary. They are public and need no log-in; the data that they show is requested as
//! the logged-in user. Browsers revalidate each file (`no-cache` with an `ETag`), so that an upgrade never leaves the
//! pages of an older version in use.

use std::io::Write;
use std::sync::OnceLock;

use aws_lc_rs::digest::{SHA256, digest};
use axum::Router;
use axum::http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, IF_NONE_MATCH, VARY,
};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::front::FrontEnd;

/// A file of the console.
#[derive(Debug)]
struct File {
    path: &'static str,
    content_type: &'static str,
    bytes: &'static [u8],
    prepared: OnceLock<PreparedPage>,
}

/// Derived once for all requests.
#[derive(Debug)]
struct PreparedPage {
    tag: HeaderValue,
    /// `None`: compression would not make it smaller.
    packed: Option<Bytes>,
}

macro_rules! files {
    ($($path:literal, $name:literal, $content_type:literal;)*) => {
        static FILES: [File; [$($path,)*].len()] = [$(File {
            path: $path,
            content_type: $content_type,
            bytes: include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../console/dist/", $name)),
            prepared: OnceLock::new(),
        },)*];
    };
}

files! {
    "/", "index.html", "text/html; charset=utf-8";
    "/console/app.js", "app.js", "text/javascript; charset=utf-8";
    "/console/app.css", "app.css", "text/css; charset=utf-8";
    "/console/icon.svg", "icon.svg", "image/svg+xml";
}

pub(crate) fn routes() -> Router<FrontEnd> {
    FILES.iter().fold(Router::new(), |routes, file| {
        routes.route(file.path, get(move |headers: HeaderMap| async move { file.answer(&headers) }))
    })
}

impl File {
    fn prepared(&self) -> &PreparedPage {
        self.prepared.get_or_init(|| {
            let hash = digest(&SHA256, self.bytes);
            let hex: String = hash.as_ref()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
            // Letters and digits can stand in a header.
            let tag = HeaderValue::from_str(&format!("\"{hex}\""));
            let packed = packed(self.bytes).filter(|packed| packed.len() < self.bytes.len());
            PreparedPage { tag: tag.unwrap_or(HeaderValue::from_static("\"\"")), packed }
        })
    }

    fn answer(&self, asked: &HeaderMap) -> Response {
        let PreparedPage { tag, packed } = self.prepared();
        let mut headers = HeaderMap::new();
        headers.insert(ETAG, tag.clone());
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
        if is_known(asked, tag) {
            return (StatusCode::NOT_MODIFIED, headers).into_response();
        }
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        match packed.as_ref().filter(|_| takes_gzip(asked)) {
            Some(packed) => {
                headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
                (headers, packed.clone()).into_response()
            }
            None => (headers, self.bytes).into_response(),
        }
    }
}

fn packed(bytes: &[u8]) -> Option<Bytes> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).ok()?;
    encoder.finish().ok().map(Bytes::from)
}

/// Whether the browser has this version of the file.
fn is_known(asked: &HeaderMap, tag: &HeaderValue) -> bool {
    let Some(known) = asked.get(IF_NONE_MATCH).and_then(|it| it.to_str().ok()) else {
        return false;
    };
    let same = |text: &str| text.trim().trim_start_matches("W/").as_bytes() == tag.as_bytes();
    known.trim() == "*" || known.split(',').any(same)
}

fn takes_gzip(asked: &HeaderMap) -> bool {
    let taken = asked.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    taken.flat_map(|value| value.split(',')).any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        let is_gzip = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
        let is_refused = parts.any(|part| {
            let quality = part.strip_prefix("q=").and_then(|it| it.parse::<f32>().ok());
            quality.is_some_and(|quality| quality == 0.0)
        });
        is_gzip && !is_refused
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compressed size of the files of the first page. All pages together may have 150 KiB.
    const FIRST_BYTES_MAX: usize = 60 << 10;

    fn packed_len(file: &File) -> usize {
        file.prepared().packed.as_ref().map_or(file.bytes.len(), Bytes::len)
    }

    #[test]
    fn console_files_stay_within_their_size_limit() {
        let all: usize = FILES.iter().map(packed_len).sum();
        // The first page needs all of them.
        assert!(all <= FIRST_BYTES_MAX, "{all}");
    }

    /// The node's content security policy blocks other hosts and inline code.
    #[test]
    fn page_has_no_inline_code_or_style_and_nothing_from_other_hosts() {
        let page = std::str::from_utf8(FILES[0].bytes).expect("text");
        assert!(
            page.contains("<script type=\"module\" src=\"/console/app.js\"></script>"),
            "{page}"
        );
        for forbidden in ["<style", "style=", "http:", "https:", "onload", "javascript:"] {
            assert!(!page.contains(forbidden), "{forbidden}");
        }
        assert_eq!(page.matches("<script").count(), 1);
    }

    #[test]
    fn scripts_never_turn_text_into_code_or_markup() {
        for file in FILES.iter().filter(|file| file.path.ends_with(".js")) {
            let text = std::str::from_utf8(file.bytes).expect("text");
            for forbidden in ["eval(", "new Function", "document.write", "insertAdjacentHTML"] {
                assert!(!text.contains(forbidden), "{}: {forbidden}", file.path);
            }
        }
    }

    #[test]
    fn gzip_is_sent_only_to_clients_that_accept_it() {
        let of = |text: &'static str| {
            takes_gzip(&HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static(text))]))
        };
        for taken in ["gzip", "br, gzip", "GZIP;q=0.5, br", "deflate,gzip ; q=1"] {
            assert!(of(taken), "{taken}");
        }
        for refused in ["", "br", "gzip;q=0", "xgzip", "identity, gzip; q=0.0"] {
            assert!(!of(refused), "{refused}");
        }
    }
}
