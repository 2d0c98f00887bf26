//! Configuration in the responses to DescribeConfigs and CreateTopics.

use std::collections::BTreeSet;

use broker::config::{
    ConfigKind, ConfigSource, DescribedSetting, Overrides, describe_group, describe_node,
    describe_topic,
};
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::create_topics_response::CreatableTopicConfigs;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use kafka_protocol::messages::list_config_resources_response::ConfigResource;
use kafka_protocol::messages::{
    DescribeConfigsRequest, DescribeConfigsResponse, ListConfigResourcesRequest,
    ListConfigResourcesResponse,
};
use kafka_protocol::protocol::StrBytes;
use tracing::level_filters::LevelFilter;

use crate::authorization::Caller;
use crate::catalog::all_topics;
use crate::configs::kafka_settings::{self, KAFKA_SETTINGS, KafkaSetting, SettingKind};
use crate::configs::static_configs::STATIC_CONFIGS;
use crate::configs::{Resource, resource_types};
use crate::errors::{Fault, code_of};
use crate::messages::list_response::ListWriter;
use crate::messages::{RequestError, Response};
use crate::request::Request;
use crate::state::Gateway;

/// Source of a value (Kafka's `DescribeConfigsResponse.ConfigSource`).
mod sources {
    pub(super) const TOPIC: i8 = 1;
    pub(super) const DYNAMIC_DEFAULT_BROKER: i8 = 3;
    pub(super) const STATIC_BROKER: i8 = 4;
    pub(super) const DEFAULT: i8 = 5;
    pub(super) const BROKER_LOGGER: i8 = 6;
    pub(super) const GROUP: i8 = 8;
}

/// Owner of the described values.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    Topic,
    Node,
    Group,
}

impl Owner {
    fn source(self, source: ConfigSource) -> i8 {
        match (source, self) {
            (ConfigSource::Default, _) => sources::DEFAULT,
            (ConfigSource::Own, Self::Topic) => sources::TOPIC,
            (ConfigSource::Own, Self::Group) => sources::GROUP,
            (ConfigSource::Own, Self::Node) | (ConfigSource::Node, _) => {
                sources::DYNAMIC_DEFAULT_BROKER
            }
        }
    }
}

/// Bytes of a topic in a response, without synonyms and documentation; a little more than was measured.
const RESOURCE_BYTES: usize = 1_600;
/// Size of a broker in a response, in units of [`RESOURCE_BYTES`].
const BROKER_PARTS: usize = 12;

pub(crate) async fn describe(
    gateway: &Gateway,
    mut request: Request,
) -> Result<Response, RequestError> {
    let message: DescribeConfigsRequest = request.decode()?;
    let detail =
        Detail { synonyms: message.include_synonyms, documentation: message.include_documentation };
    let count = message.resources.len();
    let is_broker = |it: &&DescribeConfigsResource| it.resource_type == resource_types::BROKER;
    let brokers = message.resources.iter().filter(is_broker).count();
    let parts = count.saturating_add(brokers.saturating_mul(BROKER_PARTS));
    let permit = gateway.described_room(parts, RESOURCE_BYTES).await;
    let response = DescribeConfigsResponse::default();
    let mut results = ListWriter::new(gateway.broker.turns(), &request.head, &response, count)?;
    for resource in message.resources {
        let result = |described: Result<Vec<_>, Fault>| {
            let result = DescribeConfigsResult::default()
                .with_resource_type(resource.resource_type)
                .with_resource_name(resource.resource_name.clone())
                .with_error_code(code_of(&described));
            match described {
                Ok(configs) => result.with_configs(configs),
                Err(fault) => result.with_error_message(fault.message_bytes()),
            }
        };
        let describe = || result(describe_resource(gateway, &request.caller, &resource, detail));
        results.push(describe, |fault| result(Err(fault))).await?;
    }
    Ok(results.finish().with_permit(permit))
}

#[derive(Clone, Copy)]
struct Detail {
    synonyms: bool,
    documentation: bool,
}

fn describe_resource(
    gateway: &Gateway,
    caller: &Caller,
    wanted: &DescribeConfigsResource,
    detail: Detail,
) -> Result<Vec<DescribeConfigsResourceResult>, Fault> {
    let resource = Resource::find(gateway, caller, wanted.resource_type, &wanted.resource_name)?;
    let is_wanted = |name: &str| match &wanted.configuration_keys {
        Some(keys) => keys.iter().any(|key| **key == *name),
        None => true,
    };
    let show = |owner: Owner, entry: DescribedSetting<'_>| shown(owner, &entry, detail);
    let catalog = gateway.broker.catalog();
    let mut configs: Vec<_> = match &resource {
        Resource::Topic(topic) => {
            let topic = catalog.topic(*topic).ok_or_else(Fault::unknown_partition)?;
            describe_topic(topic.overrides(), catalog.node_config())
                .filter(|entry| is_wanted(entry.name))
                .map(|entry| show(Owner::Topic, entry))
                .collect()
        }
        Resource::Node => describe_node(catalog.node_config())
            .filter(|entry| is_wanted(entry.name))
            // For the empty name (all brokers), Kafka shows only values that were set.
            .filter(|entry| {
                !wanted.resource_name.is_empty() || entry.source != ConfigSource::Default
            })
            .map(|entry| show(Owner::Node, entry))
            .collect(),
        Resource::Group(group) => describe_group(catalog.group_config(group))
            .filter(|entry| is_wanted(entry.name))
            .map(|entry| show(Owner::Group, entry))
            .collect(),
        Resource::Logger | Resource::ClientMetrics => Vec::new(),
    };
    drop(catalog);
    if resource == Resource::Node && !wanted.resource_name.is_empty() {
        let fixed = STATIC_CONFIGS.iter().filter(|config| is_wanted(config.name));
        configs.extend(fixed.map(|config| {
            let fixed = ReadOnlyConfig {
                name: config.name,
                kind: config.kind,
                value: (config.value)(gateway),
                source: sources::STATIC_BROKER,
                documentation: config.documentation,
            };
            fixed.shown(detail)
        }));
        let of_kafka = KAFKA_SETTINGS.iter().filter(|setting| is_wanted(setting.name));
        configs.extend(of_kafka.map(|setting| kafka_setting_result(setting, detail)));
    }
    if resource == Resource::Logger && is_wanted(ROOT_LOGGER) {
        configs.push(root_logger().shown(detail));
    }
    if resource == Resource::ClientMetrics {
        let metrics = client_metrics().into_iter().filter(|config| is_wanted(config.name));
        configs.extend(metrics.map(|config| config.shown(detail)));
    }
    Ok(configs)
}

/// A configuration that is shown and cannot be changed.
struct ReadOnlyConfig {
    name: &'static str,
    kind: ConfigKind,
    value: String,
    source: i8,
    documentation: &'static str,
}

impl ReadOnlyConfig {
    fn shown(self, detail: Detail) -> DescribeConfigsResourceResult {
        let synonym = synonym(self.name, &self.value, self.source);
        DescribeConfigsResourceResult::default()
            .with_name(StrBytes::from_static_str(self.name))
            .with_value(Some(StrBytes::from_string(self.value)))
            .with_read_only(true)
            .with_config_source(self.source)
            .with_config_type(type_number(self.kind))
            .with_synonyms(if detail.synonyms { vec![synonym] } else { Vec::new() })
            .with_documentation(
                detail.documentation.then(|| StrBytes::from_static_str(self.documentation)),
            )
    }
}

fn kafka_setting_result(setting: &KafkaSetting, detail: Detail) -> DescribeConfigsResourceResult {
    let value = setting.default.map(StrBytes::from_static_str);
    let synonym = DescribeConfigsSynonym::default()
        .with_name(StrBytes::from_static_str(setting.name))
        .with_value(value.clone())
        .with_source(sources::DEFAULT);
    DescribeConfigsResourceResult::default()
        .with_name(StrBytes::from_static_str(setting.name))
        .with_value(value)
        .with_read_only(true)
        .with_is_sensitive(setting.kind == SettingKind::Password)
        .with_config_source(sources::DEFAULT)
        .with_config_type(setting.kind as i8)
        .with_synonyms(if detail.synonyms { vec![synonym] } else { Vec::new() })
        .with_documentation(
            detail.documentation.then(|| StrBytes::from_static_str(kafka_settings::DOCUMENTATION)),
        )
}

/// Kafka's name of the root logger.
const ROOT_LOGGER: &str = "root";

fn root_logger() -> ReadOnlyConfig {
    ReadOnlyConfig {
        name: ROOT_LOGGER,
        kind: ConfigKind::String,
        value: LevelFilter::current().to_string().to_uppercase(),
        source: sources::BROKER_LOGGER,
        documentation: "The most that is logged; it is set when the broker is started.",
    }
}

/// Kafka's values for a metrics subscription that was never configured: nothing is collected.
fn client_metrics() -> [ReadOnlyConfig; 3] {
    let shown = |name, kind, value: &str, documentation| {
        let (value, source) = (value.to_owned(), sources::DEFAULT);
        ReadOnlyConfig { name, kind, value, source, documentation }
    };
    [
        shown("interval.ms", ConfigKind::Int, "300000", "How often clients would report."),
        shown("match", ConfigKind::List, "", "Which clients would report."),
        shown("metrics", ConfigKind::List, "", "Which metrics are collected: none."),
    ]
}

fn shown(
    owner: Owner,
    entry: &DescribedSetting<'_>,
    detail: Detail,
) -> DescribeConfigsResourceResult {
    DescribeConfigsResourceResult::default()
        .with_name(StrBytes::from_static_str(entry.name))
        .with_value(Some(StrBytes::from_string(entry.value.to_owned())))
        .with_config_source(owner.source(entry.source))
        .with_config_type(type_number(entry.kind))
        .with_synonyms(if detail.synonyms { synonyms(owner, entry) } else { Vec::new() })
        .with_documentation(
            detail.documentation.then(|| StrBytes::from_static_str(entry.documentation)),
        )
}

/// Possible sources of the value, the effective one first.
fn synonyms(owner: Owner, entry: &DescribedSetting<'_>) -> Vec<DescribeConfigsSynonym> {
    let mut synonyms = Vec::new();
    if entry.source == ConfigSource::Own {
        synonyms.push(synonym(entry.name, entry.value, owner.source(ConfigSource::Own)));
    }
    let node_name = entry.node_name.unwrap_or(entry.name);
    if let Some(value) = entry.node_value {
        synonyms.push(synonym(node_name, value, sources::DYNAMIC_DEFAULT_BROKER));
    }
    synonyms.push(synonym(node_name, entry.default, sources::DEFAULT));
    synonyms
}

fn synonym(name: &'static str, value: &str, source: i8) -> DescribeConfigsSynonym {
    DescribeConfigsSynonym::default()
        .with_name(StrBytes::from_static_str(name))
        .with_value(Some(StrBytes::from_string(value.to_owned())))
        .with_source(source)
}

/// Kafka's `DescribeConfigsResponse.ConfigType`.
fn type_number(kind: ConfigKind) -> i8 {
    match kind {
        ConfigKind::Boolean => 1,
        ConfigKind::String => 2,
        ConfigKind::Int => 3,
        ConfigKind::Long => 5,
        ConfigKind::Double => 6,
        ConfigKind::List => 7,
    }
}

/// A new topic's configuration for the response to CreateTopics.
pub(crate) fn creatable_configs(
    gateway: &Gateway,
    overrides: &Overrides,
) -> Vec<CreatableTopicConfigs> {
    describe_topic(overrides, gateway.broker.catalog().node_config())
        .map(|entry| {
            CreatableTopicConfigs::default()
                .with_name(StrBytes::from_static_str(entry.name))
                .with_value(Some(StrBytes::from_string(entry.value.to_owned())))
                .with_config_source(Owner::Topic.source(entry.source))
        })
        .collect()
}

/// Approximate bytes of a resource while the list is built.
const RESOURCE_NAME_BYTES: usize = 160;

/// Version 0 lists client metrics only, of which there are none.
pub(crate) async fn list_resources(
    gateway: &Gateway,
    mut request: Request,
) -> Result<Response, RequestError> {
    let message: ListConfigResourcesRequest = request.decode()?;
    let all = [
        resource_types::TOPIC,
        resource_types::BROKER,
        resource_types::BROKER_LOGGER,
        resource_types::CLIENT_METRICS,
        resource_types::GROUP,
    ];
    if let Err(fault) = request.caller.cluster() {
        let refused = ListConfigResourcesResponse::default().with_error_code(fault.code());
        return Response::encode(&request.head, &refused);
    }
    let wanted: BTreeSet<i8> = match (request.head.version, message.resource_types.is_empty()) {
        (0, _) => [resource_types::CLIENT_METRICS].into(),
        (_, true) => all.into(),
        (_, false) => message.resource_types.into_iter().collect(),
    };
    if !wanted.iter().all(|kind| all.contains(kind)) {
        let code = ResponseError::UnsupportedVersion.code();
        let refused = ListConfigResourcesResponse::default().with_error_code(code);
        return Response::encode(&request.head, &refused);
    }
    let count = {
        let catalog = gateway.broker.catalog();
        catalog.topic_count() + catalog.configured_group_count()
    };
    let permit = gateway.answer_room(count * RESOURCE_NAME_BYTES).await;
    let mut resources = Vec::new();
    for kind in wanted {
        let names: Vec<String> = match kind {
            resource_types::TOPIC => {
                all_topics(gateway).await.iter().map(|topic| topic.name.to_string()).collect()
            }
            resource_types::BROKER | resource_types::BROKER_LOGGER => {
                gateway.options.nodes.live().iter().map(|node| node.id.to_string()).collect()
            }
            resource_types::GROUP => {
                gateway.broker.catalog().configured_groups().map(str::to_owned).collect()
            }
            _ => Vec::new(),
        };
        resources.extend(names.into_iter().map(|name| {
            ConfigResource::default()
                .with_resource_name(StrBytes::from_string(name))
                .with_resource_type(kind)
        }));
    }
    let response = ListConfigResourcesResponse::default().with_config_resources(resources);
    Ok(Response::encode(&request.head, &response)?.with_permit(permit))
}
