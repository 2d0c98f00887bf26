//! Leaders of a test's queues. AMQP does not report them. RabbitMQ does at the port of its
//! management plugin, Postroad in Kafka's Metadata, where a queue is a topic.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use driver::{Failure, Replication};
#[cfg(feature = "kafka")]
use rdkafka::ClientConfig;
use serde_json::Value;
use tokio::time::timeout;

use crate::http;
#[cfg(feature = "kafka")]
use crate::kafka;

const PATIENCE: Duration = Duration::from_secs(5);
const QUEUES: &str =
    "/api/queues?columns=name,leader,online&disable_stats=true&enable_queue_totals=true";

/// Replication of these queues, from the first port that replies. The ports are the nodes, in
/// order.
pub(super) async fn rabbitmq_queues(
    ports: &str,
    (user, password): (&str, &str),
    queues: &[String],
) -> Result<Vec<Replication>, Failure> {
    let login = STANDARD.encode(format!("{user}:{password}"));
    let mut failure = Failure::refused("there is no port to ask at");
    for address in ports.split(',') {
        let asked = timeout(PATIENCE, http::json(address, QUEUES, Some(&login))).await;
        let why = match asked {
            Ok(Ok(said)) => {
                return queues.iter().map(|queue| queue_replication(&said, queue)).collect();
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {PATIENCE:?}"),
        };
        failure = Failure::Unreachable { endpoint: address.to_owned(), why };
    }
    Err(failure)
}

fn queue_replication(said: &Value, queue: &str) -> Result<Replication, Failure> {
    let mut listed = said.as_array().into_iter().flatten();
    let found = listed.find(|it| it["name"] == queue);
    let found = found.ok_or_else(|| Failure::refused(format!("{queue} is not listed")))?;
    let online: Vec<&str> =
        found["online"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    // Without a leader the last one is still reported.
    let leader = found["leader"].as_str().filter(|leader| online.contains(leader));
    Ok(Replication { leader: leader.and_then(place), in_sync: online.len() as u32 })
}

/// Index of a node such as `bench2@localhost`: the suite numbers its nodes this way.
fn place(node: &str) -> Option<usize> {
    let name = node.split('@').next()?;
    let digits = name.trim_start_matches(|letter: char| !letter.is_ascii_digit());
    digits.parse::<usize>().ok()?.checked_sub(1)
}

/// Replication of these queues, from these Kafka addresses. They are the nodes, in order.
#[cfg(feature = "kafka")]
pub(super) async fn postroad_queues(
    addresses: &str,
    queues: &[String],
) -> Result<Vec<Replication>, Failure> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", addresses).set("broker.address.family", "v4");
    let (addresses, queues) = (addresses.to_owned(), queues.to_vec());
    let asked = tokio::task::spawn_blocking(move || {
        kafka::replication::replication(&config, &queues, &addresses)
    });
    asked.await.map_err(Failure::unknown)?
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn offline_leader_is_no_leader() {
        let said = json!([
            { "name": "other", "leader": "bench1@localhost", "online": ["bench1@localhost"] },
            { "name": "t-0", "leader": "bench2@localhost",
              "online": ["bench2@localhost", "bench3@localhost"] },
            { "name": "t-1", "leader": "bench1@localhost", "online": ["bench3@localhost"] },
        ]);
        let of = |queue| queue_replication(&said, queue);
        assert_eq!(of("t-0"), Ok(Replication { leader: Some(1), in_sync: 2 }));
        assert_eq!(of("t-1"), Ok(Replication { leader: None, in_sync: 1 }));
        assert!(of("t-2").expect_err("is not there").to_string().contains("t-2"));
    }

    #[test]
    fn node_names_map_to_indexes_by_number() {
        assert_eq!(place("bench12@localhost"), Some(11));
        for strange in ["rabbit@host2", "bench0@localhost", ""] {
            assert_eq!(place(strange), None, "{strange}");
        }
    }
}
