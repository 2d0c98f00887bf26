//! Looks up partitions that requests name, and checks where they are led.

use base::PartitionId;
use kafka_protocol::error::ResponseError;

use crate::authorization::Caller;
use crate::errors::Fault;
use crate::leaders::not_leader;
use crate::state::Gateway;

/// Partitions handled between two yields: an append waits meanwhile.
pub(crate) const PARTITIONS_AT_ONCE: usize = 512;

/// Returns the partition with this topic and index, for a caller whose right on the cluster was checked.
pub(crate) fn find_partition(
    gateway: &Gateway,
    caller: &Caller,
    topic: &str,
    index: i32,
) -> Result<PartitionId, Fault> {
    let catalog = gateway.broker.catalog();
    let found = catalog.topic_named(topic).and_then(|topic| topic.partition(index));
    found.ok_or_else(|| caller.missing(Fault::unknown_partition()))
}

/// Looks up a topic's partitions by index; each result is at the index's position. Without a right to the
/// request's action on the topic, all are refused.
pub(crate) fn find_partitions(
    gateway: &Gateway,
    caller: &Caller,
    topic: &str,
    indexes: impl Iterator<Item = i32>,
) -> Vec<Result<PartitionId, Fault>> {
    if let Err(fault) = caller.topic(topic) {
        return indexes.map(|_| Err(fault.clone())).collect();
    }
    let catalog = gateway.broker.catalog();
    let topic = catalog.topic_named(topic);
    let find = |index| topic.and_then(|topic| topic.partition(index));
    let missing = || caller.missing(Fault::unknown_partition());
    indexes.map(|index| find(index).ok_or_else(missing)).collect()
}

/// Like [`find_partitions`], but refuses partitions that another node leads.
pub(crate) fn find_led_partitions(
    gateway: &Gateway,
    caller: &Caller,
    topic: &str,
    indexes: impl Iterator<Item = i32>,
) -> Vec<Result<PartitionId, Fault>> {
    let mut found = find_partitions(gateway, caller, topic, indexes);
    refuse_led_elsewhere(gateway, &mut found, |id| *id);
    found
}

/// Like [`find_partitions`], once this node has everything acknowledged in them. If it does not within
/// [`BARRIER_WITHIN`](base::limits::BARRIER_WITHIN), partitions that it does not lead are refused.
pub(crate) async fn find_current_partitions(
    gateway: &Gateway,
    caller: &Caller,
    topic: &str,
    indexes: impl Iterator<Item = i32>,
) -> Vec<Result<PartitionId, Fault>> {
    let mut found = find_partitions(gateway, caller, topic, indexes);
    let ids: Vec<PartitionId> = found.iter().flatten().copied().collect();
    if gateway.broker.copies_are_current(&ids).await.is_err() {
        refuse_led_elsewhere(gateway, &mut found, |id| *id);
    }
    found
}

/// Refuses items about partitions that another node leads.
pub(crate) fn refuse_led_elsewhere<T>(
    gateway: &Gateway,
    found: &mut [Result<T, Fault>],
    about: impl Fn(&T) -> PartitionId,
) {
    if gateway.broker.is_alone() {
        return;
    }
    let ids: Vec<PartitionId> = found.iter().flatten().map(about).collect();
    let led = gateway.broker.leads_each(&ids);
    for (found, led) in found.iter_mut().filter(|found| found.is_ok()).zip(led) {
        if !led {
            *found = Err(not_leader());
        }
    }
}

/// Combines the found items with their answers: one answer for each of them in their order, or a fault for
/// all of them.
pub(crate) fn with_answers<T, A>(
    found: Vec<Result<T, Fault>>,
    answers: Result<Vec<A>, impl Into<Fault>>,
) -> impl Iterator<Item = Result<(T, A), Fault>> {
    let mut answers = answers.map(Vec::into_iter).map_err(Into::into);
    found.into_iter().map(move |found| {
        let found = found?;
        match &mut answers {
            Ok(answers) => match answers.next() {
                Some(answer) => Ok((found, answer)),
                None => Err(Fault::plain(ResponseError::UnknownServerError)),
            },
            Err(fault) => Err(fault.clone()),
        }
    })
}
