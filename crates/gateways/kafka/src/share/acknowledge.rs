//! ShareAcknowledge, and the acknowledgements in a ShareFetch: a member settles its leased records.
//!
//! Settlements are durable before the response. A partition has one result for all of its acknowledgements.
//! Kafka undoes the rest if a part is refused; here each part is settled independently.
//!
//! Records are fetched from their partition's leader, and acknowledged where they were fetched: the leases
//! belong to the member's session, which stays at this node when the leader changes. So an acknowledgement is
//! never refused because of that. It goes to the leader as in all other protocols, and waits while there is
//! none.

use std::collections::BTreeMap;
use std::future::Future;

use base::LeaseGroupId;
use broker::delivery::SettleError;
use broker::{Broker, CatalogView, LeaseSession, Settle, SettleTarget, Settlement, Unavailable};
use consumer_groups::lease_groups;
use kafka_protocol::error::ResponseError;
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use crate::authorization::Caller;
use crate::catalog::currency::ensure_known;
use crate::errors::Fault;
use crate::leaders::{Referrals, is_about_leader};
use crate::messages::{RequestError, Response};
use crate::request::Request;
use crate::share::answers::refer;
use crate::share::key_of;
use crate::share::request::{
    Acknowledge, AcknowledgedRange, ShareAcknowledgeRequest, SharePartition,
};
use crate::share::response::{PartitionOutcome, ShareAcknowledged, encode_acknowledged};
use crate::state::share_sessions::{FINAL_EPOCH, INITIAL_EPOCH};
use crate::state::{Gateway, Session};
use crate::topic_ref::RequestedTopic;

pub(crate) async fn handle(
    gateway: &Gateway,
    session: &Session,
    mut request: Request,
) -> Result<Response, RequestError> {
    let message = ShareAcknowledgeRequest::parse(&mut request)?;
    ensure_known(gateway, message.partitions.iter().map(|it| RequestedTopic::Id(it.topic))).await;
    let done = match acknowledge(gateway, session, &request.caller, message).await {
        Ok(done) => done,
        Err(fault) => ShareAcknowledged { fault: Some(fault), ..ShareAcknowledged::default() },
    };
    Ok(encode_acknowledged(&request.head, done))
}

async fn acknowledge(
    gateway: &Gateway,
    session: &Session,
    caller: &Caller,
    message: ShareAcknowledgeRequest,
) -> Result<ShareAcknowledged, Fault> {
    let key = key_of(&message.head)?;
    caller.group(&key.group).map_err(Fault::plain)?;
    let epoch = message.head.epoch;
    if epoch == INITIAL_EPOCH {
        // A session begins with a fetch.
        return Err(Fault::plain(ResponseError::InvalidShareSessionEpoch));
    }
    let share = gateway.share_sessions.resume(&key, epoch)?;
    let (broker, leases) = (&gateway.broker, &share.leases);
    let outcomes = settle(broker, caller, leases, &key.group, &message.partitions).await;
    drop(share);
    if epoch == FINAL_EPOCH {
        session.end_share_session(gateway, &key);
    }
    let mut topics: BTreeMap<Uuid, Vec<PartitionOutcome>> = BTreeMap::new();
    let mut referrals = Referrals::new(session.is_encrypted());
    for (partition, fault) in message.partitions.iter().zip(outcomes) {
        let (topic, index) = (partition.topic, partition.index);
        let elsewhere = fault.as_ref().is_some_and(|fault| is_about_leader(fault.code()));
        let leader = elsewhere.then(|| refer(&mut referrals, gateway, &topic, index)).flatten();
        topics.entry(topic).or_default().push(PartitionOutcome { index, fault, leader });
    }
    let lock_ms = lease_groups::lock_ms(&gateway.broker.catalog(), &key.group);
    let (topics, leaders) = (topics.into_iter().collect(), referrals.into_endpoints());
    Ok(ShareAcknowledged { fault: None, lock_ms, topics, leaders })
}

/// Plan of one partition's acknowledgements.
enum AcknowledgePlan {
    Refused(Fault),
    /// The next so many settles belong to it.
    Settles(usize),
}

/// Settles a request's acknowledgements. The settles are ordered by this call; the future resolves once they
/// are durable, with one outcome for each partition.
pub(super) fn settle(
    broker: &Broker,
    caller: &Caller,
    leases: &LeaseSession,
    group: &StrBytes,
    partitions: &[SharePartition],
) -> impl Future<Output = Vec<Option<Fault>>> + use<> {
    let mut settles = Vec::new();
    let planned: Vec<_> = {
        let catalog = broker.catalog();
        let planned = |partition| match plan(&catalog, caller, group, partition) {
            Ok(planned) => {
                let count = planned.len();
                settles.extend(planned);
                AcknowledgePlan::Settles(count)
            }
            Err(fault) => AcknowledgePlan::Refused(fault),
        };
        partitions.iter().map(planned).collect()
    };
    let reply = (!settles.is_empty()).then(|| leases.settle(settles));
    async move {
        let outcomes = match reply {
            Some(reply) => reply.await,
            None => Vec::new(),
        };
        let mut outcomes = outcomes.into_iter();
        let outcome = |planned| match planned {
            AcknowledgePlan::Refused(fault) => Some(fault),
            AcknowledgePlan::Settles(count) => {
                // Takes all of them, so that the next outcome is the next partition's.
                let faults = outcomes.by_ref().take(count).filter_map(Result::err);
                faults.map(fault_of).collect::<Vec<_>>().into_iter().next()
            }
        };
        planned.into_iter().map(outcome).collect()
    }
}

fn plan(
    catalog: &CatalogView<'_>,
    caller: &Caller,
    group: &str,
    partition: &SharePartition,
) -> Result<Vec<Settle>, Fault> {
    let ranges = match &partition.acknowledged {
        Ok(ranges) => ranges,
        Err(invalid) => return Err(Fault::new(ResponseError::InvalidRequest, invalid.0)),
    };
    let topic = catalog.topic_with_uuid(&partition.topic).ok_or_else(Fault::unknown_topic_id)?;
    caller.topic(topic.name())?;
    let found = topic.partition(partition.index);
    let index = found.ok_or_else(Fault::unknown_partition)?.index;
    let lease_group = catalog.lease_group_named(topic.id(), group);
    let lease_group = lease_group.ok_or_else(Fault::unknown_partition)?.id();
    let renews = ranges.iter().any(|range| range.acknowledge == Acknowledge::Renew);
    if renews && !catalog.group_config(group).share.renew_enabled {
        return Err(Fault::new(
            ResponseError::InvalidRecordState,
            "Renewing acquisition locks is not enabled for the group.",
        ));
    }
    let lease_ms = i64::from(lease_groups::lock_ms(catalog, group));
    let settle = |range: &AcknowledgedRange| settle_range(lease_group, index, range, lease_ms);
    Ok(ranges.iter().map(settle).collect())
}

fn settle_range(
    group: LeaseGroupId,
    partition: u32,
    range: &AcknowledgedRange,
    lease_ms: i64,
) -> Settle {
    let AcknowledgedRange { first, last, acknowledge } = *range;
    let settlement = match acknowledge {
        Acknowledge::Gap | Acknowledge::Accept => Settlement::Accept,
        Acknowledge::Release => Settlement::Release { delay_ms: None, count: true },
        Acknowledge::Reject => Settlement::Reject,
        Acknowledge::Renew => Settlement::Renew { lease_ms: Some(lease_ms) },
    };
    Settle { group, what: SettleTarget::Range { partition, first, last }, settlement }
}

fn fault_of(error: SettleError) -> Fault {
    match error {
        SettleError::UnknownGroup(_) => Fault::unknown_partition(),
        SettleError::NotLeased => Fault::new(ResponseError::InvalidRecordState, error.to_string()),
        // There was no leader for a while, and nothing was changed. The leases still belong to this node's
        // session, so the member must retry here. On an error about the leader it would abandon its records.
        SettleError::Unavailable(Unavailable::NotLeader) => {
            Fault::new(ResponseError::LeaderNotAvailable, error.to_string())
        }
        SettleError::Unavailable(unavailable) => unavailable.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settle_without_a_leader_is_retriable_and_a_late_one_is_not() {
        let code = |error: SettleError| fault_of(error).code();
        let tries_again = [Unavailable::NotLeader, Unavailable::Unanswered]
            .map(|why| code(SettleError::Unavailable(why)));
        let retriable = [ResponseError::LeaderNotAvailable, ResponseError::RequestTimedOut];
        assert_eq!(tries_again, retriable.map(|error| error.code()));
        assert_eq!(code(SettleError::NotLeased), ResponseError::InvalidRecordState.code());
        let stopping = code(SettleError::Unavailable(Unavailable::Stopping));
        assert_eq!(stopping, ResponseError::NotLeaderOrFollower.code(), "its sessions end");
    }
}
