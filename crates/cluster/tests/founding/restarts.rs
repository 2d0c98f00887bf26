//! The identity in a data directory, from start to start.

use std::io::IoSlice;
use std::path::Path;

use cluster::{DirectoryError, NodeStartError};
use links::{DirectoryIdentity, NodeId, Refusal};
use world::Disk;
use world::disk::replace;

use crate::harness::{
    DIR, NodeSlot, connect_error, found, impostor, is_linked, known, refused, soon, stop,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarted_node_keeps_its_identity_counts_the_boot_and_needs_no_seeds() {
    let (places, seeds) = NodeSlot::several(3);
    let mut nodes = found(&places, &seeds).await;
    let before: Vec<_> = nodes.iter().map(|node| node.identity()).collect();
    let lists = [seeds.clone(), vec![], vec!["elsewhere.example:7700".to_owned()]];
    for (turn, list) in (2..).zip(lists) {
        for node in nodes.drain(..) {
            stop(node).await;
        }
        for (place, before) in places.iter().zip(&before) {
            let node = place.start(&list).await.expect("starts");
            let now = node.identity();
            assert_eq!(now.at, DirectoryIdentity { boot: turn, ..before.at });
            assert_ne!(now.run, before.run);
            assert_eq!(node.is_founder(), now.at.node == NodeId(1));
            let voters: Vec<_> = node.members().voters.into_values().collect();
            assert_eq!(voters, seeds);
            // Also while the others do not run.
            soon("all were seen", node.all_seen()).await;
            nodes.push(node);
        }
        is_linked(nodes[0].links(), 3).await;
        is_linked(nodes[2].links(), 1).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_of_the_catalog_are_known_at_the_next_start() {
    let (places, seeds) = NodeSlot::several(3);
    let mut nodes = found(&places, &seeds).await;
    let mut all = known(&nodes);
    (all[1].boot, all[1].address) = (8, "db2.example:7700".to_owned());
    nodes[0].know(all.clone()).await.expect("written");
    let at = nodes[1].identity().at;
    stop(nodes.remove(1)).await;
    stop(nodes.remove(0)).await;
    let first = places[0].start(&[]).await.expect("starts");
    all[0].boot = 2;
    assert_eq!(first.known(), all);
    let set_back = impostor(DirectoryIdentity { boot: 7, ..at }, &first).await;
    let error = connect_error(&set_back, 1).await;
    assert_eq!(refused(&error), &Refusal::OldBoot { node: at.node, seen: 8, presented: 7 });
}

#[tokio::test]
async fn directory_of_a_node_without_a_cluster_is_refused() {
    for found in ["cluster", "layout", "shard-0"] {
        let (places, seeds) = NodeSlot::several(1);
        let disk = &places[0].disk;
        disk.create_dir(DIR.as_ref()).expect("made");
        disk.open(&Path::new(DIR).join(found), true).expect("made");
        let error = places[0].start(&seeds).await.expect_err("not empty");
        assert!(error.to_string().contains("ran alone"), "{error}");
        assert!(error.to_string().contains("postroad restore --data NEW"), "{error}");
        assert!(error.to_string().contains(&format!("`{found}`")), "{error}");
        assert_eq!(disk.list(DIR.as_ref()).expect("listed"), [found]);
    }
    // Other files do no harm.
    let (places, seeds) = NodeSlot::several(1);
    places[0].disk.create_dir(DIR.as_ref()).expect("made");
    places[0].disk.open(&Path::new(DIR).join("lost+found"), true).expect("made");
    places[0].start(&seeds).await.expect("starts");
}

#[tokio::test]
async fn damaged_node_file_and_directory_in_use_are_refused() {
    let (places, seeds) = NodeSlot::several(1);
    let node = places[0].start(&seeds).await.expect("starts");
    let second = NodeSlot { address: NodeSlot::new().address, ..places[0].clone() };
    let error = second.start(&seeds).await.expect_err("in use");
    let in_use = matches!(error, NodeStartError::Directory(DirectoryError::InUse { .. }));
    assert!(in_use, "{error}");
    stop(node).await;
    let file = Path::new(DIR).join("node");
    places[0].disk.flip_bit(&file, 30, 1);
    let error = places[0].start(&seeds).await.expect_err("damaged");
    assert!(error.to_string().contains("its checksum does not hold"), "{error}");
    let mut later = b"PRnodeid\x02\0\0\0".to_vec();
    later.extend(base::checksum::crc32c(&later).to_le_bytes());
    let slices = &mut [IoSlice::new(&later)];
    replace(&places[0].disk, DIR.as_ref(), "node", slices).expect("written");
    let error = places[0].start(&seeds).await.expect_err("of a later version");
    assert!(error.to_string().contains("version 2"), "{error}");
}
