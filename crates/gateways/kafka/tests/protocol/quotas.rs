//! Quotas as Kafka's clients see them.

use access::Quotas;
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::alter_client_quotas_request::{EntityData, EntryData, OpData};
use kafka_protocol::messages::describe_client_quotas_request::ComponentData;
use kafka_protocol::messages::*;
use tokio::time::Instant;

use crate::harness::*;

async fn node() -> Node {
    Node::with_quotas().await
}

fn alteration(entity: &[(&str, Option<&str>)], ops: &[(&str, Option<f64>)]) -> EntryData {
    let entity = entity.iter().map(|(of, name)| {
        EntityData::default().with_entity_type(text(of)).with_entity_name(name.map(text))
    });
    let ops = ops.iter().map(|(key, value)| {
        OpData::default()
            .with_key(text(key))
            .with_value(value.unwrap_or_default())
            .with_remove(value.is_none())
    });
    EntryData::default().with_entity(entity.collect()).with_ops(ops.collect())
}

async fn alter(client: &mut Client, entries: Vec<EntryData>) -> Vec<i16> {
    let request = AlterClientQuotasRequest::default().with_entries(entries);
    let answer = client.ask(1, &request).await;
    answer.entries.iter().map(|entry| entry.error_code).collect()
}

fn component(of: &str, match_type: i8, name: Option<&str>) -> ComponentData {
    ComponentData::default()
        .with_entity_type(text(of))
        .with_match_type(match_type)
        ._with_match(name)
}

trait WithMatch {
    fn _with_match(self, name: Option<&str>) -> Self;
}

impl WithMatch for ComponentData {
    fn _with_match(mut self, name: Option<&str>) -> Self {
        self._match = name.map(text);
        self
    }
}

async fn describe(client: &mut Client, of: Vec<ComponentData>, strict: bool) -> Result<usize, i16> {
    let request = DescribeClientQuotasRequest::default().with_components(of).with_strict(strict);
    let answer = client.ask(1, &request).await;
    answer.entries.map(|entries| entries.len()).ok_or(answer.error_code)
}

#[tokio::test]
async fn quotas_are_set_described_and_removed_as_in_kafka() {
    let node = node().await;
    let mut client = node.client().await;
    let entries = vec![
        alteration(&[("user", Some("ada"))], &[("producer_byte_rate", Some(1024.0))]),
        alteration(
            &[("user", Some("ada")), ("client-id", None)],
            &[("consumer_byte_rate", Some(2048.0)), ("controller_mutation_rate", Some(0.5))],
        ),
        alteration(&[("ip", None)], &[("connection_creation_rate", Some(100.0))]),
        alteration(&[("user", None)], &[("request_percentage", Some(50.0))]),
        alteration(&[("group", Some("g"))], &[("producer_byte_rate", Some(1.0))]),
        alteration(&[("ip", Some("x")), ("user", None)], &[("producer_byte_rate", Some(1.0))]),
    ];
    let invalid = ResponseError::InvalidRequest.code();
    assert_eq!(alter(&mut client, entries).await, [0, 0, 0, invalid, invalid, invalid]);
    assert_eq!(describe(&mut client, vec![], false).await, Ok(3));
    assert_eq!(describe(&mut client, vec![component("user", 0, Some("ada"))], false).await, Ok(2));
    assert_eq!(describe(&mut client, vec![component("user", 2, None)], true).await, Ok(1));
    assert_eq!(describe(&mut client, vec![component("user", 1, None)], false).await, Ok(0));
    assert_eq!(describe(&mut client, vec![component("ip", 1, None)], true).await, Ok(1));
    for wrong in [
        vec![component("user", 2, None), component("user", 1, None)],
        vec![component("user", 2, None), component("ip", 2, None)],
        vec![component("user", 0, None)],
        vec![component("user", 1, Some("ada"))],
        vec![component("user", 7, None)],
        vec![component("", 2, None)],
    ] {
        assert_eq!(describe(&mut client, wrong, false).await, Err(invalid));
    }
    let unknown = describe(&mut client, vec![component("group", 2, None)], false).await;
    assert_eq!(unknown, Err(ResponseError::UnsupportedVersion.code()));

    let removed = alteration(&[("user", Some("ada"))], &[("producer_byte_rate", None)]);
    let request = AlterClientQuotasRequest::default().with_entries(vec![removed.clone()]);
    client.ask(1, &request.with_validate_only(true)).await;
    assert_eq!(describe(&mut client, vec![], false).await, Ok(3));
    assert_eq!(alter(&mut client, vec![removed]).await, [0]);
    assert_eq!(describe(&mut client, vec![], false).await, Ok(2));
}

/// Sets a quota of the harness's clients, whose client id is `test`.
async fn limit(client: &mut Client, key: &str, rate: f64) {
    let entry = alteration(&[("client-id", Some("test"))], &[(key, Some(rate))]);
    assert_eq!(alter(client, vec![entry]).await, [0]);
}

#[tokio::test]
async fn producer_over_its_quota_receives_the_throttle_time_and_waits() {
    let node = node().await;
    let mut client = node.client().await;
    client.create("t", 1, &[]).await;
    let records = batch(&["x".repeat(3000).as_str()]);
    let unlimited = client.ask(9, &produce("t", 0, -1, records.clone().into())).await;
    assert_eq!(unlimited.throttle_time_ms, 0);
    limit(&mut client, "producer_byte_rate", 2000.0).await;
    let begun = Instant::now();
    let answer = client.ask(9, &produce("t", 0, -1, records.clone().into())).await;
    let (told, code) = (answer.throttle_time_ms, only_partition(answer).error_code);
    assert!(told > 400 && code == 0, "told {told}, {code}");
    // The next request waits; other clients' requests do not.
    client.get("t", 0, 0).await;
    assert!(begun.elapsed().as_millis() >= told as u128, "{:?} of {told}", begun.elapsed());
    let seen = node.quotas().throttled();
    assert_eq!((seen[0].by_quota[0].1, seen[0].by_quota[1].1), (1, 0));
    assert_eq!(node.quotas().throttled()[0].waiting, 0);
    // Also for a request without a response.
    let begun = Instant::now();
    client.tell(9, &produce("t", 0, 0, records.into())).await;
    client.get("t", 0, 0).await;
    assert!(begun.elapsed().as_millis() >= 400, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn consumer_over_its_quota_gets_empty_responses_until_the_quota_allows_more() {
    let node = node().await;
    let mut client = node.client().await;
    client.create("t", 1, &[]).await;
    client.put("t", 0, &["x".repeat(100_000).as_str()]).await;
    limit(&mut client, "consumer_byte_rate", 1000.0).await;
    let first = client.ask(11, &fetch("t", 0, 0, 0)).await;
    assert_eq!(values(&first).len(), 1);
    assert!(first.throttle_time_ms > 50_000, "{}", first.throttle_time_ms);
    // Over another connection.
    let mut other = node.client().await;
    let second = other.ask(11, &fetch("t", 0, 0, 0)).await;
    assert!(second.responses.is_empty() && second.throttle_time_ms > 50_000);
    // Both wait, and continue once the quota is removed.
    let sent = client.send(11, &fetch("t", 0, 0, 0)).await;
    let mut operator = node.client().await;
    let gone = alteration(&[("client-id", Some("test"))], &[("consumer_byte_rate", None)]);
    assert_eq!(alter(&mut operator, vec![gone]).await, [0]);
    let third = client.receive(sent).await;
    assert_eq!((values(&third).len(), third.throttle_time_ms), (1, 0));
    assert_eq!(other.get("t", 0, 0).await.len(), 1);
}

#[tokio::test]
async fn changes_over_the_quota_are_refused_or_delayed_by_version() {
    let node = node().await;
    let mut client = node.client().await;
    limit(&mut client, "controller_mutation_rate", 0.1).await;
    let creating = |name: &str, partitions| {
        let topics = vec![new_topic(name, partitions, &[])];
        CreateTopicsRequest::default().with_topics(topics).with_timeout_ms(5000)
    };
    let made = client.ask(7, &creating("a", 14)).await;
    assert_eq!(made.topics[0].error_code, 0);
    assert!(made.throttle_time_ms > 100_000);
    // Over other connections, since the first is throttled.
    let mut other = node.client().await;
    let refused = other.ask(7, &creating("b", 1)).await;
    let code = ResponseError::ThrottlingQuotaExceeded.code();
    assert_eq!(refused.topics[0].error_code, code);
    assert!(refused.throttle_time_ms > 100_000);
    let mut old = node.client().await;
    let made = old.ask(5, &creating("c", 1)).await;
    assert!(made.topics[0].error_code == 0 && made.throttle_time_ms > 100_000);
    let mut strict = node.client().await;
    let deleting = DeleteTopicsRequest::default().with_topic_names(vec![name("a")]);
    let deleted = strict.ask(5, &deleting.with_timeout_ms(5000)).await;
    assert_eq!(deleted.responses[0].error_code, code);
    // Waiting requests continue when the quota is raised.
    let mut operator = node.client().await;
    let sent = other.send(7, &creating("b", 1)).await;
    limit(&mut operator, "controller_mutation_rate", 1e6).await;
    assert_eq!(other.receive(sent).await.topics[0].error_code, 0);
}

#[tokio::test]
async fn node_without_quotas_refuses_to_alter_them() {
    let node = Node::with(|options| options.quotas = Quotas::default()).await;
    let mut client = node.client().await;
    let entry = alteration(&[("user", None)], &[("producer_byte_rate", Some(1.0))]);
    let unsupported = ResponseError::UnsupportedVersion.code();
    assert_eq!(alter(&mut client, vec![entry]).await, [unsupported]);
}
