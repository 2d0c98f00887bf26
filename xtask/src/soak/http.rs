//! HTTP requests of the soaks, each on a connection of its own.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Response of an HTTP request.
#[derive(Debug)]
pub(super) struct HttpReply {
    pub(super) status: u16,
    pub(super) etag: Option<String>,
}

/// Sends a request. Connecting, each write and each read fail after `within`.
pub(super) fn request(
    (address, within): (SocketAddr, Duration),
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Result<HttpReply> {
    let mut stream = TcpStream::connect_timeout(&address, within)?;
    stream.set_read_timeout(Some(within))?;
    stream.set_write_timeout(Some(within))?;
    let mut head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes())?;
    // The server may respond before it has the whole body, and close the connection.
    unless_closed(stream.write_all(body.as_bytes()))?;
    let mut response = Vec::new();
    unless_closed(stream.read_to_end(&mut response).map(drop))?;
    parse(&String::from_utf8_lossy(&response))
        .ok_or_else(|| Error::other("the response is no HTTP"))
}

fn unless_closed(result: Result<()>) -> Result<()> {
    let is_closed =
        |error: &Error| matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset);
    match result {
        Err(error) if is_closed(&error) => Ok(()),
        result => result,
    }
}

fn parse(response: &str) -> Option<HttpReply> {
    let (head, _) = response.split_once("\r\n\r\n")?;
    let status = head.split_ascii_whitespace().nth(1)?.parse().ok()?;
    let etag = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("etag").then(|| value.trim().to_owned())
    });
    Some(HttpReply { status, etag })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_of_http_is_parsed_with_its_etag() {
        let said = "HTTP/1.1 412 Precondition Failed\r\nETag: \"v7\"\r\nx: y\r\n\r\n{\"a\":1}";
        let HttpReply { status, etag } = parse(said).unwrap();
        assert_eq!((status, etag.as_deref()), (412, Some("\"v7\"")));
        assert!(parse("cut").is_none());
    }
}
