//! Moves of partitions to other shards, requested by operators. The shards execute them ([`broker::move_requests`]).

use ::operations::cluster as document;
use ::operations::family::OperationError;
use base::{PartitionId, ShardId, TopicId};
use broker::{Broker, ExecuteError, MoveState, MoveStatus, Refusal, Unavailable};

/// Limit on the partitions named in a status.
const NAMED: usize = 5;

pub(crate) async fn begin(
    broker: &Broker,
    topic: &str,
    partitions: Vec<u32>,
    to_shard: u32,
) -> Result<document::Moves, OperationError> {
    let id = topic_named(broker, topic)?;
    let begun = broker.move_partitions(id, partitions, ShardId(to_shard)).await;
    begun.map_err(|error| move_error(topic, error))?;
    tracing::info!(topic, to_shard, "partitions are moved, as an operator asks");
    status(broker, Some(topic)).await
}

pub(crate) async fn cancel(
    broker: &Broker,
    topic: &str,
    partitions: Vec<u32>,
) -> Result<document::Moves, OperationError> {
    let id = topic_named(broker, topic)?;
    broker.cancel_moves(id, partitions).await.map_err(|error| move_error(topic, error))?;
    status(broker, Some(topic)).await
}

pub(crate) async fn status(
    broker: &Broker,
    topic: Option<&str>,
) -> Result<document::Moves, OperationError> {
    let shards = match topic {
        None => Vec::new(),
        Some(topic) => {
            let id = topic_named(broker, topic)?;
            let count = broker.catalog().topic(id).map_or(0, |topic| topic.partition_count());
            (0..count).map(|index| broker.shard_with(PartitionId::new(id, index)).0).collect()
        }
    };
    let moves = broker.moves().await.map_err(|why| OperationError::Unavailable(why.to_string()))?;
    let moving = moves.into_iter().filter_map(|status| moving(broker, status)).collect();
    Ok(document::Moves { moving, shards })
}

/// Moves in progress, in the words of `cluster status`.
pub(crate) async fn describe(broker: &Broker) -> Vec<String> {
    let moves = match broker.moves().await {
        Ok(moves) => moves,
        Err(why) => {
            return vec![format!("how far the partitions that move are is not known: {why}")];
        }
    };
    let named = moves.iter().take(NAMED).filter_map(|status| moving(broker, *status));
    let mut words: Vec<String> = named.map(|moving| line(&moving)).collect();
    if moves.len() > NAMED {
        words.push(format!("{} more partitions move", moves.len() - NAMED));
    }
    words
}

fn line(moving: &document::PartitionMove) -> String {
    let document::PartitionMove { topic, partition, from_shard, to_shard, state, copied, of } =
        moving;
    let how = match state {
        document::MoveState::Waits => "waits".to_owned(),
        document::MoveState::Copies => format!("{copied} of {of} records are copied"),
        document::MoveState::Frozen => "it takes no records for a moment".to_owned(),
        document::MoveState::HandedOver => "it is handed over".to_owned(),
        document::MoveState::Cancelled => "it is cancelled".to_owned(),
    };
    format!(
        "partition {partition} of topic {topic} moves from shard {from_shard} to {to_shard}: {how}"
    )
}

/// `None`: the topic has been deleted.
fn moving(broker: &Broker, status: MoveStatus) -> Option<document::PartitionMove> {
    let MoveStatus { partition, from, to, state, copied, of } = status;
    let topic = broker.catalog().topic(partition.topic)?.name().to_string();
    let state = match state {
        MoveState::Waits => document::MoveState::Waits,
        MoveState::Copies => document::MoveState::Copies,
        MoveState::Frozen => document::MoveState::Frozen,
        MoveState::HandedOver => document::MoveState::HandedOver,
        MoveState::Cancelled => document::MoveState::Cancelled,
    };
    let (from_shard, to_shard) = (from.0, to.0);
    Some(document::PartitionMove {
        topic,
        partition: partition.index,
        from_shard,
        to_shard,
        state,
        copied,
        of,
    })
}

fn topic_named(broker: &Broker, topic: &str) -> Result<TopicId, OperationError> {
    let found = broker.catalog().topic_named(topic).map(|topic| topic.id());
    found.ok_or_else(|| {
        OperationError::NotFound(format!(
            "there is no topic {topic}: `postroad topic list` says which there are"
        ))
    })
}

/// Names the topic, which the catalog knows by number.
fn move_error(topic: &str, error: ExecuteError) -> OperationError {
    let invalid = |words: String| OperationError::Invalid(words);
    match error {
        ExecuteError::Refused(Refusal::HasLeaseGroups { groups, .. }) => invalid(format!(
            "topic {topic} is a queue, or has share groups: {groups} lease groups in all. Partitions whose records are \
             leased cannot be moved yet; another topic's can: `postroad topic list`"
        )),
        ExecuteError::Refused(Refusal::UnknownPartition { partition }) => invalid(format!(
            "topic {topic} has no partition {}: `postroad topic describe {topic}` says which it has",
            partition.index
        )),
        ExecuteError::Refused(Refusal::MovesAlready { partition, to }) => invalid(format!(
            "partition {index} of topic {topic} moves to shard {} already: wait for it, or type `postroad topic move \
             {topic} --partitions {index} --cancel`",
            to.0,
            index = partition.index
        )),
        ExecuteError::Refused(refusal) => invalid(refusal.to_string()),
        ExecuteError::Unavailable(why @ (Unavailable::NotLeader | Unavailable::Unanswered)) => {
            OperationError::Unavailable(format!("{why}: type it again, it does no harm twice"))
        }
        ExecuteError::Unavailable(why) => OperationError::Unavailable(why.to_string()),
    }
}
