//! Groups that consume queues of virtual hosts other than `/`. A group's name belongs to no virtual host,
//! unless it begins with `amqp.<vhost>.`, but its topics do. So a client with a right to the group is still
//! refused any view or change of a queue that it has no right to.

use access::{AccessTarget, Operation, Rights};
use base::queue_topics::is_of_other_vhost;
use broker::{Broker, Unavailable};
use coordinator::Group;
use uuid::Uuid;

/// Committed offsets per query.
const OFFSETS_AT_ONCE: usize = 1_000;

/// Whether the caller may see the topic among a group's.
pub fn sees(rights: &Rights, topic: &str) -> bool {
    !is_of_other_vhost(topic) || rights.would(Operation::Describe, AccessTarget::Topic(topic))
}

/// Whether the caller may delete a group's progress in the topic.
fn may_delete_part(rights: &Rights, topic: &str) -> bool {
    !is_of_other_vhost(topic) || rights.would(Operation::Browse, AccessTarget::Topic(topic))
}

/// Whether the caller may see all topics of the group. Kafka describes a group only then.
pub fn may_be_described(broker: &Broker, rights: &Rights, group: &Group) -> bool {
    rights.is_everything() || all_topics(broker, group, |topic| sees(rights, topic))
}

/// Whether the group appears in lists: the caller may see one of its topics, or it has none.
pub fn is_listed(broker: &Broker, rights: &Rights, group: &Group) -> bool {
    rights.is_everything()
        || !all_topics(broker, group, |topic| !sees(rights, topic))
        || all_topics(broker, group, |_| false)
}

/// Whether a test holds for every topic to which the group's members subscribe.
fn all_topics(broker: &Broker, group: &Group, test: impl Fn(&str) -> bool) -> bool {
    match group {
        Group::Classic(group) => group
            .members()
            .filter_map(|member| group.topics_of(member))
            .all(|topics| topics.iter().all(|topic| test(topic))),
        Group::Consumer(group) => {
            group.members().all(|member| member.subscription.names.iter().all(|topic| test(topic)))
        }
        Group::Share(group) => {
            let catalog = broker.catalog();
            let name_of = |topic: Uuid| catalog.topic_with_uuid(&topic);
            group.topics().filter_map(name_of).all(|topic| test(topic.name()))
        }
        Group::Streams(group) => group.topology().is_none_or(|topology| {
            let mut topics = topology.subtopologies.iter().flat_map(|it| it.reads());
            topics.all(|topic| test(topic))
        }),
    }
}

/// Whether the caller may see a topic of this share group.
pub fn sees_lease_groups(broker: &Broker, rights: &Rights, group: &str) -> bool {
    let catalog = broker.catalog();
    let of_group = catalog.lease_groups_with_name(group);
    let mut topics = of_group.filter_map(|it| catalog.topic(it.topic()));
    topics.any(|topic| rights.is_everything() || sees(rights, topic.name()))
}

/// Whether the caller may delete all offsets and leases of the group.
pub async fn may_be_deleted(
    broker: &Broker,
    rights: &Rights,
    group: &str,
) -> Result<bool, Unavailable> {
    if rights.is_everything() {
        return Ok(true);
    }
    {
        let catalog = broker.catalog();
        let of_leases = catalog.lease_groups_with_name(group);
        let mut topics = of_leases.filter_map(|it| catalog.topic(it.topic()));
        let may_end = |name: &str| {
            let target = AccessTarget::Group { topic: name, group };
            // The group `main` is the queue itself.
            may_delete_part(rights, name)
                && (group != base::MAIN_LEASE_GROUP || rights.would(Operation::Seek, target))
        };
        if !topics.all(|topic| may_end(topic.name())) {
            return Ok(false);
        }
    }
    let mut after = None;
    loop {
        let found = broker.shards().offsets_after(group, after, OFFSETS_AT_ONCE).await?;
        let catalog = broker.catalog();
        let mut topics = found.iter().filter_map(|(partition, _)| catalog.topic(partition.topic));
        if !topics.all(|topic| may_delete_part(rights, topic.name())) {
            return Ok(false);
        }
        match found.last() {
            Some((last, _)) if found.len() == OFFSETS_AT_ONCE => after = Some(*last),
            _ => return Ok(true),
        }
    }
}

/// Whether the caller may alter all topics in which the share group's configuration takes effect.
pub fn may_be_configured(broker: &Broker, rights: &Rights, group: &str) -> bool {
    let catalog = broker.catalog();
    let of_group = catalog.lease_groups_with_name(group);
    let mut topics = of_group.filter_map(|it| catalog.topic(it.topic()));
    let alters = |topic: &str| {
        !is_of_other_vhost(topic) || rights.would(Operation::Alter, AccessTarget::Topic(topic))
    };
    rights.is_everything() || topics.all(|topic| alters(topic.name()))
}
