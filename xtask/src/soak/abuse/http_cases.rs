//! Abuse by HTTP clients.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use client::blocking::Connection;
use host::process::{self, Memory};

use super::bystanders::failed;
use super::{Abuse, Case, PATIENCE};
use crate::failure::{Failure, Outcome};

const TOPIC: &str = "documents";
const DOCUMENT_RECORDS: usize = 13_000_000;
/// Memory that a document of 39 MB may take.
const DOCUMENT_MEMORY_MAX: u64 = 256 << 20;
/// Limit of a reply time of `/health/live` during the abuse.
const PROBE_MAX: Duration = Duration::from_millis(50);
const POST_EVERY: Duration = Duration::from_millis(250);
const PROBE_EVERY: Duration = Duration::from_millis(10);

pub(super) fn all() -> Vec<Case> {
    vec![
        Case::new(
            "wide-document-http",
            "a document of 13,000,000 records, again and again",
            wide_document,
        )
        .after(topic),
    ]
}

fn topic(abuse: &Abuse) -> Outcome {
    let mut connection =
        Connection::open(abuse.kafka, PATIENCE).map_err(failed("cannot connect"))?;
    connection.create_topic(TOPIC, 1, &[]).map_err(failed("cannot create the topic"))?;
    Ok(())
}

fn wide_document(abuse: &Abuse) -> Outcome {
    let memory = |of| process::memory_bytes(abuse.pid, of).unwrap_or_default();
    let before = memory(Memory::Resident);
    let body = [r#"{"records":[{}"#, &",{}".repeat(DOCUMENT_RECORDS - 1), "]}"].concat();
    let longest = std::thread::scope(|scope| {
        let probe = scope.spawn(|| probe(abuse));
        while abuse.continues() {
            let status = post(abuse.http, &format!("/v1/topics/{TOPIC}/records"), &body)?;
            abuse.count((200..300).contains(&status));
            std::thread::sleep(POST_EVERY);
            if !(400..500).contains(&status) {
                return Err(Failure::new(format!("the document is answered with {status}")));
            }
        }
        probe.join().expect("the probe does not panic")
    })?;
    let more = memory(Memory::Peak).saturating_sub(before);
    abuse.note(format!("/health/live after {longest:.1?} at most, {} MB more memory", more >> 20));
    if longest > PROBE_MAX {
        return Err(Failure::new(format!("/health/live took {longest:.1?}")));
    }
    match more > DOCUMENT_MEMORY_MAX {
        true => Err(Failure::new(format!("{} MB more memory", more >> 20))),
        false => Ok(()),
    }
}

/// Longest reply time of the liveness probe.
fn probe(abuse: &Abuse) -> Outcome<Duration> {
    let mut longest = Duration::ZERO;
    while abuse.continues() {
        let begun = Instant::now();
        let request = format!("GET /health/live HTTP/1.1\r\n{}\r\n", headers(abuse.http));
        let status = exchange(abuse.http, &[request.as_bytes()])?;
        if status != 200 {
            return Err(Failure::new(format!("/health/live is answered with {status}")));
        }
        longest = longest.max(begun.elapsed());
        std::thread::sleep(PROBE_EVERY);
    }
    Ok(longest)
}

fn headers(address: SocketAddr) -> String {
    format!("Host: {address}\r\nConnection: close\r\n")
}

fn post(address: SocketAddr, path: &str, body: &str) -> Outcome<u16> {
    let head = format!(
        "POST {path} HTTP/1.1\r\n{}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        headers(address),
        body.len()
    );
    exchange(address, &[head.as_bytes(), body.as_bytes()])
}

/// Sends a request and returns the status of its response.
fn exchange(address: SocketAddr, request: &[&[u8]]) -> Outcome<u16> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    for part in request {
        match stream.write_all(part) {
            Ok(()) => {}
            // The server has rejected the rest.
            Err(error)
                if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) =>
            {
                break;
            }
            Err(error) => return Err(error.into()),
        }
    }
    let mut response = [0; 12];
    stream.read_exact(&mut response)?;
    let status = std::str::from_utf8(&response[9..]).ok().and_then(|status| status.parse().ok());
    status.ok_or_else(|| Failure::new("a response without a status"))
}
