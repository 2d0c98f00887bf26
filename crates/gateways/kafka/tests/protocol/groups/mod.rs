//! Groups over a socket: finding coordinators, listing, describing, deleting, and restarts. Each protocol,
//! and committed offsets, have a file of their own.

pub(crate) mod classic;
pub(crate) mod consumer;
mod offsets;

use std::sync::Arc;
use std::time::Duration;

use broker::{Broker, Coordination};
use kafka_protocol::error::ResponseError::*;
use kafka_protocol::messages::*;
use tokio::time::{Instant, sleep};
use world::SimulatedDisk;

use self::classic::{stable, subscription};
use self::consumer::heartbeat_of;
use self::offsets::{commit, commit_codes, fetch_one};
use crate::harness::*;

pub(crate) fn group(name: &str) -> GroupId {
    GroupId(text(name))
}

#[tokio::test]
async fn this_node_coordinates_all_groups() {
    let node = Node::start().await;
    let mut client = node.client().await;
    for version in 0..=6 {
        let mut request = FindCoordinatorRequest::default();
        if version >= 4 {
            request.coordinator_keys = vec![text("a"), text("b")];
        } else {
            request.key = text("a");
        }
        let found = client.ask(version, &request).await;
        let port = i32::from(node.address.port());
        if version >= 4 {
            let keys: Vec<_> = found.coordinators.iter().map(|one| one.key.as_str()).collect();
            assert_eq!(keys, ["a", "b"]);
            assert!(found.coordinators.iter().all(|one| one.port == port && one.error_code == 0));
        } else {
            assert_eq!((found.port, found.error_code, found.node_id.0), (port, 0, 1));
        }
    }
}

fn list(states: &[&str], types: &[&str]) -> ListGroupsRequest {
    let words = |words: &[&str]| words.iter().map(|word| text(word)).collect();
    ListGroupsRequest::default().with_states_filter(words(states)).with_types_filter(words(types))
}

fn listed(response: &ListGroupsResponse) -> Vec<(&str, &str, &str, &str)> {
    let groups = response.groups.iter();
    groups
        .map(|group| {
            let (name, kind) = (group.group_id.as_str(), group.group_type.as_str());
            (name, group.protocol_type.as_str(), group.group_state.as_str(), kind)
        })
        .collect()
}

#[tokio::test]
async fn groups_are_listed_and_described_and_deleted_once_empty() {
    let node = Node::start().await;
    let mut client = node.client().await;
    client.create("t", 1, &[]).await;
    let member = stable(&mut client).await;
    let by_hand = commit("", -1, &[("t", 0, 1)]).with_group_id(group("by hand"));
    client.ask(9, &by_hand).await;
    client.ask(1, &heartbeat_of(&mut node.client().await, "modern").await).await;
    let all = client.ask(5, &list(&[], &[])).await;
    let expected = [
        ("by hand", "", "Empty", "classic"),
        ("g", "consumer", "Stable", "classic"),
        ("modern", "consumer", "Stable", "consumer"),
    ];
    assert_eq!(listed(&all), expected);
    let stable_classic = client.ask(5, &list(&["stable"], &["Classic"])).await;
    assert_eq!(listed(&stable_classic), expected[1..2]);
    for version in 0..=4 {
        let all = client.ask(version, &ListGroupsRequest::default()).await;
        assert_eq!(all.groups.len(), 3);
    }

    let describe = DescribeGroupsRequest::default()
        .with_groups(["g", "by hand", "modern", "none"].map(group).to_vec());
    for version in 0..=6 {
        let described = client.ask(version, &describe).await.groups;
        let states: Vec<_> = described.iter().map(|group| group.group_state.as_str()).collect();
        assert_eq!(states, ["Stable", "Empty", "Dead", "Dead"]);
        let one = &described[0].members[0];
        assert_eq!((one.member_id.as_str(), &one.member_assignment[..]), (&*member, &b"mine"[..]));
        assert_eq!(one.member_metadata, subscription("t"));
        assert_eq!((one.client_id.as_str(), one.client_host.as_str()), ("test", "/127.0.0.1"));
        let code = if version >= 6 { GroupIdNotFound.code() } else { 0 };
        assert_eq!((described[2].error_code, described[3].error_code), (code, code));
        if version >= 6 {
            let messages = [2, 3].map(|at| described[at].error_message.as_deref().unwrap_or(""));
            assert_eq!(messages, ["Group modern is not a classic group.", "Group none not found."]);
        }
    }

    let delete = DeleteGroupsRequest::default()
        .with_groups_names(["g", "by hand", "modern", "none"].map(group).to_vec());
    let deleted = client.ask(2, &delete).await;
    let codes: Vec<_> = deleted.results.iter().map(|result| result.error_code).collect();
    let (busy, unknown) = (NonEmptyGroup.code(), GroupIdNotFound.code());
    assert_eq!(codes, [busy, 0, busy, unknown]);
    let left = client.ask(5, &list(&[], &[])).await;
    assert_eq!(left.groups.len(), 2);
}

/// Waits until the membership of these groups is in the log. A group's changes are stored within some
/// milliseconds.
pub(crate) async fn are_kept(broker: &Broker, groups: &[&str]) {
    let is_kept = |name: &str| {
        let Coordination::Here(home) = broker.coordination(name) else { return false };
        broker.shards().memberships(home).iter().any(|(kept, _)| **kept == *name)
    };
    let begun = Instant::now();
    while !groups.iter().all(|name| is_kept(name)) {
        assert!(begun.elapsed() < SOON, "who is in {groups:?} is not kept");
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn members_and_offsets_survive_a_restart() {
    let disk = Arc::new(SimulatedDisk::new());
    let node = Node::on(Arc::clone(&disk), |_| {}).await;
    let mut client = node.client().await;
    client.create("t", 1, &[]).await;
    let member = stable(&mut client).await;
    let codes = commit_codes(&client.ask(9, &commit(&member, 1, &[("t", 0, 5)])).await);
    assert_eq!(codes, [0]);
    let modern_heartbeat = heartbeat_of(&mut client, "modern").await;
    are_kept(&node.broker, &["g", "modern"]).await;
    drop(client);
    node.shutdown().await;

    let node = Node::on(disk, |_| {}).await;
    let mut client = node.client().await;
    assert_eq!(fetch_one(&mut client, "t", 0).await, 5);
    let heartbeat = |member: &str| {
        HeartbeatRequest::default()
            .with_group_id(group("g"))
            .with_member_id(text(member))
            .with_generation_id(1)
    };
    assert_eq!(client.ask(4, &heartbeat(&member)).await.error_code, 0);
    let codes = commit_codes(&client.ask(9, &commit(&member, 1, &[("t", 0, 6)])).await);
    assert_eq!(codes, [0]);
    let modern = client.ask(1, &modern_heartbeat).await;
    assert_eq!((modern.error_code, modern.member_epoch), (0, modern_heartbeat.member_epoch));
    // This code makes clients join again; "no such group" would make them give up.
    assert_eq!(client.ask(4, &heartbeat("another")).await.error_code, UnknownMemberId.code());
    assert_eq!(fetch_one(&mut client, "t", 0).await, 6);
}
