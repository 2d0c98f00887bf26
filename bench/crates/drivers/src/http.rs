//! GET of JSON from a server's management port.

use std::io;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Larger than any reply.
const ANSWER_MAX: u64 = 16 << 20;

/// `login`: user and password in base64, as in HTTP basic authentication.
pub(crate) async fn json(address: &str, path: &str, login: Option<&str>) -> io::Result<Value> {
    let mut stream = TcpStream::connect(address).await?;
    let login = login.map_or(String::new(), |login| format!("Authorization: Basic {login}\r\n"));
    let request =
        format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n{login}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.take(ANSWER_MAX).read_to_string(&mut answer).await?;
    body(&answer).map_err(|why| io::Error::other(format!("{path}: {why}")))
}

fn body(answer: &str) -> Result<Value, String> {
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("no answer of HTTP")?;
    let status = head.lines().next().unwrap_or_default();
    if status.split(' ').nth(1) != Some("200") {
        return Err(status.to_owned());
    }
    serde_json::from_str(body).map_err(|error| format!("no JSON: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_json_with_status_200_is_accepted() {
        let found = body("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[7]").expect("it is one");
        assert_eq!(found[0], 7);
        for (answer, why) in [
            ("HTTP/1.0 401 Unauthorized\r\n\r\n{}", "401 Unauthorized"),
            ("HTTP/1.0 200 OK\r\n\r\n<html>", "no JSON"),
            ("", "no answer"),
        ] {
            let refused = body(answer).expect_err(why);
            assert!(refused.contains(why), "{refused}");
        }
    }
}
