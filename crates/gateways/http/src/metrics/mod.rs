//! Metrics of the node, in the two text formats of Prometheus ([`format`]).
//!
//! The number of series does not depend on the stored data: labels are protocols, shards and routes, and never names
//! of topics, groups, users or addresses. All counters are the node's own since its start, and not sums over objects
//! that may be deleted.
//!
//! * `detailed`: the exception, for single topics and groups by name
//! * `families`: families of the node; `requests`: families of its own requests; `writer`: encodes families

mod detailed;
mod families;
mod format;
mod requests;
mod writer;

use access_rules::acl::Action;
use axum::Extension;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use world::Instant;

use crate::front::{FrontEnd, Node};
use crate::login::RequestClient;
use crate::problem::{Kind, Problem};

pub(crate) use detailed::detailed;
use format::Format;
use writer::Writer;

const PREFIX: &str = "postroad";

/// `GET /metrics`, for users with the right to describe the cluster.
pub(crate) async fn all(
    State(front): State<FrontEnd>,
    Extension(caller): Extension<RequestClient>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    caller.cluster(Action::Describe)?;
    scraped(front, &headers)
}

/// `GET /metrics` on the metrics port, without authentication.
pub(crate) async fn without_names(
    State(front): State<FrontEnd>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    scraped(front, &headers)
}

fn scraped(front: FrontEnd, headers: &HeaderMap) -> Result<Response, Problem> {
    let node = front.node().cloned().ok_or_else(Problem::starting)?;
    written(Scrape { node, front }, headers)
}

fn written(collector: impl Collector, headers: &HeaderMap) -> Result<Response, Problem> {
    let mut registry = Registry::with_prefix(PREFIX);
    registry.register_collector(Box::new(collector));
    let mut text = String::new();
    encode(&mut text, &registry)
        .map_err(|_| Problem::new(Kind::Failed, "the metrics could not be written"))?;
    let format = Format::accepted(headers);
    Ok(([(CONTENT_TYPE, format.content_type())], format.convert(text)).into_response())
}

#[derive(Debug)]
struct Scrape {
    node: Node,
    front: FrontEnd,
}

impl Collector for Scrape {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        let begun = Instant::now();
        let mut writer = Writer::new(encoder);
        families::write(&mut writer, &self.node, &self.front)?;
        self.front.requests().write(&mut writer)?;
        let took = begun.elapsed().as_secs_f64();
        writer.gauge("metrics_scrape_seconds", "Time that it took to write these lines", took)
    }
}
