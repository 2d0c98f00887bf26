//! The controller quorum, which is the catalog's Raft group, and the enabled features, which are those of the
//! broker's version.

use std::collections::BTreeMap;
use std::time::Duration;

use base::{Level, ShardId};
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::describe_quorum_response::{
    Listener, Node, PartitionData, ReplicaState, TopicData,
};
use kafka_protocol::messages::update_features_request::FeatureUpdateKey;
use kafka_protocol::messages::update_features_response::UpdatableFeatureResult;
use kafka_protocol::messages::{
    DescribeQuorumRequest, DescribeQuorumResponse, UpdateFeaturesRequest, UpdateFeaturesResponse,
};
use kafka_protocol::protocol::StrBytes;

use crate::errors::{Fault, code_of};
use crate::leaders::{NO_NODE, ReachableNode, broker_id, host_of, reached};
use crate::messages::{RequestError, Response};
use crate::request::Request;
use crate::state::Gateway;
use crate::versions::{FEATURES, LEVEL};

/// Kafka's name of the controllers' log.
const METADATA_TOPIC: &str = "__cluster_metadata";

/// Time limit for the catalog's leader to report the lag of its followers.
const SAID_WITHIN: Duration = Duration::from_secs(1);

pub(crate) async fn describe(
    gateway: &Gateway,
    mut request: Request,
) -> Result<Response, RequestError> {
    let message: DescribeQuorumRequest = request.decode()?;
    let version = request.head.version;
    if let Err(fault) = request.caller.cluster() {
        let refused = DescribeQuorumResponse::default().with_error_code(fault.code());
        return Response::encode(&request.head, &refused.with_error_message(None));
    }
    let lags = lags(gateway).await;
    let topics = message.topics.into_iter().map(|topic| {
        let of_metadata = topic.topic_name.as_str() == METADATA_TOPIC;
        let partitions = topic.partitions.iter().map(|partition| {
            let described = PartitionData::default()
                .with_error_message(None)
                .with_partition_index(partition.partition_index);
            if of_metadata && partition.partition_index == 0 {
                return with_quorum(gateway, &lags, described);
            }
            let fault = Fault::unknown_partition();
            let described = described.with_error_code(fault.code());
            if version >= 2 {
                described.with_error_message(fault.message_bytes())
            } else {
                described
            }
        });
        let partitions = partitions.collect();
        TopicData::default().with_topic_name(topic.topic_name).with_partitions(partitions)
    });
    let response =
        DescribeQuorumResponse::default().with_error_message(None).with_topics(topics.collect());
    let nodes = reached(gateway, request.session.is_encrypted());
    let response = match version {
        ..2 => response,
        2.. => response.with_nodes(nodes.iter().map(node).collect()),
    };
    Response::encode(&request.head, &response)
}

/// Entries of the catalog's log that each member lacks, as the leader reports; empty if the leader does not
/// reply.
async fn lags(gateway: &Gateway) -> BTreeMap<u32, u64> {
    let broker = &gateway.broker;
    let groups = match broker.catalog_leader() {
        Some(leader) if leader != broker.node() => {
            broker.groups_of(leader, SAID_WITHIN).await.unwrap_or_default()
        }
        _ => broker.groups(),
    };
    let Some(catalog) = groups.into_iter().find(|group| group.shard == ShardId::CATALOG) else {
        return BTreeMap::new();
    };
    let others = catalog.lags.iter().filter(|lag| lag.snapshot.is_none());
    let others = others.filter_map(|lag| Some((u32::try_from(lag.node).ok()?, lag.entries)));
    others.chain(catalog.leader.map(|leader| (leader, 0))).collect()
}

/// The log ends of other members are derived from that of this node: the leader's log ends there, or slightly
/// later.
fn with_quorum(
    gateway: &Gateway,
    lags: &BTreeMap<u32, u64>,
    described: PartitionData,
) -> PartitionData {
    let broker = &gateway.broker;
    let (end, now_ms) = (broker.catalog_log_end() as i64, broker.clock().now_ms());
    let voters = broker.catalog_voters().into_iter().map(|voter| {
        let lag = lags.get(&voter).copied();
        let lag = if voter == broker.node() { lag.or(Some(0)) } else { lag };
        // It is unknown since when a member lags.
        let at_ms = if lag == Some(0) { now_ms } else { -1 };
        ReplicaState::default()
            .with_replica_id(broker_id(voter))
            .with_log_end_offset(lag.map_or(-1, |lag| end.saturating_sub_unsigned(lag).max(0)))
            .with_last_fetch_timestamp(at_ms)
            .with_last_caught_up_timestamp(at_ms)
    });
    let voters = voters.collect();
    described
        .with_leader_id(broker.catalog_leader().map_or(NO_NODE, broker_id))
        .with_leader_epoch(broker.catalog_epoch())
        .with_high_watermark(end)
        .with_current_voters(voters)
}

fn node(node: &ReachableNode) -> Node {
    let listener = Listener::default()
        .with_name(StrBytes::from_static_str("PLAINTEXT"))
        .with_host(host_of(node))
        .with_port(node.at.port);
    Node::default().with_node_id(broker_id(node.id)).with_listeners(vec![listener])
}

/// All or nothing, as in Kafka: one refused update refuses the whole request.
pub(crate) fn update_features(
    gateway: &Gateway,
    mut request: Request,
) -> Result<Response, RequestError> {
    let level = gateway.broker.level().now();
    let check = |update: &FeatureUpdateKey| check(level, update);
    let message: UpdateFeaturesRequest = request.decode()?;
    let version = request.head.version;
    let refused = request.caller.cluster().err();
    let refused =
        refused.or_else(|| message.feature_updates.iter().find_map(|update| check(update).err()));
    let mut response = UpdateFeaturesResponse::default().with_error_message(None);
    if let Some(fault) = &refused {
        response = response.with_error_code(fault.code()).with_error_message(fault.message_bytes());
    } else if version < 2 {
        let results = message.feature_updates.iter().map(|update| {
            let updated = check(update);
            UpdatableFeatureResult::default()
                .with_feature(update.feature.clone())
                .with_error_code(code_of(&updated))
                .with_error_message(None)
        });
        response = response.with_results(results.collect());
    }
    Response::encode(&request.head, &response)
}

/// Accepts a feature's present level only. Kafka's features change with the broker's version, and the
/// cluster's level by an operator's command, which reports the obstacles.
fn check(now: Level, update: &FeatureUpdateKey) -> Result<(), Fault> {
    let (name, level) = (update.feature.as_str(), update.max_version_level);
    let refuse = |reason: String| {
        let message = format!("Invalid update version {level} for feature {name}. {reason}");
        Err(Fault::new(ResponseError::InvalidUpdateVersion, message))
    };
    if name == LEVEL {
        return match u16::try_from(level) == Ok(now.0) {
            true => Ok(()),
            false => refuse(format!(
                "The cluster is at {now}; type `postroad cluster upgrade`, which says what it can be raised to."
            )),
        };
    }
    match FEATURES.iter().find(|feature| feature.name == name) {
        None => refuse("This broker does not know the feature.".to_owned()),
        Some(feature) if feature.max == level => Ok(()),
        Some(feature) => refuse(format!(
            "It is at {}, and changes with the version of the broker only.",
            feature.max
        )),
    }
}
