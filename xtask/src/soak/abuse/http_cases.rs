//! Abuse by HTTP clients.

use std::time::{Duration, Instant};

use client::blocking::Connection;
use host::process::{self, Memory};

use super::bystanders::failed;
use super::{Abuse, Case, PATIENCE};
use crate::failure::{Failure, Outcome};
use crate::soak::http::request;

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
            let path = format!("/v1/topics/{TOPIC}/records");
            let headers = [("Content-Type", "application/json")];
            let status = request((abuse.http, PATIENCE), "POST", &path, &headers, &body)?.status;
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
        let status = request((abuse.http, PATIENCE), "GET", "/health/live", &[], "")?.status;
        if status != 200 {
            return Err(Failure::new(format!("/health/live is answered with {status}")));
        }
        longest = longest.max(begun.elapsed());
        std::thread::sleep(PROBE_EVERY);
    }
    Ok(longest)
}
