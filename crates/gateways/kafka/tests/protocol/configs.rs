//! Configurations of topics, nodes and groups: how they are described, changed and refused.

use kafka_protocol::error::ResponseError::*;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::DescribeConfigsResourceResult;
use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use kafka_protocol::messages::*;

use crate::harness::*;

async fn described(
    client: &mut Client,
    kind: i8,
    resource: &str,
) -> Result<Vec<DescribeConfigsResourceResult>, i16> {
    let wanted = DescribeConfigsResource::default()
        .with_resource_type(kind)
        .with_resource_name(text(resource))
        .with_configuration_keys(None);
    let request = DescribeConfigsRequest::default()
        .with_resources(vec![wanted])
        .with_include_synonyms(true)
        .with_include_documentation(true);
    let mut response = client.ask(4, &request).await;
    let result = response.results.remove(0);
    if result.error_code == 0 { Ok(result.configs) } else { Err(result.error_code) }
}

async fn value(client: &mut Client, kind: i8, resource: &str, config: &str) -> (String, i8) {
    let configs = described(client, kind, resource).await.expect("is described");
    let found = configs.into_iter().find(|entry| &*entry.name == config).expect("is there");
    (found.value.unwrap().to_string(), found.config_source)
}

async fn change(
    client: &mut Client,
    kind: i8,
    resource: &str,
    changes: &[(&str, i8, Option<&str>)],
) -> i16 {
    let configs = changes.iter().map(|(config, operation, value)| {
        AlterableConfig::default()
            .with_name(text(config))
            .with_config_operation(*operation)
            .with_value(value.map(text))
    });
    let resource = AlterConfigsResource::default()
        .with_resource_type(kind)
        .with_resource_name(text(resource))
        .with_configs(configs.collect());
    let request = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
    client.ask(1, &request).await.responses[0].error_code
}

const TOPIC: i8 = 2;
const BROKER: i8 = 4;
const GROUP: i8 = 32;
const SET: i8 = 0;
const DELETE: i8 = 1;
const APPEND: i8 = 2;
const SUBTRACT: i8 = 3;

#[tokio::test]
async fn settings_that_only_kafka_has_are_shown_read_only() {
    let node = Node::start().await;
    let client = &mut node.client().await;
    let configs = described(client, BROKER, "1").await.expect("is described");
    for (name, value, kind) in [
        ("log.cleaner.backoff.ms", Some("15000"), 5),
        ("sasl.kerberos.min.time.before.relogin", Some("60000"), 5),
        ("ssl.keystore.password", None, 9),
    ] {
        let found = configs.iter().find(|entry| &*entry.name == name).expect(name);
        assert_eq!((found.value.as_deref(), found.config_type), (value, kind), "{name}");
        assert!(found.read_only && found.config_source == 5, "{found:?}");
        assert_eq!(found.is_sensitive, kind == 9);
        for resource in ["", "1"] {
            let set = [(name, SET, Some("1"))];
            assert_eq!(change(client, BROKER, resource, &set).await, InvalidRequest.code());
        }
    }
    let unknown = [("no.such.setting", SET, Some("1"))];
    assert_eq!(change(client, BROKER, "", &unknown).await, InvalidConfig.code());
    let names: std::collections::BTreeSet<_> = configs.iter().map(|it| &*it.name).collect();
    assert_eq!(names.len(), configs.len(), "none is shown twice");
}

#[tokio::test]
async fn configurations_are_described_and_changed() {
    let node = Node::start().await;
    let mut client = node.client().await;
    let client = &mut client;
    client.create("orders", 1, &[("retention.ms", "5000")]).await;
    assert_eq!(value(client, TOPIC, "orders", "retention.ms").await, ("5000".into(), 1));
    let (default, source) = value(client, TOPIC, "orders", "max.message.bytes").await;
    assert_eq!((default.as_str(), source), ("1048588", 5));

    assert_eq!(change(client, TOPIC, "orders", &[("retention.ms", SET, Some("7000"))]).await, 0);
    assert_eq!(value(client, TOPIC, "orders", "retention.ms").await, ("7000".into(), 1));
    let policy = [("cleanup.policy", APPEND, Some("compact")), ("retention.ms", DELETE, None)];
    assert_eq!(change(client, TOPIC, "orders", &policy).await, 0);
    assert_eq!(value(client, TOPIC, "orders", "cleanup.policy").await.0, "delete,compact");
    assert_eq!(value(client, TOPIC, "orders", "retention.ms").await.1, 5);
    let policy = [("cleanup.policy", SUBTRACT, Some("delete"))];
    assert_eq!(change(client, TOPIC, "orders", &policy).await, 0);
    assert_eq!(value(client, TOPIC, "orders", "cleanup.policy").await.0, "compact");

    for (changes, error) in [
        ([("retention.ms", SET, Some("soon"))], InvalidConfig),
        ([("no.such.config", SET, Some("1"))], InvalidConfig),
        ([("retention.ms", APPEND, Some("1"))], InvalidConfig),
        ([("retention.ms", SET, None)], InvalidRequest),
        ([("retention.ms", 9, Some("1"))], InvalidRequest),
    ] {
        assert_eq!(change(client, TOPIC, "orders", &changes).await, error.code(), "{changes:?}");
    }
    let twice = [("retention.ms", SET, Some("1")), ("retention.ms", DELETE, None)];
    assert_eq!(change(client, TOPIC, "orders", &twice).await, InvalidRequest.code());
    let unknown = change(client, TOPIC, "nowhere", &[("retention.ms", SET, Some("1"))]).await;
    assert_eq!(unknown, UnknownTopicOrPartition.code());
}

#[tokio::test]
async fn trace_setting_of_a_topic_is_described_and_changed() {
    let node = Node::start().await;
    let mut client = node.client().await;
    let client = &mut client;
    client.create("orders", 1, &[("trace", "0.5%")]).await;
    assert_eq!(value(client, TOPIC, "orders", "trace").await, ("0.5%".into(), 1));
    assert_eq!(change(client, TOPIC, "orders", &[("trace", SET, Some("on"))]).await, 0);
    for wrong in ["100%", "0%", "yes", ""] {
        let refused = change(client, TOPIC, "orders", &[("trace", SET, Some(wrong))]).await;
        assert_eq!(refused, InvalidConfig.code(), "{wrong}");
    }
    assert_eq!(value(client, TOPIC, "orders", "trace").await.0, "on");
    assert_eq!(change(client, TOPIC, "orders", &[("trace", DELETE, None)]).await, 0);
    assert_eq!(value(client, TOPIC, "orders", "trace").await, ("off".into(), 5));
}

#[tokio::test]
async fn topic_settings_default_to_the_nodes_configuration() {
    let node = Node::start().await;
    let mut client = node.client().await;
    let client = &mut client;
    client.create("orders", 1, &[]).await;
    assert_eq!(change(client, BROKER, "1", &[("message.max.bytes", SET, Some("9000"))]).await, 0);
    assert_eq!(value(client, TOPIC, "orders", "max.message.bytes").await, ("9000".into(), 3));
    assert_eq!(value(client, BROKER, "1", "message.max.bytes").await, ("9000".into(), 3));
    assert_eq!(value(client, BROKER, "1", "node.id").await, ("1".into(), 4));
    let only_set = described(client, BROKER, "").await.unwrap();
    let names: Vec<_> = only_set.iter().map(|config| config.name.as_str()).collect();
    assert_eq!(names, ["group.initial.rebalance.delay.ms", "message.max.bytes"]);

    let fixed = change(client, BROKER, "", &[("num.partitions", SET, Some("3"))]).await;
    assert_eq!(fixed, InvalidRequest.code());
    assert_eq!(described(client, BROKER, "7").await.unwrap_err(), InvalidRequest.code());
    assert_eq!(described(client, LOGGER, "7").await.unwrap_err(), InvalidRequest.code());
    assert_eq!(described(client, 99, "1").await.unwrap_err(), InvalidRequest.code());
}

#[tokio::test]
async fn groups_are_configured() {
    let node = Node::start().await;
    let mut client = node.client().await;
    let client = &mut client;
    let changes = [("consumer.session.timeout.ms", SET, Some("50000"))];
    assert_eq!(change(client, GROUP, "g", &changes).await, 0);
    let found = value(client, GROUP, "g", "consumer.session.timeout.ms").await;
    assert_eq!(found, ("50000".into(), 8));
}

const LOGGER: i8 = 8;
const CLIENT_METRICS: i8 = 16;

#[tokio::test]
async fn loggers_and_client_metrics_are_shown_and_cannot_be_changed() {
    let node = Node::start().await;
    let mut client = node.client().await;
    let loggers = described(&mut client, LOGGER, "1").await.expect("is described");
    let names: Vec<_> = loggers.iter().map(|logger| logger.name.as_str()).collect();
    assert_eq!(names, ["root"]);
    assert!(loggers[0].read_only && loggers[0].value.is_some());
    let metrics = described(&mut client, CLIENT_METRICS, "any").await.expect("is described");
    let shown: Vec<_> = metrics
        .iter()
        .map(|config| (config.name.as_str(), config.value.as_deref().unwrap()))
        .collect();
    assert_eq!(shown, [("interval.ms", "300000"), ("match", ""), ("metrics", "")]);
    for (kind, resource, config) in [(LOGGER, "1", "root"), (CLIENT_METRICS, "any", "metrics")] {
        let refused = change(&mut client, kind, resource, &[(config, SET, Some("INFO"))]).await;
        assert_eq!(refused, InvalidRequest.code());
    }
}

#[tokio::test]
async fn deleting_an_unset_configuration_changes_nothing() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.create("orders", 1, &[("segment.ms", "5000")]).await;
    for config in ["retention.bytes", "no.such.config"] {
        let changed = change(&mut client, TOPIC, "orders", &[(config, DELETE, None)]).await;
        assert_eq!(changed, 0, "{config}");
    }
    assert_eq!(value(&mut client, TOPIC, "orders", "segment.ms").await.0, "5000");
}

#[tokio::test]
async fn static_settings_are_shown_and_cannot_be_changed() {
    let node = Node::start().await;
    let mut client = node.client().await;
    for (config, expected) in [
        ("delete.topic.enable", "true"),
        ("process.roles", "broker,controller"),
        ("offsets.topic.replication.factor", "1"),
        ("group.initial.rebalance.delay.ms", "0"),
        ("log.retention.check.interval.ms", "300000"),
    ] {
        assert_eq!(value(&mut client, BROKER, "1", config).await.0, expected, "{config}");
    }
    let refused =
        change(&mut client, BROKER, "1", &[("delete.topic.enable", SET, Some("false"))]).await;
    assert_eq!(refused, InvalidRequest.code());
}
