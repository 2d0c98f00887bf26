//! Configuration of topics, of the node and of groups, as clients read and change it.
//!
//! The broker's tables define each setting, its values and its meaning. This module maps Kafka's requests
//! onto them. The broker takes whole sets, so a change is "read, alter, write back", one at a time.
//!
//! * `describe`: DescribeConfigs and ListConfigResources; this file changes configurations
//! * `static_configs`: settings of the node; `kafka_settings`: settings of Kafka that this broker does not have

pub(crate) mod describe;
mod kafka_settings;
mod static_configs;

use base::{HashSet, TopicId};
use std::collections::BTreeMap;

use broker::config::{
    ConfigError, ConfigKind, GROUP_CONFIGS, GroupConfig, NODE_CONFIGS, NodeConfig, NodeValues,
    Overrides, TopicConfig, topic_entry, topic_entry_for_node,
};
use broker::validate_topic_name;
use consumer_groups::{lease_groups, tenants};
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::alter_configs_response::AlterConfigsResourceResponse;
use kafka_protocol::messages::incremental_alter_configs_request::AlterableConfig;
use kafka_protocol::messages::incremental_alter_configs_response::AlterConfigsResourceResponse as IncrementalResponse;
use kafka_protocol::messages::{
    AlterConfigsRequest, AlterConfigsResponse, IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
};

use crate::authorization::Caller;
use crate::configs::kafka_settings::is_of_kafka;
use crate::configs::static_configs::STATIC_CONFIGS;
use crate::errors::{Fault, code_of};
use crate::messages::{RequestError, Response};
use crate::request::Request;
use crate::state::Gateway;

/// Kinds of configurable resources (Kafka's `ConfigResource.Type`).
pub(crate) mod resource_types {
    pub(crate) const TOPIC: i8 = 2;
    pub(crate) const BROKER: i8 = 4;
    pub(crate) const BROKER_LOGGER: i8 = 8;
    pub(crate) const CLIENT_METRICS: i8 = 16;
    pub(crate) const GROUP: i8 = 32;
}

/// Operations of IncrementalAlterConfigs.
mod operations {
    pub(super) const SET: i8 = 0;
    pub(super) const DELETE: i8 = 1;
    pub(super) const APPEND: i8 = 2;
    pub(super) const SUBTRACT: i8 = 3;
}

/// A resource that exists and may be configured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Resource {
    Topic(TopicId),
    Node,
    Group(String),
    /// This node's log levels: readable, and set only at the start.
    Logger,
    /// A client metrics subscription of any name: it collects nothing.
    ClientMetrics,
}

impl Resource {
    /// Finds the resource, if the caller may perform the request's action on it.
    pub(crate) fn find(
        gateway: &Gateway,
        caller: &Caller,
        kind: i8,
        name: &str,
    ) -> Result<Self, Fault> {
        match kind {
            resource_types::TOPIC => caller.topic(name)?,
            resource_types::GROUP => caller.group(name).map_err(Fault::plain)?,
            _ => caller.cluster()?,
        }
        let invalid = |message: String| Err(Fault::new(ResponseError::InvalidRequest, message));
        match kind {
            resource_types::TOPIC => {
                validate_topic_name(name).map_err(|error| {
                    Fault::new(ResponseError::InvalidTopicException, error.to_string())
                })?;
                let topic = gateway.broker.catalog().topic_id(name);
                topic.map(Self::Topic).ok_or_else(|| caller.missing(Fault::unknown_partition()))
            }
            // The empty name stands for all brokers. A value set for one broker is set for all, so both are
            // the same.
            resource_types::BROKER if name.is_empty() => Ok(Self::Node),
            resource_types::BROKER if name == gateway.node_id().to_string() => Ok(Self::Node),
            resource_types::BROKER_LOGGER if name == gateway.node_id().to_string() => {
                Ok(Self::Logger)
            }
            resource_types::BROKER | resource_types::BROKER_LOGGER => {
                Err(other_broker(gateway, name))
            }
            resource_types::CLIENT_METRICS if name.is_empty() => {
                invalid("a subscription of client metrics needs a name".to_owned())
            }
            resource_types::CLIENT_METRICS => Ok(Self::ClientMetrics),
            resource_types::GROUP if name.is_empty() => {
                invalid("a group's configuration needs the group's name".to_owned())
            }
            resource_types::GROUP => Ok(Self::Group(name.to_owned())),
            other => invalid(format!("resource type {other} is not known")),
        }
    }

    /// Checks that the caller may reach the queues that the group consumes: its configuration applies to them.
    fn check_tenants(&self, gateway: &Gateway, caller: &Caller) -> Result<(), Fault> {
        match self {
            Self::Group(group)
                if !tenants::may_be_configured(&gateway.broker, caller.rights(), group) =>
            {
                Err(Fault::plain(ResponseError::GroupAuthorizationFailed))
            }
            _ => Ok(()),
        }
    }

    /// The resource's own values.
    fn overrides(&self, gateway: &Gateway) -> Overrides {
        let catalog = gateway.broker.catalog();
        let own = match self {
            Self::Topic(topic) => catalog.topic(*topic).map(|topic| (**topic.overrides()).clone()),
            Self::Node => Some(catalog.node_config().overrides.clone()),
            Self::Group(group) => Some(catalog.group_config(group).overrides.clone()),
            Self::Logger | Self::ClientMetrics => None,
        };
        own.unwrap_or_default()
    }

    /// The effective value of a list, to which a change is applied.
    fn effective_list(&self, gateway: &Gateway, name: &str, overrides: &Overrides) -> String {
        if let Some(own) = overrides.get(name) {
            return own.clone();
        }
        let entry = match self {
            Self::Topic(_) => topic_entry(name),
            Self::Node => topic_entry_for_node(name),
            Self::Group(_) | Self::Logger | Self::ClientMetrics => None,
        };
        let Some(entry) = entry else { return String::new() };
        let of_node = entry
            .node_name
            .filter(|_| matches!(self, Self::Topic(_)))
            .and_then(|name| gateway.broker.catalog().node_config().overrides.get(name).cloned());
        of_node.unwrap_or_else(|| entry.default.to_owned())
    }

    fn kind_of(&self, name: &str) -> Option<ConfigKind> {
        match self {
            Self::Topic(_) => topic_entry(name).map(|entry| entry.kind),
            Self::Node => {
                let own = NODE_CONFIGS.iter().find(|entry| entry.name == name);
                own.map(|entry| entry.kind)
                    .or_else(|| topic_entry_for_node(name).map(|entry| entry.kind))
            }
            Self::Group(_) => {
                GROUP_CONFIGS.iter().find(|entry| entry.name == name).map(|entry| entry.kind)
            }
            Self::Logger | Self::ClientMetrics => None,
        }
    }

    /// Checks a whole set without applying it.
    fn validate(&self, gateway: &Gateway, config: &Overrides) -> Result<(), ConfigError> {
        let catalog = gateway.broker.catalog();
        match self {
            Self::Topic(_) => TopicConfig::parse(catalog.node_config(), config).map(drop),
            Self::Node => NodeConfig::parse(config).map(drop),
            Self::Group(_) => {
                let (parsed, node) = (GroupConfig::parse(config)?, &catalog.node_config().own);
                parsed.check(node)?;
                check_dead_letter_topic(&parsed, node)
            }
            // Read-only resources never get here.
            Self::Logger | Self::ClientMetrics => Ok(()),
        }
    }

    /// Sets the whole configuration, or only checks that it could be.
    async fn put(
        &self,
        gateway: &Gateway,
        config: Overrides,
        validate_only: bool,
    ) -> Result<(), Fault> {
        let fixed = |message: &'static str| Fault::new(ResponseError::InvalidRequest, message);
        match self {
            Self::Node => refuse_static(&config)?,
            Self::Topic(_) | Self::Group(_) => {}
            Self::Logger => {
                let how = "log levels are not changed over the network: see the broker's --log";
                return Err(fixed(how));
            }
            Self::ClientMetrics => {
                return Err(fixed("client metrics are not collected by this broker"));
            }
        }
        self.validate(gateway, &config)
            .map_err(|error| Fault::new(ResponseError::InvalidConfig, error.to_string()))?;
        let broker = &gateway.broker;
        if let Self::Topic(_) = self {
            broker.check_level_of(&config)?;
        }
        if validate_only {
            return Ok(());
        }
        match self {
            Self::Topic(topic) => broker.set_topic_config(*topic, config).await?,
            Self::Node => broker.set_node_config(config).await?,
            Self::Group(group) => {
                let config_of = || broker.catalog().group_config(group).clone();
                let before = config_of();
                broker.set_group_config(group.clone(), config).await?;
                let after = config_of();
                let partitions = gateway.options.partitions_default;
                lease_groups::ensure_dead_letter_topic(broker, &after, partitions).await?;
                lease_groups::carry_over(broker, group, &before, &after).await?;
            }
            // Read-only resources never get here.
            Self::Logger | Self::ClientMetrics => {}
        }
        Ok(())
    }
}

/// Each broker answers for itself, as in Kafka: only it knows its start settings.
fn other_broker(gateway: &Gateway, name: &str) -> Fault {
    let own = gateway.node_id();
    let is_known = |id: u32| gateway.options.nodes.get(id).is_some();
    let message = match name.parse().is_ok_and(is_known) {
        true => format!("this is broker {own}: ask broker {name} itself"),
        false => format!("this is broker {own}; there is no broker {name:?}"),
    };
    Fault::new(ResponseError::InvalidRequest, message)
}

/// KIP-1191: the prefix marks a topic as a dead-letter topic.
fn check_dead_letter_topic(config: &GroupConfig, node: &NodeValues) -> Result<(), ConfigError> {
    let prefix = &node.dead_letters.topic_name_prefix;
    match &config.share.dead_letter_topic {
        Some(topic) if !topic.starts_with(prefix) || topic.starts_with("__") => {
            Err(ConfigError::Conflict {
                name: "errors.deadletterqueue.topic.name".into(),
                value: topic.clone(),
                with: "errors.deadletterqueue.topic.name.prefix".into(),
                with_value: prefix.clone(),
            })
        }
        _ => Ok(()),
    }
}

fn refuse_static(config: &Overrides) -> Result<(), Fault> {
    match config.keys().find(|name| STATIC_CONFIGS.iter().any(|fixed| fixed.name == **name)) {
        Some(name) => Err(Fault::new(
            ResponseError::InvalidRequest,
            format!("{name} is set when the broker is started and cannot be changed while it runs"),
        )),
        None => match config.keys().find(|name| is_of_kafka(name)) {
            Some(name) => Err(Fault::new(
                ResponseError::InvalidRequest,
                format!(
                    "{name} is a setting of Kafka's that this broker does not have: it cannot be changed"
                ),
            )),
            None => Ok(()),
        },
    }
}

pub(crate) async fn alter(
    gateway: &Gateway,
    mut request: Request,
) -> Result<Response, RequestError> {
    let message: AlterConfigsRequest = request.decode()?;
    let _one_at_a_time = gateway.broker.config_changes().lock().await;
    let mut seen = HashSet::default();
    let mut responses = Vec::with_capacity(message.resources.len());
    for resource in message.resources {
        let kind = resource.resource_type;
        let altered = if seen.insert((kind, resource.resource_name.clone())) {
            let values = resource
                .configs
                .into_iter()
                .map(|config| (config.name.to_string(), config.value.map(|v| v.to_string())));
            let (caller, name) = (&request.caller, &resource.resource_name);
            replace(gateway, caller, kind, name, values, message.validate_only).await
        } else {
            Err(named_twice())
        };
        let message = altered.as_ref().err().and_then(Fault::message_bytes);
        responses.push(
            AlterConfigsResourceResponse::default()
                .with_resource_type(kind)
                .with_resource_name(resource.resource_name)
                .with_error_code(code_of(&altered))
                .with_error_message(message),
        );
    }
    Response::encode(&request.head, &AlterConfigsResponse::default().with_responses(responses))
}

fn named_twice() -> Fault {
    Fault::new(ResponseError::InvalidRequest, "the request has this resource more than once")
}

/// Replaces all of the resource's own values.
async fn replace(
    gateway: &Gateway,
    caller: &Caller,
    kind: i8,
    name: &str,
    values: impl Iterator<Item = (String, Option<String>)>,
    validate_only: bool,
) -> Result<(), Fault> {
    let resource = Resource::find(gateway, caller, kind, name)?;
    // A null value means the default: no value of its own.
    let config = values.filter_map(|(name, value)| Some((name, value?))).collect();
    resource.check_tenants(gateway, caller)?;
    let put = resource.put(gateway, config, validate_only).await;
    put.map_err(|fault| caller.rejected(fault))
}

pub(crate) async fn alter_incrementally(
    gateway: &Gateway,
    mut request: Request,
) -> Result<Response, RequestError> {
    let message: IncrementalAlterConfigsRequest = request.decode()?;
    let _one_at_a_time = gateway.broker.config_changes().lock().await;
    let mut seen = HashSet::default();
    let mut responses = Vec::with_capacity(message.resources.len());
    for resource in message.resources {
        let (kind, name) = (resource.resource_type, resource.resource_name);
        let altered = if seen.insert((kind, name.clone())) {
            let (caller, configs) = (&request.caller, &resource.configs);
            change(gateway, caller, kind, &name, configs, message.validate_only).await
        } else {
            Err(named_twice())
        };
        let message = altered.as_ref().err().and_then(Fault::message_bytes);
        responses.push(
            IncrementalResponse::default()
                .with_resource_type(kind)
                .with_resource_name(name)
                .with_error_code(code_of(&altered))
                .with_error_message(message),
        );
    }
    let response = IncrementalAlterConfigsResponse::default().with_responses(responses);
    Response::encode(&request.head, &response)
}

async fn change(
    gateway: &Gateway,
    caller: &Caller,
    kind: i8,
    name: &str,
    changes: &[AlterableConfig],
    validate_only: bool,
) -> Result<(), Fault> {
    let resource = Resource::find(gateway, caller, kind, name)?;
    let mut config = resource.overrides(gateway);
    let mut changed = HashSet::default();
    for change in changes {
        if !changed.insert(&*change.name) {
            return Err(Fault::new(
                ResponseError::InvalidRequest,
                format!("the request changes {} more than once", change.name),
            ));
        }
        apply(gateway, &resource, &mut config, change)?;
    }
    resource.check_tenants(gateway, caller)?;
    let put = resource.put(gateway, config, validate_only).await;
    put.map_err(|fault| caller.rejected(fault))
}

fn apply(
    gateway: &Gateway,
    resource: &Resource,
    config: &mut BTreeMap<String, String>,
    change: &AlterableConfig,
) -> Result<(), Fault> {
    let name = change.name.to_string();
    if change.config_operation == operations::DELETE {
        // Deleting a value that is not set is no error, as in Kafka.
        config.remove(&name);
        return Ok(());
    }
    let value = change.value.as_deref().ok_or_else(|| {
        Fault::new(ResponseError::InvalidRequest, format!("{name} is given without a value"))
    })?;
    let is_append = match change.config_operation {
        operations::SET => {
            config.insert(name, value.to_owned());
            return Ok(());
        }
        operations::APPEND => true,
        operations::SUBTRACT => false,
        other => {
            return Err(Fault::new(
                ResponseError::InvalidRequest,
                format!("operation {other} is not known"),
            ));
        }
    };
    if resource.kind_of(&name) != Some(ConfigKind::List) {
        return Err(Fault::new(
            ResponseError::InvalidConfig,
            format!("{name} is not a list: nothing can be appended or subtracted"),
        ));
    }
    let present = resource.effective_list(gateway, &name, config);
    config.insert(name, combine(&present, value, is_append));
    Ok(())
}

/// Appends items that a comma-separated list lacks, or removes items that it has.
fn combine(present: &str, value: &str, is_append: bool) -> String {
    fn items(list: &str) -> impl Iterator<Item = &str> {
        list.split(',').map(str::trim).filter(|item| !item.is_empty())
    }
    let mut combined: Vec<&str> = items(present).collect();
    for item in items(value) {
        match (is_append, combined.contains(&item)) {
            (true, false) => combined.push(item),
            (false, true) => combined.retain(|other| *other != item),
            _ => {}
        }
    }
    combined.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_sets_in_order() {
        assert_eq!(combine("delete", "compact", true), "delete,compact");
        assert_eq!(combine("delete", "delete", true), "delete");
        assert_eq!(combine("", " a , b ", true), "a,b");
        assert_eq!(combine("delete,compact", "delete", false), "compact");
        assert_eq!(combine("delete", "other", false), "delete");
    }
}
