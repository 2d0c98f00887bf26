//! Replacement of a shard's state by a snapshot of another member: the shard rebuilds the data kept beside its state.
//!
//! This happens to a member that had fallen far behind, so not to the shard's leader. But the catalog may be replaced
//! on a node that leads shards with rows: these examine all their definitions again.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use base::{LeaseGroupId, PartitionId};
use consensus::{Replace, RestoreError};
use machine::{ALL_PARTITIONS, Catalog, Role, State};

use crate::delivery::handle::{Handle, Message};
use crate::state_machine::Shard;

impl Shard {
    /// Decodes the state of a snapshot, if it is of this shard.
    pub(crate) fn decode(&self, machine: &[u8]) -> Result<State, RestoreError> {
        let state = State::decode_within(self.level.can(), machine)
            .map_err(|error| RestoreError(error.to_string()))?;
        let role = self.role();
        // A directory with both roles accepts either: see `layout` of the broker.
        if state.role() != role && role != Role::Whole {
            let found = state.role();
            return Err(RestoreError(format!("it is of {found:?}, and this is {role:?}")));
        }
        Ok(state)
    }

    pub(crate) fn replacement(
        self: Arc<Self>,
        index: u64,
        machine: &[u8],
    ) -> Result<Replace, RestoreError> {
        let state = self.decode(machine)?;
        let forgotten = self.compacted.begin_replacement();
        forgotten.map_err(|error| {
            RestoreError(format!("what is compacted is not forgotten: {error}"))
        })?;
        let (here, lives) = (Arc::clone(&self), state.rows.lives());
        let renewed = move || {
            let own = here.read(|own| own.rows.lives());
            lives.differing(&own).map(PartitionId::stream).collect()
        };
        let put = move |switch: &mut dyn FnMut()| {
            let new = groups(&state.catalog);
            // Under the lock: a reader of an end offset must find its batches in the index.
            let former = self.exchange(state, switch);
            self.note_adopted();
            self.compacted.end_replacement();
            self.changes.note_all();
            let groups: BTreeSet<LeaseGroupId> = groups(&former.catalog).chain(new).collect();
            if let Some(delivery) = self.delivery.get() {
                moved(delivery, &groups);
            }
            for follower in self.followers().iter().filter_map(Weak::upgrade) {
                follower.changes.note_all();
                if let Some(delivery) = follower.delivery.get() {
                    moved(delivery, &groups);
                }
            }
            self.outgoing.note_sent();
            self.watchers.wake_all();
            self.note_applied(index);
        };
        Ok(Replace { renewed: Box::new(renewed), put: Box::new(put) })
    }
}

fn groups(catalog: &Catalog) -> impl Iterator<Item = LeaseGroupId> + use<> {
    let groups: Vec<LeaseGroupId> = catalog.lease_groups().map(|group| group.id).collect();
    groups.into_iter()
}

fn moved(delivery: &Handle, groups: &BTreeSet<LeaseGroupId>) {
    for &group in groups {
        delivery.send(Message::Moved { group, partition: ALL_PARTITIONS, sought: false });
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use base::{PartitionId, ShardId, TopicId};
    use journal::{Journal, Options};
    use world::{SimulatedDisk, World};

    use super::*;
    use crate::watch::Watchers;

    fn shard(role: Role, watchers: &Arc<Watchers>) -> Arc<Shard> {
        let world = World::on(Arc::new(SimulatedDisk::new()));
        let options = Options { disk_reserve_bytes: 0, ..Options::default() };
        let opened = Journal::open(&world, Path::new("/shard"), options).expect("it opens");
        Arc::new(Shard::new(opened.journal, Arc::default(), role, None, Arc::clone(watchers)))
    }

    fn state(role: Role) -> Vec<u8> {
        State::of(role).capture().encode()
    }

    #[test]
    fn state_and_batches_are_replaced_together_and_examined_again() {
        let watchers = Arc::new(Watchers::default());
        let (rows, other) = (Role::Rows(ShardId(1)), Role::Rows(ShardId(2)));
        let shard = shard(rows, &watchers);
        let watch = watchers.watch();
        let partition = PartitionId::new(TopicId(1), 0);
        watch.add(partition);
        drop(shard.changes.take());
        assert!(Arc::clone(&shard).replacement(9, &state(other)).is_err(), "another shard's");
        assert!(Arc::clone(&shard).replacement(9, b"nothing").is_err());
        let replace = Arc::clone(&shard).replacement(9, &state(rows)).expect("it is this shard's");
        assert!(watch.take_ready().is_empty() && shard.applied() == 0, "nothing is changed yet");
        let mut switched = 0;
        (replace.put)(&mut || {
            assert!(shard.is_locked(), "somebody could read between the two");
            switched += 1;
        });
        assert_eq!((switched, shard.applied()), (1, 9));
        assert!(shard.changes.take().all);
        assert_eq!(watch.take_ready(), [partition]);
    }

    #[test]
    fn replaced_catalog_is_examined_by_the_shards_that_follow_it() {
        let watchers = Arc::new(Watchers::default());
        let catalog = shard(Role::Catalog, &watchers);
        let rows = shard(Role::Rows(ShardId(1)), &watchers);
        catalog.add_follower(&rows);
        drop(rows.changes.take());
        let replace = Arc::clone(&catalog).replacement(3, &state(Role::Catalog)).expect("it is");
        (replace.put)(&mut || {});
        assert!(rows.changes.take().all);
    }
}
