//! Status of a node: by the command line's own request, and its metrics by HTTP.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use operations::cluster::{Operation as ClusterOperation, Status};
use operations::document::{ConnectionPage, Operation, ShardList};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use world::Net;

use super::{ClientOptions, InspectedItem, json};
use crate::cluster;
use crate::command_error::CommandError;
use crate::operator_token;

const ANSWERED_WITHIN: Duration = Duration::from_secs(10);
const METRICS_BYTES_MAX: u64 = 16 << 20;
const CONNECTIONS_MAX: u32 = 1_000;

/// Replies of the node, or the reason of their absence.
pub(super) struct Node {
    pub(super) shards: Result<ShardList, String>,
    /// A single node has none.
    pub(super) cluster: Result<Status, String>,
    /// Number of connections by protocol, among the first thousand.
    pub(super) connections: Result<BTreeMap<String, usize>, String>,
    pub(super) metrics: Result<String, String>,
}

fn words(error: &CommandError) -> String {
    match error {
        CommandError::User(error) | CommandError::Server(error) => error.to_string(),
        CommandError::OutputClosed => String::new(),
    }
}

async fn soon<T>(asking: impl Future<Output = Result<T, CommandError>>) -> Result<T, String> {
    match timeout(ANSWERED_WITHIN, asking).await {
        Ok(answered) => answered.map_err(|error| words(&error)),
        Err(_) => Err(format!("no answer within {ANSWERED_WITHIN:?}")),
    }
}

pub(super) async fn ask(client: &ClientOptions, http: &str, data: &Path) -> Node {
    let metrics = metrics(http, data).await;
    let client = match soon(client.connect()).await {
        Ok(client) => client,
        Err(why) => {
            let none = || Err(why.clone());
            return Node {
                shards: Err(why.clone()),
                cluster: Err(why.clone()),
                connections: none(),
                metrics,
            };
        }
    };
    let shards = soon(async { Ok(client.operate(&Operation::ListShards {}).await?) }).await;
    let status = ClusterOperation::Status {};
    let cluster = soon(async { Ok(cluster::operate(&client, &status).await?) }).await;
    let list = Operation::ListConnections { after: None, connections_max: CONNECTIONS_MAX };
    let page: Result<ConnectionPage, _> = soon(async { Ok(client.operate(&list).await?) }).await;
    let connections = page.map(|page| {
        let mut counts = BTreeMap::new();
        for connection in page.connections {
            *counts.entry(connection.protocol).or_default() += 1;
        }
        counts
    });
    Node { shards, cluster, connections, metrics }
}

impl Node {
    /// All replies.
    pub(super) fn seen(&self) -> Vec<InspectedItem> {
        let shards = self.shards.as_ref().ok().map(|it| json("shards.json", it));
        let cluster = self.cluster.as_ref().ok().map(|it| json("cluster.json", it));
        let connections = self.connections.as_ref().ok().map(|it| json("connections.json", it));
        let metrics = self.metrics.as_ref().ok();
        let metrics = metrics.map(|it| InspectedItem { name: "metrics.txt", text: it.clone() });
        [shards, cluster, connections, metrics].into_iter().flatten().collect()
    }

    /// Value of a series, given as it is written.
    pub(super) fn metric(&self, series: &str) -> Option<f64> {
        let lines = self.metrics.as_ref().ok()?.lines();
        let mut values = lines.filter_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        values.next()?.split(' ').next()?.parse().ok()
    }
}

async fn metrics(http: &str, data: &Path) -> Result<String, String> {
    if http == "off" {
        return Err("not asked".to_owned());
    }
    match timeout(ANSWERED_WITHIN, scraped(http, data)).await {
        Ok(scraped) => scraped,
        Err(_) => Err(format!("no answer within {ANSWERED_WITHIN:?}")),
    }
}

async fn scraped(http: &str, data: &Path) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("{http}: {error}");
    let mut stream = Net::Kernel.connect(http).await.map_err(failed)?;
    let peer = stream.peer_addr().map_err(failed)?;
    // The token is sent only on this machine.
    let token = operator_token::read(&operator_token::path(data)).ok();
    let said = token.filter(|_| peer.ip().to_canonical().is_loopback()).map(|token| {
        let credentials = BASE64.encode(format!("{}:{token}", access_rules::OPERATOR));
        format!("authorization: Basic {credentials}\r\n")
    });
    let said = said.unwrap_or_default();
    let request =
        format!("GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{said}\r\n");
    stream.write_all(request.as_bytes()).await.map_err(failed)?;
    let mut answer = Vec::new();
    (&mut stream).take(METRICS_BYTES_MAX).read_to_end(&mut answer).await.map_err(failed)?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.lines().next().unwrap_or_default();
    match status.split(' ').nth(1) {
        Some("200") => Ok(body.to_owned()),
        _ => Err(format!("{http} answers {status:?}")),
    }
}
