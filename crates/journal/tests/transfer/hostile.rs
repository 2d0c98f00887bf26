//! Inconsistent transfers are refused and leave nothing behind; later damage is detected.

use std::path::Path;

use bytes::Bytes;
use journal::transfer::{Import, ImportError, ReceivedSections, ReceiverState, Section};

use crate::common::*;
use crate::replica::{History, Replica, SnapshotReceiver, options, section};

/// A sender with a history, and an empty receiver.
fn both() -> (History, Replica, Replica) {
    let mut random = Random(1);
    let (mut history, mut sender) = (History::new(), Replica::new());
    for _ in 0..5 {
        (0..60).for_each(|_| history.grow(&mut random));
        sender.follow(&history, history.last());
        sender.journal.roll();
    }
    sender.snapshot().unwrap();
    (history, sender, Replica::new())
}

fn begun(import: Import, sender: &Replica) -> (SnapshotReceiver, journal::transfer::Export) {
    let export = sender.journal.export(import.have()).unwrap().unwrap();
    (SnapshotReceiver::begin(import, &export).unwrap(), export)
}

fn finish(history: &History, sender: &Replica, receiver: &mut Replica) {
    let (mut receiving, mut export) = begun(receiver.journal.import().unwrap(), sender);
    while receiving.step(&mut export).unwrap() {}
    let received = receiving.received(&export).unwrap();
    receiver.install(history, receiving, received, sender.applied).unwrap();
    receiver.check(history);
}

#[test]
fn damaged_or_reordered_piece_is_refused_and_the_segment_starts_over() {
    let (history, sender, mut receiver) = both();
    let (mut receiving, mut export) = begun(receiver.journal.import().unwrap(), &sender);
    let pieces: Vec<Bytes> = {
        let (mut pieces, mut row) = (Vec::new(), Some(0));
        while let Some(from) = row {
            let piece = export.segment(0, from, 600).unwrap().unwrap();
            pieces.push(piece.bytes);
            row = piece.next;
        }
        pieces
    };
    assert!(pieces.len() > 3);
    let import = &mut receiving.import;
    let refused = |pushed: Result<(), ImportError>| {
        assert!(matches!(pushed, Err(ImportError::Refused(_))), "{pushed:?}");
    };
    for place in (0..pieces[0].len()).step_by(7) {
        let mut bad = pieces[0].to_vec();
        bad[place] ^= 0x10;
        refused(import.push(bad.into()));
    }
    // Repeated, reordered, cut short, and garbage.
    import.push(pieces[0].clone()).unwrap();
    refused(import.push(pieces[0].clone()));
    import.push(pieces[1].clone()).unwrap();
    refused(import.push(pieces[0].clone()));
    refused(import.push(pieces[0].slice(..pieces[0].len() - 1)));
    refused(import.push(Bytes::new()));
    assert!(receiver.files().iter().all(|name| !name.contains(".g2.")), "{:?}", receiver.files());
    assert_eq!(receiving.import.next_segment(), Some(0));
    drop(receiving);
    finish(&history, &sender, &mut receiver);
}

#[test]
fn a_batch_that_the_snapshot_does_not_have_is_refused() {
    let (_, sender, receiver) = both();
    let mut import = receiver.journal.import().unwrap();
    let mut export = sender.journal.export(0).unwrap().unwrap();
    let (id, segments) = (export.manifest().id, section(&export, Section::Segments).unwrap());
    // Live offsets of a node without live batches.
    let nothing = Replica::new();
    nothing.journal.begin_snapshot(id, Bytes::new()).write(Bytes::new()).unwrap();
    let empty = nothing.journal.export(0).unwrap().unwrap();
    let live = section(&empty, Section::Live).unwrap();
    import.expect(id, &live, &segments).unwrap();
    let piece = export.segment(0, 0, 3_000).unwrap().unwrap();
    assert!(matches!(import.push(piece.bytes), Err(ImportError::Refused(_))));
    for (live, segments) in [(&live[1..], &segments[..]), (&live[..], &segments[1..])] {
        assert!(matches!(import.expect(id, live, segments), Err(ImportError::Refused(_))));
    }
    assert!(matches!(receiver.journal.import(), Err(ImportError::Busy)));
}

#[test]
fn unknown_segment_or_row_is_not_exported() {
    let (_, sender, _) = both();
    let mut export = sender.journal.export(0).unwrap().unwrap();
    assert!(export.segment(10_000, 0, 3_000).unwrap().is_none());
    assert!(export.segment(u64::MAX, u64::MAX, 3_000).unwrap().is_none());
    assert!(export.segment(0, 7, 3_000).unwrap().is_none(), "not begun with its first row");
    assert!(export.segment(0, 0, 3_000).unwrap().is_some());
    assert!(export.segment(0, u64::MAX, 3_000).unwrap().is_none());
    for section in Section::ALL {
        assert!(export.section(section, u64::MAX, 3_000).unwrap().is_empty());
    }
}

#[test]
fn incomplete_snapshot_is_not_installed() {
    let (_, sender, receiver) = both();
    let (mut receiving, mut export) = begun(receiver.journal.import().unwrap(), &sender);
    assert!(receiving.step(&mut export).unwrap());
    let received = receiving.received(&export).unwrap();
    let (world, import) = (receiver.world(), receiving.import);
    let install =
        receiver
            .journal
            .install(&world, import, received, ReceiverState::default(), |switch| switch());
    assert!(matches!(block_on(install), Err(ImportError::Refused(_))));
    // The failed step is unknown, so that only a restart helps.
    assert!(receiver.journal.append(vec![blank(1, 1)], |_| {}).is_err());
    let reopened = try_open(&receiver.disk.killed(), options()).unwrap();
    assert!(reopened.snapshot.is_none() && reopened.journal.last_id().is_none());
}

#[test]
fn a_snapshot_of_another_id_than_its_segments_is_not_installed() {
    let (_, sender, receiver) = both();
    let (mut receiving, mut export) = begun(receiver.journal.import().unwrap(), &sender);
    while receiving.step(&mut export).unwrap() {}
    let received = receiving.received(&export).unwrap();
    let id = journal::EntryId { index: received.id.index + 1, ..received.id };
    let received = ReceivedSections { id, ..received };
    let (world, import) = (receiver.world(), receiving.import);
    let install =
        receiver
            .journal
            .install(&world, import, received, ReceiverState::default(), |switch| switch());
    assert!(matches!(block_on(install), Err(ImportError::Refused(_))));
}

#[test]
fn damaged_installed_snapshot_is_refused_without_falling_back_to_an_older_one() {
    let (mut history, sender, mut receiver) = both();
    let mut random = Random(2);
    receiver.follow(&history, 50);
    receiver.snapshot().unwrap();
    finish(&history, &sender, &mut receiver);
    history.grow(&mut random);
    receiver.follow(&history, history.last());
    let snapshots: Vec<String> =
        receiver.files().into_iter().filter(|name| name.starts_with("snapshot-")).collect();
    assert_eq!(snapshots.len(), 1, "{snapshots:?}");
    receiver.journal.close();
    let disk = receiver.disk.killed();
    disk.flip_bit(&Path::new(DIR).join(&snapshots[0]), 100, 1);
    let refused = try_open(&disk, options()).unwrap_err().to_string();
    assert!(refused.contains("missing"), "{refused}");
}

#[test]
fn received_segments_are_removed_once_the_journal_catches_up_by_itself() {
    let (history, sender, mut receiver) = both();
    let (mut receiving, mut export) = begun(receiver.journal.import().unwrap(), &sender);
    while receiving.import.next_segment() == Some(0) {
        assert!(receiving.step(&mut export).unwrap());
    }
    drop(receiving);
    let came =
        |receiver: &Replica| receiver.files().iter().filter(|name| name.contains(".g2.")).count();
    receiver.journal.reclaim().unwrap();
    assert_eq!(came(&receiver), 2, "segment and sidecar stay for the next attempt");
    receiver.follow(&history, history.last());
    receiver.snapshot().unwrap();
    receiver.journal.reclaim().unwrap();
    assert_eq!(came(&receiver), 0);
    assert!(!receiver.files().contains(&"import".to_owned()));
    receiver.check(&history);
}

#[test]
fn full_disk_delays_only_the_import() {
    let (history, sender, mut receiver) = both();
    let (mut receiving, mut export) = begun(receiver.journal.import().unwrap(), &sender);
    receiver.disk.set_capacity(Some(30_000));
    let failed = loop {
        match receiving.step(&mut export) {
            Ok(goes_on) => assert!(goes_on, "there was room for all"),
            Err(error) => break error,
        }
    };
    assert!(matches!(failed, ImportError::NoRoom | ImportError::Io(_)), "{failed}");
    drop(receiving);
    receiver.disk.set_capacity(None);
    eventually("there is room", || receiver.journal.room() == journal::DiskRoom::Ok);
    finish(&history, &sender, &mut receiver);
}
