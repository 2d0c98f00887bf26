//! The log store alone, on a simulated disk.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use journal::Options;
use openraft::storage::RaftLogStorageExt;
use openraft::type_config::TypeConfigExt;
use world::{SimulatedDisk, World};

use super::*;
use crate::engine::{Membership, log_id};

const SOON: Duration = Duration::from_millis(100);

fn open(disk: &SimulatedDisk) -> LogStore {
    let options = Options { segment_bytes: 1 << 20, disk_reserve_bytes: 0, ..Options::default() };
    let opened =
        Journal::open(&World::on(Arc::new(disk.clone())), Path::new("/log"), options).unwrap();
    LogStore::new(opened.journal, Workers::default()).unwrap()
}

fn command(term: u64, index: u64, ticket: u64) -> Entry {
    let payload = Payload { head: "head".into(), bodies: vec![], ticket };
    Entry::new_normal(log_id(term, index), payload)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn append_is_readable_before_it_is_durable() {
    let disk = SimulatedDisk::new();
    let mut log = open(&disk);
    disk.hang_syncs(true);
    let (durable, mut synced) = TypeConfig::oneshot();
    log.append([command(1, 0, 0)], IOFlushed::signal(durable)).await.unwrap();
    assert_eq!(log.try_get_log_entries(..).await.unwrap().len(), 1);
    assert!(tokio::time::timeout(SOON, &mut synced).await.is_err(), "told too early");
    disk.hang_syncs(false);
    synced.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn vote_waits_for_the_appends_before_it() {
    let disk = SimulatedDisk::new();
    let mut log = open(&disk);
    disk.hang_syncs(true);
    log.append([command(1, 0, 0)], IOFlushed::noop()).await.unwrap();
    let mut voter = log.clone();
    let vote = Vote::new(2, 1);
    let mut saved = tokio::spawn(async move { voter.save_vote(&vote).await });
    assert!(tokio::time::timeout(SOON, &mut saved).await.is_err(), "went ahead of them");
    assert_eq!(log.read_vote().await.unwrap(), None);
    disk.hang_syncs(false);
    saved.await.unwrap().unwrap();
    assert_eq!(log.read_vote().await.unwrap(), Some(vote));

    let mut again = open(&disk.power_loss(1));
    assert_eq!(again.read_vote().await.unwrap(), Some(vote));
    assert_eq!(again.try_get_log_entries(..).await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tickets_bypass_the_log_and_are_dropped_with_truncated_entries() {
    let mut log = open(&SimulatedDisk::new());
    let entries = [command(1, 0, 0), command(1, 1, 11), command(1, 2, 12), command(1, 3, 13)];
    log.blocking_append(entries).await.unwrap();
    log.truncate_after(Some(log_id(1, 2))).await.unwrap();
    log.blocking_append([command(2, 3, 0), command(2, 4, 24)]).await.unwrap();
    let tickets: Vec<u64> = (0..6).map(|index| log.take_ticket(index)).collect();
    assert_eq!(tickets, [0, 11, 12, 0, 24, 0]);
    let read = log.try_get_log_entries(1..2).await.unwrap();
    assert_eq!(read[0].log_id, log_id(1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_are_found_in_the_log_while_commands_are_dropped() {
    let mut log = open(&SimulatedDisk::new());
    let members = Membership::new_with_defaults(vec![BTreeSet::from([1])], []);
    let first = Entry::new_membership(log_id(0, 0), members);
    log.blocking_append([first.clone(), command(1, 1, 5)]).await.unwrap();
    log.set_starting(true);
    let read = log.try_get_log_entries(..).await.unwrap();
    assert_eq!(read, [first, Entry::new_blank(log_id(1, 1))]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn last_entry_of_each_leader_is_found() {
    let mut log = open(&SimulatedDisk::new());
    let terms = [1, 1, 2, 4, 4, 4, 7];
    let entries = terms.iter().zip(0..).map(|(term, index)| command(*term, index, 0));
    log.blocking_append(entries.collect::<Vec<_>>()).await.unwrap();
    let found = log.get_key_log_ids(log_id(1, 0)..=log_id(7, 6)).await.unwrap();
    assert_eq!(found, [log_id(1, 1), log_id(2, 2), log_id(4, 5), log_id(7, 6)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn read_of_purged_entries_for_a_member_is_empty_and_no_error() {
    let mut log = open(&SimulatedDisk::new());
    let entries = (0..8).map(|index| command(1, index, 0));
    log.blocking_append(entries.collect::<Vec<_>>()).await.unwrap();
    log.purge(log_id(1, 3)).await.unwrap();
    assert_eq!(log.limited_get_log_entries(2, 6).await.unwrap(), []);
    assert_eq!(log.limited_get_log_entries(4, 6).await.unwrap().len(), 2);
}
