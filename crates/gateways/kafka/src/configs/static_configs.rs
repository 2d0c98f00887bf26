//! Broker settings that are fixed at the start, by Kafka's names. They are shown because tools read them, and
//! cannot be changed at runtime.

use broker::config::ConfigKind;

use crate::state::Gateway;

pub(crate) struct StaticConfig {
    pub(crate) name: &'static str,
    pub(crate) kind: ConfigKind,
    pub(crate) value: fn(&Gateway) -> String,
    pub(crate) documentation: &'static str,
}

const fn entry(
    name: &'static str,
    kind: ConfigKind,
    value: fn(&Gateway) -> String,
    documentation: &'static str,
) -> StaticConfig {
    StaticConfig { name, kind, value, documentation }
}

fn listeners(gateway: &Gateway) -> String {
    format!("PLAINTEXT://{}", gateway.options.nodes.own().endpoints.kafka)
}

fn replicas(gateway: &Gateway) -> String {
    gateway.broker.replicas().len().to_string()
}

fn rack(gateway: &Gateway) -> String {
    gateway.options.nodes.own().endpoints.rack.clone().unwrap_or_default()
}

fn replica_selector(gateway: &Gateway) -> String {
    let is_told = gateway.options.nodes.own().endpoints.rack.is_some();
    if is_told { "org.apache.kafka.common.replica.RackAwareReplicaSelector" } else { "" }.to_owned()
}

fn log_dirs(gateway: &Gateway) -> String {
    gateway.broker.storage().map_or(String::new(), |storage| storage.dir.display().to_string())
}

pub(crate) static STATIC_CONFIGS: [StaticConfig; 23] = [
    entry("broker.id", ConfigKind::Int, |it| it.node_id().to_string(), "This node's number."),
    entry("node.id", ConfigKind::Int, |it| it.node_id().to_string(), "This node's number."),
    entry(
        "process.roles",
        ConfigKind::List,
        |_| "broker,controller".to_owned(),
        "The node does what Kafka's brokers do, and what its controllers do.",
    ),
    entry("listeners", ConfigKind::List, listeners, "Where clients are told to connect."),
    entry(
        "advertised.listeners",
        ConfigKind::List,
        listeners,
        "Where clients are told to connect.",
    ),
    entry(
        "listener.security.protocol.map",
        ConfigKind::List,
        |_| "PLAINTEXT:PLAINTEXT".to_owned(),
        "Connections are neither encrypted nor authenticated.",
    ),
    entry(
        "security.inter.broker.protocol",
        ConfigKind::String,
        |_| "PLAINTEXT".to_owned(),
        "Connections are neither encrypted nor authenticated.",
    ),
    entry(
        "authorizer.class.name",
        ConfigKind::String,
        |_| String::new(),
        "Nothing: there are no users and no access lists.",
    ),
    entry("log.dirs", ConfigKind::List, log_dirs, "Where the data is."),
    entry(
        "auto.create.topics.enable",
        ConfigKind::Boolean,
        |it| it.options.auto_create_topics.to_string(),
        "Whether a topic comes about when a client first asks for it.",
    ),
    entry(
        "delete.topic.enable",
        ConfigKind::Boolean,
        |_| "true".to_owned(),
        "Topics can be deleted.",
    ),
    entry(
        "log.cleaner.enable",
        ConfigKind::Boolean,
        |_| "true".to_owned(),
        "Topics with the cleanup policy compact are compacted.",
    ),
    entry(
        "num.partitions",
        ConfigKind::Int,
        |it| it.options.partitions_default.to_string(),
        "Partitions of a topic that is made without saying how many.",
    ),
    entry(
        "default.replication.factor",
        ConfigKind::Int,
        replicas,
        "Replicas of a topic that is made without saying how many.",
    ),
    entry(
        "offsets.topic.replication.factor",
        ConfigKind::Int,
        replicas,
        "Replicas of committed offsets, which are in the brokers' own state and in no topic.",
    ),
    entry(
        "offset.metadata.max.bytes",
        ConfigKind::Int,
        |_| base::limits::OFFSET_METADATA_UNITS_MAX.to_string(),
        "The longest metadata of a committed offset, in UTF-16 code units.",
    ),
    entry(
        "group.coordinator.rebalance.protocols",
        ConfigKind::List,
        |_| "classic,consumer,share,streams".to_owned(),
        "The protocols of groups that are spoken.",
    ),
    entry(
        "auto.leader.rebalance.enable",
        ConfigKind::Boolean,
        |it| (!it.broker.is_alone()).to_string(),
        "A partition goes back to the first of its replicas once that one has been there for a while.",
    ),
    entry(
        "replica.selector.class",
        ConfigKind::String,
        replica_selector,
        "Consumers in the rack of another node that has a copy are sent there, where nodes are told their racks.",
    ),
    entry("broker.rack", ConfigKind::String, rack, "Where the node is, if it was told."),
    entry(
        "max.connections",
        ConfigKind::Int,
        |it| it.options.sessions_max.to_string(),
        "Connections at a time; more are closed at once.",
    ),
    entry(
        "socket.request.max.bytes",
        ConfigKind::Int,
        |it| it.options.request_bytes_max.to_string(),
        "The largest request that is taken.",
    ),
    entry(
        "connections.max.idle.ms",
        ConfigKind::Long,
        |it| it.options.session_idle_max.as_millis().to_string(),
        "A connection that was silent for so long is closed.",
    ),
];
