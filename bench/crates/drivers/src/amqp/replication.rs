//! Who leads the queues of a test: AMQP does not say. RabbitMQ does at the port of its management
//! plugin, Postroad by Kafka's Metadata, where a queue is a topic.

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

/// Of these queues, asked at the first of these ports that answers. They are the nodes, in order.
pub(super) async fn of_rabbitmq(
    ports: &str,
    (user, password): (&str, &str),
    queues: &[String],
) -> Result<Vec<Replication>, Failure> {
    let login = STANDARD.encode(format!("{user}:{password}"));
    let mut failure = Failure::refused("there is no port to ask at");
    for address in ports.split(',') {
        let asked = timeout(PATIENCE, http::json(address, QUEUES, Some(&login))).await;
        let why = match asked {
            Ok(Ok(said)) => return queues.iter().map(|queue| of_queue(&said, queue)).collect(),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {PATIENCE:?}"),
        };
        failure = Failure::Unreachable { endpoint: address.to_owned(), why };
    }
    Err(failure)
}

fn of_queue(said: &Value, queue: &str) -> Result<Replication, Failure> {
    let mut listed = said.as_array().into_iter().flatten();
    let found = listed.find(|it| it["name"] == queue);
    let found = found.ok_or_else(|| Failure::refused(format!("{queue} is not listed")))?;
    let online: Vec<&str> =
        found["online"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    // While there is none, the last one is still told.
    let leader = found["leader"].as_str().filter(|leader| online.contains(leader));
    Ok(Replication { leader: leader.and_then(place), in_sync: online.len() as u32 })
}

/// Of `bench2@localhost`: the suite numbers its nodes so.
fn place(node: &str) -> Option<usize> {
    let name = node.split('@').next()?;
    let digits = name.trim_start_matches(|letter: char| !letter.is_ascii_digit());
    digits.parse::<usize>().ok()?.checked_sub(1)
}

/// Of these queues, asked at these addresses for Kafka's clients. They are the nodes, in order.
#[cfg(feature = "kafka")]
pub(super) async fn of_postroad(
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
    fn a_leader_that_is_not_online_leads_no_more() {
        let said = json!([
            { "name": "other", "leader": "bench1@localhost", "online": ["bench1@localhost"] },
            { "name": "t-0", "leader": "bench2@localhost",
              "online": ["bench2@localhost", "bench3@localhost"] },
            { "name": "t-1", "leader": "bench1@localhost", "online": ["bench3@localhost"] },
        ]);
        let of = |queue| of_queue(&said, queue);
        assert_eq!(of("t-0"), Ok(Replication { leader: Some(1), in_sync: 2 }));
        assert_eq!(of("t-1"), Ok(Replication { leader: None, in_sync: 1 }));
        assert!(of("t-2").expect_err("is not there").to_string().contains("t-2"));
    }

    #[test]
    fn nodes_are_known_by_their_numbers() {
        assert_eq!(place("bench12@localhost"), Some(11));
        for strange in ["rabbit@host2", "bench0@localhost", ""] {
            assert_eq!(place(strange), None, "{strange}");
        }
    }
}
