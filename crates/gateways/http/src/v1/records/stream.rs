//! A live stream of all partitions of a topic, as server-sent events (WHATWG HTML 9.2).
//!
//! The response is produced as the client reads, without read-ahead. A slow client costs one batch, and misses only
//! records that retention removes meanwhile, which an event reports.

use std::collections::VecDeque;
use std::convert::Infallible;

use access::Operation;
use access_rules::quota::Quota;
use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, Uri};
use axum::response::{IntoResponse, Response};
use broker::{Broker, Watch};
use bytes::Bytes;
use futures_util::stream::unfold;
use serde::Deserialize;
use tokio::time::{Instant, timeout_at};
use utoipa::IntoParams;

use crate::connection::Peer;
use crate::front::FrontEnd;
use crate::limits::{HTTP_SSE_COMMENT_EVERY, HTTP_STREAM_PARTITIONS_MAX};
use crate::login::RequestClient;
use crate::problem::{Kind, Problem};
use crate::quotas::RequestCharges;
use crate::request_input;
use crate::v1::records::document::Record;
use crate::v1::records::read::{ReadLimits, current, locate, position, some};
use crate::v1::topics::{TopicInfo, find};

const LAST_EVENT: &str = "last-event-id";
/// Records per read.
const AT_ONCE: ReadLimits = ReadLimits { records: 100, bytes: 1 << 20 };

#[derive(Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::v1) struct StreamQuery {
    /// As for reading a partition, but for an offset; `latest` where nothing is said.
    from: String,
}

impl Default for StreamQuery {
    fn default() -> Self {
        Self { from: "latest".into() }
    }
}

/// Follow a topic: an event for each record, whose id is to be sent as `Last-Event-ID` to go on behind it. A comment comes
/// every 15 seconds, and `event: skipped` where retention took records before they were sent.
#[utoipa::path(
    get,
    path = "/v1/topics/{topic}/stream",
    tag = "records",
    params(
        ("topic" = String, Path),
        StreamQuery,
        ("Last-Event-ID" = Option<String>, Header, description = "the id of the last event that came"),
    ),
    responses((status = 200, body = Record, content_type = "text/event-stream"))
)]
pub(in crate::v1) async fn stream(
    State(front): State<FrontEnd>,
    Extension(caller): Extension<RequestClient>,
    Extension(peer): Extension<Peer>,
    Path(topic): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let StreamQuery { from } = request_input::query(&uri)?;
    let broker = front.opened()?.broker.clone();
    let topic = find(&broker, &caller, Operation::Browse, &topic)?;
    if topic.partitions as usize > HTTP_STREAM_PARTITIONS_MAX {
        let detail = format!("the topic has {} partitions: read each by itself", topic.partitions);
        let most = HTTP_STREAM_PARTITIONS_MAX as u64;
        return Err(Problem::limited(Kind::Invalid, detail, most));
    }
    let spending = RequestCharges::begin(front.opened()?, &caller, Quota::ConsumerByteRate)?;
    current(&broker, &topic.all()).await?;
    let positions = match headers.get(LAST_EVENT) {
        Some(last) => resumed(&topic, last.to_str().unwrap_or_default())?,
        None => begun(&broker, &topic, &from).await?,
    };
    let watch = broker.watch();
    watch.add_all(&topic.all());
    let tail = Tail {
        spending,
        owed: 0,
        broker,
        front,
        peer,
        caller,
        topic,
        positions,
        watch,
        turn: 0,
        ready: VecDeque::new(),
        comment_due: Instant::now() + HTTP_SSE_COMMENT_EVERY,
    };
    let chunks = unfold(tail, |mut tail| async move {
        let chunk = tail.next().await?;
        Some((Ok::<_, Infallible>(chunk), tail))
    });
    let headers = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store")];
    let mut response = (headers, Body::from_stream(chunks)).into_response();
    // Buffering proxies would hold events back.
    let not_collected = axum::http::HeaderValue::from_static("no");
    response.headers_mut().insert("x-accel-buffering", not_collected);
    Ok(response)
}

async fn begun(broker: &Broker, topic: &TopicInfo, from: &str) -> Result<Vec<u64>, Problem> {
    if from.parse::<u64>().is_ok() {
        let detail = "from: an offset is of one partition; use a time, -N, earliest or latest";
        return Err(Problem::new(Kind::BadRequest, detail));
    }
    let position = position(from, broker)?;
    let mut positions = Vec::with_capacity(topic.partitions as usize);
    for partition in topic.all() {
        positions.push(locate(broker, partition, position).await?);
    }
    Ok(positions)
}

/// Offsets of all partitions, separated by dots.
fn written(positions: &[u64]) -> String {
    let texts: Vec<String> = positions.iter().map(u64::to_string).collect();
    texts.join(".")
}

/// Partitions added since then begin at offset 0.
fn resumed(topic: &TopicInfo, text: &str) -> Result<Vec<u64>, Problem> {
    let parsed: Result<Vec<u64>, _> = text.split('.').map(str::parse).collect();
    let wrong = || Problem::new(Kind::BadRequest, "the Last-Event-ID is none of this topic");
    let mut positions = parsed.map_err(|_| wrong())?;
    if positions.len() > topic.partitions as usize {
        return Err(wrong());
    }
    positions.resize(topic.partitions as usize, 0);
    Ok(positions)
}

/// State of a stream: positions, and chunks to send.
struct Tail {
    spending: RequestCharges,
    /// Bytes delivered and not yet charged.
    owed: u64,
    broker: Broker,
    front: FrontEnd,
    peer: Peer,
    caller: RequestClient,
    topic: TopicInfo,
    /// By partition: the offset of the next record to be sent.
    positions: Vec<u64>,
    watch: Watch,
    /// The partition to read next.
    turn: usize,
    ready: VecDeque<Bytes>,
    comment_due: Instant,
}

impl Tail {
    /// The next chunk; `None`: the stream ends.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(chunk) = self.ready.pop_front() {
                self.comment_due = Instant::now() + HTTP_SSE_COMMENT_EVERY;
                return Some(chunk);
            }
            // Rights may have changed since the stream began.
            let node = self.front.node()?;
            if self.front.is_draining() || !self.caller.still_reads(node, &self.topic.name) {
                return None;
            }
            let owed = std::mem::take(&mut self.owed);
            tokio::select! {
                biased;
                () = self.spending.charge_and_wait(owed), if owed > 0 => {}
                () = self.front.draining(), if owed > 0 => return None,
                else => {}
            }
            if self.collect().await? {
                continue;
            }
            tokio::select! {
                biased;
                () = self.front.draining() => return None,
                waited = timeout_at(self.comment_due, self.watch.ready()) => {
                    if waited.is_err() {
                        self.comment_due = Instant::now() + HTTP_SSE_COMMENT_EVERY;
                        return Some(Bytes::from_static(b": still here\n\n"));
                    }
                }
            }
            let _ = self.watch.take_ready();
        }
    }

    /// Reads from the next partition with new records; false: there are none. `None`: the topic is gone or damaged.
    async fn collect(&mut self) -> Option<bool> {
        let partitions = self.topic.all();
        for _ in 0..partitions.len() {
            let at = self.turn % partitions.len();
            self.turn = at + 1;
            let (partition, from) = (partitions[at], self.positions[at]);
            let start = self.broker.bounds_of(partition).await.ok()??.log_start;
            if from < start {
                let skipped = format!(
                    "event: skipped\ndata: {{\"partition\":{at},\"from\":{from},\"to\":{start}}}\n\n"
                );
                self.positions[at] = start;
                self.ready.push_back(skipped.into());
            }
            let mut found = Vec::new();
            let read = some(&self.broker, partition, self.positions[at], AT_ONCE, &mut found).await;
            let next = read.ok()?;
            let bytes: usize = found.iter().map(|(_, bytes)| bytes).sum();
            self.peer.connection.traffic().delivered(bytes as u64);
            self.owed += bytes as u64;
            for (record, _) in found {
                self.positions[at] = record.offset + 1;
                let id = written(&self.positions);
                let data = serde_json::to_string(&record).ok()?;
                self.ready.push_back(format!("id: {id}\ndata: {data}\n\n").into());
            }
            self.positions[at] = next;
            if !self.ready.is_empty() {
                return Some(true);
            }
        }
        Some(false)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use base::TopicId;

    use super::*;

    #[test]
    fn event_id_holds_the_position_in_each_partition() {
        let topic =
            TopicInfo { id: TopicId(1), name: "t".into(), partitions: 3, config: Arc::default() };
        assert_eq!(written(&[4, 0, 12]), "4.0.12");
        assert_eq!(resumed(&topic, "4.0.12").expect("positions"), [4, 0, 12]);
        assert_eq!(resumed(&topic, "4").expect("it grew"), [4, 0, 0]);
        for wrong in ["", "a", "1.2.3.4", "1,2", "-1"] {
            assert!(resumed(&topic, wrong).is_err(), "{wrong}");
        }
    }
}
