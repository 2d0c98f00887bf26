//! Which version of HTTP a connection is of: what both sides agreed on when they began to encrypt, and else what the
//! client's first bytes are (RFC 9113, section 3.3).

use std::io;

use bytes::Bytes;
use gateway::Socket;
use gateway::tls::HTTP2;
use tokio::io::AsyncReadExt;

/// What a client of HTTP/2 says first. Nothing of HTTP/1 begins like that.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Version {
    Http1,
    Http2,
}

/// The version of a connection, and what was read of it to find that out.
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
        // What has ended is told so by who speaks HTTP/1.
        if more == 0 || !PREFACE.starts_with(said) {
            return Ok((Version::Http1, Bytes::copy_from_slice(said)));
        }
    }
}
