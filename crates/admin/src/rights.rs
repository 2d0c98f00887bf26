//! Rights that each operation needs.

use access::{AccessTarget, Operation as Right, RequestContext, Rights};
use access_rules::acl::{Action, Resource};
use operations::document::{Operation, QueueName};
use operations::family::Effect;

use crate::AdminError;

/// Setting of a declared group: the topic of its dead letters.
const DEAD_LETTER_TOPIC: &str = "dead.letter.topic";

/// Checks that the caller has every right that the operation needs. Lists filter their results themselves.
/// `effect`: the effect of an operation of a family.
pub(crate) fn check(
    rights: &Rights,
    operation: &Operation,
    effect: impl Fn(&str, &serde_json::Value) -> Effect,
) -> Result<(), AdminError> {
    if rights.is_everything() && !rights.is_audited() {
        return Ok(());
    }
    let name = if rights.is_audited() { name(operation) } else { String::new() };
    if let Some((action, group)) = needs_of_group(operation)
        && !rights.allows_by(name.as_str(), action, Resource::Group, group)
    {
        return Err(AdminError::GroupDenied(format!(
            "this user may not do that to the group {group}; an administrator grants the right with 'postroad acl add'"
        )));
    }
    let (needs, subject) = needs(operation, effect);
    let said = RequestContext { request: &name, subject: &subject };
    let missing = needs.into_iter().find(|(right, target)| !rights.may_by(said, *right, *target));
    missing.map_or(Ok(()), |(right, target)| Err(refused(right, target)))
}

/// Name of the operation in its document, without its contents.
fn name(operation: &Operation) -> String {
    fn first(value: &serde_json::Value) -> &str {
        let key = value.as_object().and_then(|object| object.keys().next());
        key.map(String::as_str).or(value.as_str()).unwrap_or_default()
    }
    match operation {
        Operation::Family { family, operation } => format!("{family} {}", first(operation)),
        operation => {
            let value = serde_json::to_value(operation).unwrap_or_default();
            first(&value).to_owned()
        }
    }
}

/// Right on a group that commits offsets, which belongs to no topic: that of the corresponding Kafka request.
fn needs_of_group(operation: &Operation) -> Option<(Action, &str)> {
    match operation {
        Operation::DescribeOffsetGroup { group, .. } => Some((Action::Describe, group)),
        Operation::SeekOffsetGroup { group, .. } => Some((Action::Read, group)),
        Operation::DeleteOffsetGroup { group, .. } => Some((Action::Delete, group)),
        _ => None,
    }
}

/// All rights that the operation needs, and a description of its change of the cluster.
fn needs<'a>(
    operation: &'a Operation,
    effect: impl Fn(&str, &serde_json::Value) -> Effect,
) -> (Vec<(Right, AccessTarget<'a>)>, String) {
    let cluster = |right| vec![(right, AccessTarget::Cluster)];
    let mut subject = String::new();
    let needs = match operation {
        // Their results have only what the caller may see.
        Operation::ListQueues { .. }
        | Operation::ListDeadLetterTopics {}
        | Operation::ListOffsetGroups { .. }
        | Operation::FindRecords { topic: None, .. } => Vec::new(),
        // The right on the group suffices.
        Operation::DescribeOffsetGroup { .. } | Operation::DeleteOffsetGroup { .. } => Vec::new(),
        Operation::SeekOffsetGroup { to, .. } => {
            to.iter().map(|place| (Right::Browse, AccessTarget::Topic(&place.topic))).collect()
        }
        Operation::PauseQueue { queue, .. } => vec![(Right::Alter, of(queue))],
        Operation::DeclareQueue { queue, config, .. } => {
            let mut needs = vec![(Right::Alter, of(queue))];
            // Dead letters are written for the declaring user, who therefore needs the right to write there,
            // as with RabbitMQ's dead-letter exchanges.
            let letters = config.get(DEAD_LETTER_TOPIC).filter(|topic| !topic.is_empty());
            needs.extend(letters.map(|topic| (Right::Append, AccessTarget::Topic(topic))));
            needs
        }
        Operation::DescribeQueue { queue } => vec![(Right::DescribeGroup, of(queue))],
        Operation::PeekQueue { queue, .. } | Operation::ListScheduled { queue, .. } => {
            vec![(Right::Browse, of(queue)), (Right::DescribeGroup, of(queue))]
        }
        Operation::PurgeQueue { queue }
        | Operation::RemoveRecords { queue, .. }
        | Operation::CancelScheduled { queue, .. } => vec![(Right::Purge, of(queue))],
        Operation::SeekQueue { queue, .. } => vec![(Right::Seek, of(queue))],
        Operation::DeleteQueue { queue, .. } => {
            vec![(Right::Delete, of(queue)), (Right::DeleteGroup, of(queue))]
        }
        Operation::DescribeRecord { topic, .. }
        | Operation::FindRecords { topic: Some(topic), .. } => {
            vec![(Right::Browse, AccessTarget::Topic(topic))]
        }
        Operation::CountDeadLetters { topic, .. } => {
            vec![(Right::Describe, AccessTarget::Topic(topic))]
        }
        Operation::ShowDeadLetters { topic, .. } => {
            vec![(Right::Browse, AccessTarget::Topic(topic))]
        }
        Operation::RedriveDeadLetters { topic, only, to, .. } => {
            let mut needs = vec![(Right::Consume, AccessTarget::Topic(topic))];
            match to.as_ref().or(only.source.as_ref()) {
                Some(to) => needs.push((Right::Append, AccessTarget::Topic(to))),
                // Each record may have come from another topic.
                None => needs.push((Right::Administer, AccessTarget::Cluster)),
            }
            needs
        }
        Operation::DeleteDeadLetters { topic, .. } => {
            vec![(Right::Purge, AccessTarget::Topic(topic))]
        }
        Operation::ListShards {} | Operation::ListConnections { .. } => cluster(Right::Look),
        Operation::ElectLeader {} | Operation::CloseConnection { .. } => cluster(Right::Administer),
        Operation::Family { family, operation } => match effect(family, operation) {
            Effect::Look => cluster(Right::Look),
            Effect::Change(words) => {
                subject = words;
                cluster(Right::Administer)
            }
        },
    };
    (needs, subject)
}

fn of(queue: &QueueName) -> AccessTarget<'_> {
    AccessTarget::Group { topic: &queue.topic, group: &queue.group }
}

/// The refusal does not reveal whether the target exists.
fn refused(right: Right, target: AccessTarget<'_>) -> AdminError {
    match target {
        AccessTarget::Cluster => {
            let word = if right == Right::Look { "describe" } else { "alter" };
            AdminError::ClusterDenied(format!("this needs a user who may {word} the cluster"))
        }
        AccessTarget::Topic(topic)
        | AccessTarget::Group { topic, .. }
        | AccessTarget::Queue { topic, .. } => AdminError::TopicDenied(format!(
            "this user may not do that to the topic {topic}; an administrator grants the right with 'postroad acl add'"
        )),
        AccessTarget::Exchange { name, .. } => {
            AdminError::ClusterDenied(format!("this user may not do that to the exchange {name}"))
        }
    }
}
