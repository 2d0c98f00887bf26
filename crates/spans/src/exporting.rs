//! Sends spans to a collector: OTLP over HTTP in protobuf (opentelemetry.io/docs/specs/otlp).

use std::path::PathBuf;
use std::time::Duration;

use crate::limits::{
    TRACE_ANSWER_BYTES_MAX, TRACE_SENT_EVERY, TRACE_SENT_WITHIN, TRACE_SPANS_A_REQUEST_MAX,
};
use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Request, StatusCode};
use outbound::{Address, AuthoritiesError, Connection, RequestError, read_authorities};
use prost::Message;
use tasks::Task;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use world::{Instant, World};

use crate::conventions;
use crate::counts::Counts;
use crate::otlp::{
    ExportTraceServiceRequest, ExportTraceServiceResponse, Resource, ResourceSpans, ScopeSpans,
    Span,
};

/// Path below the address of the collector, as the specification requires.
const PATH: &str = "v1/traces";
/// Delay before the first retry; it doubles with each retry.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Attempts for one request.
const TRIES_MAX: u32 = 5;
/// Minimum time between two log lines about a failing collector.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// Destination of spans.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExportOptions {
    /// Address of the collector, without `/v1/traces`.
    pub endpoint: Address,
    /// Certificates in PEM of the authorities trusted to identify the collector; `None`: the system's.
    pub authorities: Option<PathBuf>,
    /// Added to each request: a key, for example.
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HeaderError {
    #[error("line {line} is not NAME: VALUE")]
    Line { line: usize },
    #[error("line {line} has no name of a header")]
    Name { line: usize },
    #[error("the value in line {line} cannot be that of a header")]
    Value { line: usize },
}

impl ExportOptions {
    /// Parses a file with one header a line: `NAME: VALUE`. Empty lines and lines that begin with `#` are ignored.
    pub fn parse_headers(text: &str) -> Result<Vec<(HeaderName, HeaderValue)>, HeaderError> {
        let lines = text.lines().map(str::trim).enumerate();
        let said = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let header = |(index, line): (usize, &str)| {
            let line_number = index + 1;
            let (name, value) =
                line.split_once(':').ok_or(HeaderError::Line { line: line_number })?;
            let name = name.trim().parse().map_err(|_| HeaderError::Name { line: line_number })?;
            let value = HeaderValue::from_str(value.trim());
            let mut value = value.map_err(|_| HeaderError::Value { line: line_number })?;
            // The value may be a key: logs and errors must not show it.
            value.set_sensitive(true);
            Ok((name, value))
        };
        said.map(header).collect()
    }

    fn address(&self) -> Address {
        let base = self.endpoint.path.trim_end_matches('/');
        Address { path: format!("{base}/{PATH}"), ..self.endpoint.clone() }
    }
}

#[derive(Debug, thiserror::Error)]
enum SendError {
    #[error(transparent)]
    Authorities(#[from] AuthoritiesError),
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error("no answer within {TRACE_SENT_WITHIN:?}")]
    Slow,
    #[error("the answer has status {0}")]
    Status(StatusCode),
}

impl SendError {
    /// Whether a retry may succeed (OTLP, "Failures").
    fn passes(&self) -> bool {
        match self {
            Self::Status(status) => [429, 502, 503, 504].contains(&status.as_u16()),
            _ => true,
        }
    }
}

async fn connect(
    address: &Address,
    options: &ExportOptions,
    world: &World,
) -> Result<Connection, SendError> {
    let believed = match address.is_encrypted {
        false => None,
        true => {
            let file = options.authorities.clone();
            Some(read_authorities(file, &world.workers, Task::TraceAuthorities).await?)
        }
    };
    Ok(Connection::open(address, believed, world.net).await?)
}

/// Sends spans in batches.
pub(crate) struct Exporter {
    options: ExportOptions,
    address: Address,
    resource: Resource,
    counts: Counts,
    world: World,
    connection: Option<Connection>,
    told_at: Option<Instant>,
    stopping: watch::Receiver<bool>,
}

impl Exporter {
    pub(crate) fn new(
        options: ExportOptions,
        resource: Resource,
        counts: Counts,
        world: &World,
        stopping: watch::Receiver<bool>,
    ) -> Self {
        let (address, world) = (options.address(), world.clone());
        let (connection, told_at) = (None, None);
        Self { options, address, resource, counts, world, connection, told_at, stopping }
    }

    /// Ends once every sender of spans is gone and the remaining spans are sent.
    pub(crate) async fn run(mut self, mut made: mpsc::Receiver<Span>) {
        let mut spans = Vec::new();
        loop {
            let count = made.recv_many(&mut spans, TRACE_SPANS_A_REQUEST_MAX).await;
            if count == 0 {
                return;
            }
            // More spans may come, and a request costs more than a span.
            if count < TRACE_SPANS_A_REQUEST_MAX {
                self.pause(TRACE_SENT_EVERY).await;
                while spans.len() < TRACE_SPANS_A_REQUEST_MAX {
                    let Ok(span) = made.try_recv() else { break };
                    spans.push(span);
                }
            }
            self.send_all(std::mem::take(&mut spans)).await;
        }
    }

    /// Ends early when the node stops.
    async fn pause(&mut self, time: Duration) {
        let _ = timeout(time, self.stopping.wait_for(|stopping| *stopping)).await;
    }

    /// Retries up to the limit; a stopping node tries once.
    async fn send_all(&mut self, spans: Vec<Span>) {
        let count = spans.len() as u64;
        let body = self.encode(spans);
        let mut again_after = AGAIN_AFTER;
        for tried in 1.. {
            let error = match self.send(body.clone()).await {
                Ok(rejected) => {
                    self.counts.export(count.saturating_sub(rejected));
                    self.counts.drop_spans(rejected.min(count));
                    return;
                }
                Err(error) => error,
            };
            self.connection = None;
            self.tell(&error);
            if *self.stopping.borrow() || tried == TRIES_MAX || !error.passes() {
                self.counts.drop_spans(count);
                return;
            }
            self.pause(again_after).await;
            again_after *= 2;
        }
    }

    fn encode(&self, spans: Vec<Span>) -> Bytes {
        let scope = Some(conventions::scope());
        let scope_spans = vec![ScopeSpans { scope, spans }];
        let resource = Some(self.resource.clone());
        let of_node = ResourceSpans { resource, scope_spans };
        ExportTraceServiceRequest { resource_spans: vec![of_node] }.encode_to_vec().into()
    }

    /// Returns the number of rejected spans.
    async fn send(&mut self, body: Bytes) -> Result<u64, SendError> {
        let sending = timeout(TRACE_SENT_WITHIN, self.send_unbounded(body));
        sending.await.map_err(|_| SendError::Slow)?
    }

    async fn send_unbounded(&mut self, body: Bytes) -> Result<u64, SendError> {
        let mut request = Request::post(&self.address.path)
            .header(CONTENT_TYPE, "application/x-protobuf")
            .body(Full::new(body))
            .map_err(RequestError::from)?;
        for (name, value) in &self.options.headers {
            request.headers_mut().append(name, value.clone());
        }
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => connect(&self.address, &self.options, &self.world).await?,
        };
        let answer = connection.send(request, TRACE_ANSWER_BYTES_MAX).await?;
        if !answer.status().is_success() {
            return Err(SendError::Status(answer.status()));
        }
        self.connection = Some(connection);
        // A collector that accepted all spans may reply with an empty body.
        let said = ExportTraceServiceResponse::decode(answer.into_body()).unwrap_or_default();
        let partial = said.partial_success.unwrap_or_default();
        if partial.rejected_spans > 0 {
            let rejected = partial.rejected_spans;
            tracing::warn!(rejected, reason = partial.error_message, "the collector rejects spans");
        }
        Ok(u64::try_from(partial.rejected_spans).unwrap_or(0))
    }

    fn tell(&mut self, error: &SendError) {
        let now = Instant::now();
        if self.told_at.is_none_or(|at| now.saturating_duration_since(at) >= TOLD_EVERY) {
            self.told_at = Some(now);
            let to = &self.options.endpoint;
            tracing::warn!(%to, %error, "spans are not taken by the collector of traces");
        }
    }
}
