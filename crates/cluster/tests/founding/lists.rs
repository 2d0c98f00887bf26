//! Lists of seeds that found a cluster, for any start order of the nodes.

use std::time::Duration;

use cluster::{NodeStartError, SeedsError};
use futures_util::FutureExt;
use links::{ConnectError, Refusal, Security, Tls};
use tokio::time::sleep;
use world::Disk;

use crate::harness::{DIR, NodeSlot, found, known, refused, soon, stop};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_found_one_cluster_in_any_start_order() {
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let (places, seeds) = NodeSlot::several(3);
        let starting = order.into_iter().enumerate().map(|(turn, place)| {
            let (place, seeds) = (places[place].clone(), seeds.clone());
            async move {
                sleep(Duration::from_millis(60) * turn as u32).await;
                place.start(&seeds).await.expect("starts")
            }
        });
        let mut nodes = futures_util::future::join_all(starting).await;
        nodes.sort_by_key(|node| node.identity().at.node);
        for node in &nodes {
            soon("all are seen", node.all_seen()).await;
        }
        let cluster = nodes[0].identity().at.cluster;
        for (number, node) in (1..).zip(&nodes) {
            let at = node.identity().at;
            assert_eq!((at.cluster, at.node.0, at.boot), (cluster, number, 1), "{order:?}");
            assert_eq!(node.is_founder(), number == 1);
            assert_eq!(node.members(), nodes[0].members());
            assert_eq!(node.known(), known(&nodes));
        }
        let voters: Vec<_> = nodes[0].members().voters.into_values().collect();
        assert_eq!(voters, seeds);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_is_not_founded_before_the_last_seed_is_there() {
    let (places, seeds) = NodeSlot::several(5);
    let starting = places[..4].iter().map(|place| async { place.start(&seeds).await });
    let early = futures_util::future::join_all(starting).await;
    let early: Vec<_> = early.into_iter().map(|node| node.expect("starts")).collect();
    sleep(Duration::from_millis(300)).await;
    for node in &early {
        assert_eq!(node.all_seen().now_or_never(), None);
    }
    let late = places[4].start(&seeds).await.expect("starts");
    for node in early.iter().chain([&late]) {
        soon("all are seen", node.all_seen()).await;
        assert_eq!(node.identity().at.cluster, late.identity().at.cluster);
    }
}

#[tokio::test]
async fn single_seed_founds_a_cluster_at_once() {
    let (places, seeds) = NodeSlot::several(1);
    let nodes = found(&places, &seeds).await;
    assert!(nodes[0].is_founder());
    assert_eq!(nodes[0].known(), known(&nodes));
}

#[tokio::test]
async fn invalid_list_of_seeds_leaves_no_trace() {
    let (places, seeds) = NodeSlot::several(3);
    let place = &places[0];
    let error = async |seeds: &[String]| place.start(seeds).await.expect_err("refused");
    let two = error(&seeds[..2]).await;
    assert!(matches!(two, NodeStartError::Seeds(SeedsError::Two)), "{two}");
    assert!(two.to_string().contains("less available than one"), "{two}");
    let twice = error(&[&seeds[..2], &seeds[..1]].concat()).await;
    assert!(matches!(twice, NodeStartError::Seeds(SeedsError::Twice { .. })), "{twice}");
    let absent = error(&[seeds[1].clone()]).await;
    assert!(matches!(absent, NodeStartError::Seeds(SeedsError::NotListed { .. })), "{absent}");
    assert!(absent.to_string().contains(&place.address), "{absent}");
    let none = error(&[]).await;
    assert!(matches!(none, NodeStartError::Seeds(SeedsError::Missing)), "{none}");
    assert_eq!(place.disk.list(DIR.as_ref()).expect("a directory"), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_with_another_list_of_seeds_is_refused_until_corrected() {
    let (places, seeds) = NodeSlot::several(3);
    let founder = places[0].start(&seeds).await.expect("starts");
    let others = [
        vec![seeds[0].clone(), seeds[2].clone(), seeds[1].clone()],
        [&seeds[..], &[NodeSlot::new().address]].concat(),
    ];
    for list in others {
        let error = places[1].start(&list).await.expect_err("another list");
        let NodeStartError::FirstSeed { error: why, .. } = &error else { panic!("{error}") };
        let node = founder.identity().at.node;
        let refusal = Refusal::SeedsDiffer { node, listed: seeds.join(",") };
        assert_eq!(refused(why), &refusal);
        assert!(error.to_string().contains(&seeds.join(",")), "{error}");
    }
    let second = places[1].start(&seeds).await.expect("the same list");
    let third = places[2].start(&seeds).await.expect("the same list");
    for node in [&founder, &second, &third] {
        soon("all are seen", node.all_seen()).await;
    }
    // Each start was counted.
    assert_eq!((second.identity().at.boot, third.identity().at.boot), (3, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn founders_list_can_be_corrected_until_all_seeds_were_seen() {
    let (places, seeds) = NodeSlot::several(3);
    let wrong = [&seeds[..2], &[NodeSlot::new().address]].concat();
    let founder = places[0].start(&wrong).await.expect("starts");
    let at = founder.identity().at;
    let second = places[1].start(&wrong).await.expect("starts");
    stop(second).await;
    stop(founder).await;
    let moved = [seeds[1].clone(), seeds[0].clone(), seeds[2].clone()];
    let error = places[0].start(&moved).await.expect_err("it is the first");
    assert!(matches!(error, NodeStartError::Seeds(SeedsError::AnotherPlace { .. })), "{error}");
    let nodes = found(&places, &seeds).await;
    assert_eq!(nodes[0].identity().at.cluster, at.cluster);
    assert_eq!(nodes[0].identity().at.directory, at.directory);
}

/// Both consider themselves the founder: there are two ids then, and no cluster.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_first_seeds_found_no_cluster() {
    let (places, seeds) = NodeSlot::several(3);
    let first = places[0].start(&seeds).await.expect("starts");
    let turned = [seeds[1].clone(), seeds[0].clone(), seeds[2].clone()];
    let other = places[1].start(&turned).await.expect("starts");
    let third = places[2].start(&seeds).await.expect("starts");
    assert_eq!(third.identity().at.cluster, first.identity().at.cluster);
    assert_ne!(third.identity().at.cluster, other.identity().at.cluster);
    let error = crate::harness::connect_error(third.links(), 2).await;
    assert!(matches!(refused(&error), Refusal::AnotherCluster { .. }), "{error}");
    sleep(Duration::from_millis(300)).await;
    for node in [&first, &other, &third] {
        assert_eq!(node.all_seen().now_or_never(), None);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_with_another_secret_does_not_start() {
    let (mut places, seeds) = NodeSlot::several(3);
    let secret = |byte| Security::Tls(Tls::from_secret(&[byte; 32]).expect("long enough"));
    for (place, byte) in places.iter_mut().zip([1, 1, 2]) {
        place.security = secret(byte);
    }
    let founder = places[0].start(&seeds).await.expect("starts");
    let second = places[1].start(&seeds).await.expect("starts");
    assert_eq!(founder.identity().at.cluster, second.identity().at.cluster);
    let error = places[2].start(&seeds).await.expect_err("another secret");
    let NodeStartError::FirstSeed { error: why, .. } = &error else { panic!("{error}") };
    assert!(matches!(why, ConnectError::Tls(_)), "{why}");
    let text = error.to_string();
    assert!(text.contains(&seeds[0]) && text.contains("no TLS with the peer"), "{text}");
}
