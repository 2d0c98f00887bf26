//! Detects the HTTP version of a connection: by ALPN on TLS, else by the client's first bytes (RFC 9113, section
//! 3.3).

use std::io;

use bytes::Bytes;
use gateway::Socket;
use gateway::tls::HTTP2;
use tokio::io::AsyncReadExt;

/// Connection preface of HTTP/2 clients. No HTTP/1 request begins like that.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Version {
    Http1,
    Http2,
}

/// The version of a connection, and the bytes that were read to detect it.
pub(crate) async fn version(socket: &mut Socket) -> io::Result<(Version, Bytes)> {
    if socket.is_encrypted() {
        let is_2 = socket.application_protocol() == Some(HTTP2);
        return Ok((if is_2 { Version::Http2 } else { Version::Http1 }, Bytes::new()));
    }
    let (mut first, mut read) = ([0; PREFACE.len()], 0);
    loop {
        let more = socket.read(&mut first[read..]).await?;
        read += more;
        let said = &first[..read];
        if said == PREFACE {
            return Ok((Version::Http2, Bytes::from_static(PREFACE)));
        }
        // The HTTP/1 server also handles connections that were closed early.
        if more == 0 || !PREFACE.starts_with(said) {
            return Ok((Version::Http1, Bytes::copy_from_slice(said)));
        }
    }
}
