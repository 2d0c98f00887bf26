use uuid::Uuid;

use super::*;
use crate::plan;
use crate::registry::RegisteredNode;

const NONE: BTreeSet<u64> = BTreeSet::new();

fn group(shard: u32, leader: Option<u32>, voters: &[u64]) -> GroupStatus {
    GroupStatus {
        shard: ShardId(shard),
        leader,
        term: 1,
        voters: voters.iter().map(|id| (*id, format!("n{id}:1"))).collect(),
        learners: BTreeMap::new(),
        is_changing: false,
        lags: Vec::new(),
    }
}

fn view(nodes: &[(u64, bool)]) -> View {
    let node = |(id, is_live): &(u64, bool)| {
        (*id, plan::Node { standing: NodeLifecycle::Active, is_live: *is_live })
    };
    View { nodes: nodes.iter().map(node).collect(), ..View::default() }
}

#[test]
fn cluster_tolerates_a_loss_only_if_each_group_does() {
    let groups = [group(0, Some(1), &[1, 2, 3]), group(1, Some(2), &[1, 2, 3])];
    let all = view(&[(1, true), (2, true), (3, true)]);
    assert!(verdict(&groups, &all, &NONE).can_lose_a_node);

    let two = view(&[(1, true), (2, true), (3, false)]);
    let said = verdict(&groups, &two, &NONE);
    assert!(!said.can_lose_a_node);
    let expected = "The cluster cannot lose another node: the catalog needs 2 of its 3 voters, and only nodes 1, 2 can \
                    be reached with its log.";
    assert_eq!(said.text, expected);

    let one = view(&[(1, true), (2, false), (3, false)]);
    let said = verdict(&groups, &one, &NONE).text;
    assert!(said.starts_with("The cluster is not whole: the catalog needs 2 of its 3"), "{said}");
}

#[test]
fn node_with_a_full_disk_counts_as_away_and_is_reported_with_a_command() {
    let groups = [group(0, Some(1), &[1, 2, 3]), group(1, Some(2), &[1, 2, 3])];
    let all = view(&[(1, true), (2, true), (3, true)]);
    let said = verdict(&groups, &all, &BTreeSet::from([2]));
    assert!(!said.can_lose_a_node);
    let expected = "The cluster cannot lose another node: the catalog needs 2 of its 3 voters, and only nodes 1, 3 can \
                    be reached with its log and room on its disk.";
    assert_eq!(said.text, expected);
    let said = verdict(&groups, &all, &BTreeSet::from([2, 3])).text;
    assert!(said.starts_with("The cluster is not whole: the catalog needs 2 of its 3"), "{said}");

    let words = at_risk(&[], &groups, &all, &BTreeSet::from([2, 3]));
    assert_eq!(words.len(), 2, "{words:?}");
    assert!(words[0].starts_with("node 2's disk is full: 1 shard that it still leads takes no"));
    assert!(words[1].starts_with("node 3's disk is full: it leads no shard, and counts as away"));
    assert!(words.iter().all(|words| words.contains("`postroad topic delete TOPIC`")));
}

#[test]
fn member_behind_and_shard_without_leader_count_against_the_verdict() {
    let all = view(&[(1, true), (2, true), (3, true)]);
    let mut behind = group(1, Some(1), &[1, 2, 3]);
    behind.lags.push(broker::MemberLag { node: 3, entries: 9, snapshot: Some((1, 2)) });
    let said = verdict(&[group(0, Some(1), &[1, 2, 3]), behind], &all, &NONE);
    assert!(said.text.contains("shard 1 needs 2 of its 3 voters, and only nodes 1, 2"), "{said:?}");
    let said = verdict(&[group(3, None, &[1, 2, 3])], &all, &NONE);
    assert_eq!(said.text, "The cluster is not whole: shard 3 has no leader.");
    let said = verdict(&[group(0, Some(1), &[1])], &all, &NONE);
    assert_eq!(said.text, "The cluster cannot lose node 1: the catalog is nowhere else.");
}

#[test]
fn leader_is_taken_from_its_own_report_in_the_newest_term() {
    let said = [
        (1, vec![group(0, Some(2), &[1, 2, 3]), group(1, Some(3), &[1, 2, 3])]),
        (2, vec![GroupStatus { term: 4, ..group(0, Some(2), &[1, 2, 3]) }]),
        (3, vec![GroupStatus { term: 2, ..group(0, Some(3), &[1, 2, 3]) }]),
    ];
    let newest = newest(&said);
    assert_eq!(
        newest.iter().map(|it| (it.leader, it.term)).collect::<Vec<_>>(),
        [(Some(2), 4), (None, 1),]
    );
}

#[test]
fn status_of_nodes_names_the_next_command() {
    let mut registry = Registry::default();
    for (id, standing) in [
        (1, NodeLifecycle::Active),
        (2, NodeLifecycle::Drained),
        (3, NodeLifecycle::Leaving { replaced_by: Some(4) }),
        (4, NodeLifecycle::Active),
        (5, NodeLifecycle::Active),
    ] {
        let (directory, address) = (Uuid::from_u128(id.into()), format!("n{id}:1"));
        let rack = (id != 5).then(|| format!("r{id}"));
        let node =
            Registration { directory, boot: 1, address, standing, can: Default::default(), rack };
        registry.nodes.insert(id, RegisteredNode { version: 1, node });
    }
    let live = Connection { live: true, ..Connection::default() };
    let gone = Connection { why: Some("nobody listens".into()), ..Connection::default() };
    let connections = (1..=5).map(|id| (id, if id == 5 { &gone } else { &live }.clone()));
    let connections: BTreeMap<u64, Connection> = connections.collect();
    let mut groups = [group(0, Some(1), &[1, 2, 3, 5]), group(1, Some(2), &[1, 2, 3, 5])];
    groups[0].learners.insert(4, "n4:1".into());
    let nodes = registry
        .present()
        .map(|(id, it)| (id, plan::Node { standing: it.standing, is_live: id != 5 }));
    let view = View { nodes: nodes.collect(), ..View::default() };
    let said = report("c".into(), 1, &registry, &connections, &groups, &view, &NONE);
    assert_eq!(said.nodes[1].leads, 1);
    assert_eq!((said.nodes[1].rack.as_deref(), &said.nodes[4].rack), (Some("r2"), &None));
    assert_eq!(said.nodes[3].holds, 1);
    let has = |words: &[String], part: &str| words.iter().any(|it| it.contains(part));
    assert!(has(&said.under_way, "node 3 leaves, and node 4 takes its place: it still has 2 of 2"));
    assert!(has(&said.under_way, "node 4 joins: it votes in 0 of 2 shards"));
    assert!(has(&said.under_way, "node 2 is drained, and hands over what it leads"));
    assert!(has(&said.at_risk, "node 5 is not connected (nobody listens)"), "{:?}", said.at_risk);
    assert!(has(&said.at_risk, "postroad node replace 5 --with NEW"));
}

#[test]
fn loss_of_the_majority_names_recovery_and_no_command_that_needs_a_majority() {
    let registry = Registry::default();
    let connections = BTreeMap::new();
    let groups: Vec<GroupStatus> = (0..=3).map(|shard| group(shard, None, &[1, 2, 3])).collect();
    let seen = view(&[(1, true), (2, false), (3, false)]);
    let said = report("c".into(), 1, &registry, &connections, &groups, &seen, &NONE).at_risk;
    let having = |part: &str| said.iter().filter(|it| it.contains(part)).count();
    assert_eq!(having("without a majority of nodes 1, 2, 3, the catalog, shard 1, shard 2"), 1);
    assert_eq!((having("postroad recover --data DIR --lost"), having("node replace")), (1, 0));
}

#[test]
fn shard_moves_are_reported_by_node() {
    let nodes: Vec<(u64, bool)> = (1..=4).map(|node| (node, true)).collect();
    let mut groups: Vec<GroupStatus> =
        (0..=4).map(|shard| group(shard, Some(1), &[1, 2, 3])).collect();
    let mut seen = View { spreads: true, ..view(&nodes) };
    seen.groups = groups.iter().map(reconcile::group).collect();
    let said = under_way(&groups, &seen);
    assert!(said.contains(&"node 4 takes over shards: 4 are to come".to_owned()), "{said:?}");
    let gives = said.iter().filter(|words| words.contains("hands shards to others: 1 are to go"));
    assert_eq!(gives.count(), 3, "{said:?}");

    groups.truncate(1);
    groups[0].voters.insert(4, "n4:1".into());
    groups.extend(
        [[1, 2, 3], [1, 2, 4], [1, 3, 4], [2, 3, 4]]
            .iter()
            .zip(1..)
            .map(|(voters, shard)| group(shard, Some(voters[0] as u32), voters)),
    );
    seen.groups = groups.iter().map(reconcile::group).collect();
    assert_eq!(under_way(&groups, &seen), Vec::<String>::new());
}

#[test]
fn files_of_removed_replicas_are_reported() {
    assert_eq!(still_has(2, &[]), None);
    let one = "node 2 has given shard 5 up, and still has the files of it: they go when it is started the next time";
    assert_eq!(still_has(2, &[5]).as_deref(), Some(one));
    assert!(still_has(2, &[5, 7]).is_some_and(|said| said.contains("shards 5, 7 up")));
}
