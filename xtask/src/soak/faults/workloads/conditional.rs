//! Conditional changes of a topic's configuration over HTTP, by writers at all nodes.

use std::time::{Duration, Instant};

use super::super::target::{Kafka, TIMEOUT, WorkloadContext};
use super::{Check, WorkloadResult, joined};
use crate::failure::{Failure, Outcome};
use crate::random::Random;
use crate::soak::http::request;
use histories::conditional::{Write, WriteOutcome, check};

const TOPIC: &str = "register";
const PATH: &str = "/v1/topics/register";
const WRITERS: usize = 3;
const READ_WITHIN: Duration = Duration::from_secs(30);
const OK: u16 = 200;
const PRECONDITION_FAILED: u16 = 412;

pub(super) fn prepare(target: &WorkloadContext) -> Outcome {
    let mut kafka = Kafka::new(target, 0);
    Ok(kafka.at(0, |connection| connection.create_topic(TOPIC, 1, &[]))?)
}

pub(super) fn start(target: &WorkloadContext, seed: u64) -> Check {
    let writer = |number: usize| {
        let target = target.clone();
        std::thread::spawn(move || write(&target, number, seed))
    };
    let writers: Vec<_> = (0..WRITERS).map(writer).collect();
    Box::new(move |target| {
        let (mut history, mut found) = (Vec::new(), WorkloadResult::default());
        for writer in writers {
            history.extend(joined(writer)?);
        }
        history.sort_by_key(|write: &Write| write.at);
        let made = history.iter().filter(|it| matches!(it.made, WriteOutcome::Yes(_))).count();
        found.counts.insert("conditional writes made", made as u64);
        found.counts.insert("conditional writes tried", history.len() as u64);
        let end = last_version(target)?;
        found.violations = check(&history, Some(&end));
        Ok(found)
    })
}

/// The version on which all nodes agree.
fn last_version(target: &WorkloadContext) -> Outcome<String> {
    let deadline = Instant::now() + READ_WITHIN;
    while Instant::now() < deadline {
        let read = |node: &std::net::SocketAddr| {
            request((*node, TIMEOUT), "GET", PATH, &[], "").ok()?.etag
        };
        let versions: Option<Vec<String>> = target.addresses.http.iter().map(read).collect();
        if let Some(versions) = versions
            && versions.windows(2).all(|pair| pair[0] == pair[1])
            && let Some(version) = versions.into_iter().next()
        {
            return Ok(version);
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    Err(Failure::new(format!("the nodes do not agree on the version of {PATH}")))
}

fn write(target: &WorkloadContext, number: usize, seed: u64) -> Vec<Write> {
    let mut random = Random::new(seed ^ (number as u64 + 600));
    let mut history = Vec::new();
    while !target.stops() {
        let reader = target.addresses.http[target.any(&mut random)];
        let version =
            request((reader, TIMEOUT), "GET", PATH, &[], "").ok().and_then(|answer| answer.etag);
        if let Some(replaces) = version {
            let node = target.any(&mut random);
            let retention = 86_400_000 + random.between(0, 1 << 40);
            let change = format!("{{\"config\":{{\"retention.ms\":\"{retention}\"}}}}");
            let headers = [("If-Match", replaces.as_str()), ("Content-Type", "application/json")];
            let answer =
                request((target.addresses.http[node], TIMEOUT), "PATCH", PATH, &headers, &change);
            let made = match answer {
                Ok(answer) if answer.status == OK => {
                    answer.etag.map_or(WriteOutcome::Perhaps, WriteOutcome::Yes)
                }
                Ok(answer) if answer.status == PRECONDITION_FAILED => WriteOutcome::No,
                _ => WriteOutcome::Perhaps,
            };
            history.push(Write { replaces, node, at: target.now(), made });
        }
        std::thread::sleep(Duration::from_millis(random.between(5, 40)));
    }
    history
}
