//! ElectLeaders: moves a partition, with every partition of its shard, to its preferred (first) replica.
//!
//! Unclean elections are refused: a replica that lacks acknowledged records is never elected.

use base::PartitionId;
use broker::ElectionError;
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::elect_leaders_request::TopicPartitions;
use kafka_protocol::messages::elect_leaders_response::{PartitionResult, ReplicaElectionResult};
use kafka_protocol::messages::{ElectLeadersRequest, ElectLeadersResponse, TopicName};

use crate::catalog::all_topics;
use crate::catalog::partitions::find_partition;
use crate::errors::Fault;
use crate::messages::{RequestError, Response};
use crate::request::Request;
use crate::state::Gateway;

/// Election type of unclean elections (any live replica). The other type is preferred.
const UNCLEAN: i8 = 1;

/// Outcome of a partition's election. Without a fault, its leader has changed.
struct ElectionResult {
    topic: TopicName,
    index: i32,
    fault: Option<Fault>,
}

pub(crate) async fn elect_leaders(
    gateway: &Gateway,
    mut request: Request,
) -> Result<Response, RequestError> {
    let message: ElectLeadersRequest = request.decode()?;
    let is_unclean = message.election_type == UNCLEAN;
    let refused = request.caller.cluster().err();
    let elected = match (&refused, message.topic_partitions) {
        (Some(fault), named) => {
            let find = |_: &TopicName, _| Err(fault.clone());
            elect(gateway, is_unclean, each(named.unwrap_or_default(), find)).await
        }
        (None, Some(named)) => {
            let caller = &request.caller;
            let find = |topic: &TopicName, index| find_partition(gateway, caller, topic, index);
            elect(gateway, is_unclean, each(named, find)).await
        }
        (None, None) => {
            let topics = all_topics(gateway).await.into_iter();
            let found = topics.flat_map(|topic| {
                let name = topic.message_name();
                let of_topic = topic.partition_ids();
                of_topic.map(move |id| (name.clone(), id.index as i32, Ok(id)))
            });
            let mut elected = elect(gateway, is_unclean, found.collect()).await;
            // If the request names no partitions, Kafka lists only those whose election was attempted.
            let is_needless = |fault: &Fault| fault.error == ResponseError::ElectionNotNeeded;
            elected.retain(|it| !it.fault.as_ref().is_some_and(is_needless));
            elected
        }
    };
    let response = ElectLeadersResponse::default()
        .with_error_code(refused.as_ref().map_or(0, Fault::code))
        .with_replica_election_results(by_topic(elected));
    Response::encode(&request.head, &response)
}

/// A partition as the request names it, and the result of its lookup.
type ElectionTarget = (TopicName, i32, Result<PartitionId, Fault>);

fn each(
    named: Vec<TopicPartitions>,
    find: impl Fn(&TopicName, i32) -> Result<PartitionId, Fault>,
) -> Vec<ElectionTarget> {
    let mut found = Vec::new();
    for TopicPartitions { topic, partitions, .. } in named {
        let of_topic = partitions.into_iter();
        found.extend(of_topic.map(|index| (topic.clone(), index, find(&topic, index))));
    }
    found
}

async fn elect(
    gateway: &Gateway,
    is_unclean: bool,
    found: Vec<ElectionTarget>,
) -> Vec<ElectionResult> {
    let ids: Vec<PartitionId> =
        found.iter().filter_map(|(_, _, found)| found.as_ref().ok().copied()).collect();
    let faults: Vec<Option<Fault>> = match is_unclean {
        true => ids.iter().map(|id| Some(unclean(gateway, *id))).collect(),
        false => gateway.broker.elect_preferred(&ids).await.into_iter().map(fault_of).collect(),
    };
    let mut faults = faults.into_iter();
    let elected = found.into_iter().map(|(topic, index, found)| {
        let fault = match found {
            Ok(_) => faults.next().flatten(),
            Err(unknown) => Some(unknown),
        };
        ElectionResult { topic, index, fault }
    });
    elected.collect()
}

fn fault_of(elected: Result<bool, ElectionError>) -> Option<Fault> {
    let error = match elected {
        Ok(true) => return None,
        Ok(false) => {
            let text = "the first of its replicas leads this partition already";
            return Some(Fault::new(ResponseError::ElectionNotNeeded, text));
        }
        Err(error) => error,
    };
    let code = match error {
        ElectionError::NoLeader { .. } => ResponseError::EligibleLeadersNotAvailable,
        ElectionError::Gone(_)
        | ElectionError::Unwell(_)
        | ElectionError::NotHandedOver { .. }
        | ElectionError::NoOther { .. }
        | ElectionError::TooLate => ResponseError::PreferredLeaderNotAvailable,
    };
    Some(Fault::new(code, error.to_string()))
}

fn unclean(gateway: &Gateway, partition: PartitionId) -> Fault {
    let leader = gateway.broker.leaders(partition.topic).of(partition.index).node;
    match leader.filter(|node| gateway.options.nodes.get(*node).is_some()) {
        Some(leader) => Fault::new(
            ResponseError::ElectionNotNeeded,
            format!("broker {leader} leads this partition already"),
        ),
        None => Fault::new(
            ResponseError::EligibleLeadersNotAvailable,
            "no broker is made a leader that may lack what was acknowledged: a majority of those that have this partition \
             elects one by itself; where it is lost for good, `postroad recover` makes one of those that are left",
        ),
    }
}

/// Groups results by topic. Partitions of one topic are adjacent.
fn by_topic(elected: Vec<ElectionResult>) -> Vec<ReplicaElectionResult> {
    let mut topics: Vec<ReplicaElectionResult> = Vec::new();
    for ElectionResult { topic, index, fault } in elected {
        let result = PartitionResult::default()
            .with_partition_id(index)
            .with_error_code(fault.as_ref().map_or(0, Fault::code))
            .with_error_message(fault.and_then(|fault| fault.message_bytes()));
        match topics.last_mut().filter(|last| last.topic == topic) {
            Some(last) => last.partition_result.push(result),
            None => topics.push(
                ReplicaElectionResult::default()
                    .with_topic(topic)
                    .with_partition_result(vec![result]),
            ),
        }
    }
    topics
}
