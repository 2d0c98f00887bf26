//! Ids of proposals that are not applied yet.

use std::collections::VecDeque;

use base::{HashMap, Offset, PartitionId, TopicId};
use journal::Body;
use machine::Command;

use super::SeenRecord;

#[derive(Debug, Default)]
pub(super) struct InFlightIds {
    seen: HashMap<(TopicId, u128), SeenRecord>,
    /// Ordered by ticket.
    in_order: VecDeque<(u64, TopicId, u128)>,
}

impl InFlightIds {
    pub(super) fn len(&self) -> u64 {
        self.seen.len() as u64
    }

    pub(super) fn find(&self, topic: TopicId, id: u128) -> Option<SeenRecord> {
        self.seen.get(&(topic, id)).copied()
    }

    pub(super) fn add(&mut self, id: u128, seen: SeenRecord) {
        let topic = seen.partition.topic;
        self.seen.insert((topic, id), seen);
        self.in_order.push_back((seen.ticket, topic, id));
    }

    pub(super) fn applied(&mut self, up_to: u64) {
        while let Some((ticket, topic, id)) =
            self.in_order.pop_front_if(|(ticket, ..)| *ticket <= up_to)
        {
            let key = (topic, id);
            if self.seen.get(&key).is_some_and(|seen| seen.ticket == ticket) {
                self.seen.remove(&key);
            }
        }
    }

    pub(super) fn forget_from(&mut self, ticket: u64) {
        self.seen.retain(|_, seen| seen.ticket < ticket);
        self.in_order.retain(|(of, ..)| *of < ticket);
    }

    /// See [`super::Dedup::place_again`].
    pub(super) fn place_again(&mut self, ticket: u64, commands: &[Command], bodies: &[Body]) {
        for (id, partition, offset, _) in ids_of(commands, bodies) {
            // The time of the new entry is not known yet, and is within any window.
            self.add(id, SeenRecord { at_ms: i64::MAX, partition, offset, ticket });
        }
    }
}

/// Ids of a proposal with their records, and the start of the window.
pub(super) fn ids_of<'a>(
    commands: &'a [Command],
    bodies: &'a [Body],
) -> impl Iterator<Item = (u128, PartitionId, Offset, i64)> + 'a {
    let changes = commands.iter().filter_map(|command| match command {
        Command::RecordIds(change) => Some(&change.topics),
        _ => None,
    });
    let appended = changes.flatten().flat_map(|change| {
        change.appended.iter().map(move |appended| (appended, change.expire_before_ms))
    });
    appended.flat_map(|(appended, from_ms)| {
        let body = bodies.get(appended.append as usize);
        body.into_iter().flat_map(move |body| {
            let partition = PartitionId::from_stream(body.stream);
            let placed =
                move |(delta, id)| (id, partition, body.base_offset + u64::from(delta), from_ms);
            appended.ids.iter().map(placed)
        })
    })
}
