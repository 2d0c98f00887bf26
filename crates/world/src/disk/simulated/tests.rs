use std::io::IoSlice;

use super::content::SECTOR;
use super::*;

fn write(file: &Arc<dyn DiskFile>, bytes: &[u8], position: u64) {
    file.write_at(&mut [IoSlice::new(bytes)], position).unwrap();
}

fn disk_with_file(name: &str) -> (SimulatedDisk, PathBuf, Arc<dyn DiskFile>) {
    let disk = SimulatedDisk::new();
    disk.create_dir(Path::new("/d")).unwrap();
    let path = Path::new("/d").join(name);
    let file = disk.open(&path, true).unwrap();
    (disk, path, file)
}

#[test]
fn synced_bytes_survive_any_power_loss() {
    for seed in 0..100 {
        let (disk, path, file) = disk_with_file("f");
        write(&file, &[7; 5000], 300);
        file.sync().unwrap();
        disk.sync_dir(Path::new("/d")).unwrap();
        write(&file, &[8; 5000], 9000);
        let after = disk.power_loss(seed).content(&path).unwrap();
        assert_eq!(after[300..5300], [7; 5000]);
    }
}

#[test]
fn unsynced_sectors_names_and_lengths_are_lost_independently() {
    let (mut torn, mut nameless, mut shorter) = (0, 0, 0);
    for seed in 0..200 {
        let (disk, path, file) = disk_with_file("f");
        write(&file, &[7; SECTOR * 8], 0);
        match disk.power_loss(seed).content(&path) {
            None => nameless += 1,
            Some(content) if content.is_empty() => shorter += 1,
            Some(content) => {
                let kept = content.iter().filter(|byte| **byte == 7).count();
                assert_eq!(kept % SECTOR, 0);
                torn += usize::from(kept > 0 && kept < SECTOR * 8);
            }
        }
    }
    assert!(torn > 10 && nameless > 10 && shorter > 10, "{torn} {nameless} {shorter}");
}

#[test]
fn file_that_grows_after_a_reverted_length_reads_zeros_there() {
    let mut shorter = 0;
    for seed in 0..200 {
        let (disk, path, file) = disk_with_file("f");
        write(&file, &[7; SECTOR], 0);
        file.sync().unwrap();
        disk.sync_dir(Path::new("/d")).unwrap();
        write(&file, &[8; SECTOR * 3], SECTOR as u64);
        let after = disk.power_loss(seed);
        if after.content(&path).unwrap().len() > SECTOR {
            continue;
        }
        shorter += 1;
        after.open(&path, false).unwrap().allocate(1 << 14).unwrap();
        let content = after.content(&path).unwrap();
        assert!(content[..SECTOR] == [7; SECTOR] && content[SECTOR..].iter().all(|it| *it == 0));
    }
    assert!(shorter > 20, "{shorter}");
}

#[test]
fn pages_of_a_failed_sync_are_not_saved_by_the_next_sync() {
    let lost = (0..50).any(|seed| {
        let (disk, path, file) = disk_with_file("f");
        disk.sync_dir(Path::new("/d")).unwrap();
        disk.fail_sync("f", 0);
        write(&file, &[7; SECTOR], 0);
        assert!(file.sync().is_err());
        file.sync().unwrap();
        disk.power_loss(seed).content(&path).unwrap().iter().any(|byte| *byte != 7)
    });
    assert!(lost);
}

#[test]
fn full_disk_rejects_growth_but_accepts_writes_to_allocated_space() {
    let (disk, _, file) = disk_with_file("f");
    disk.set_capacity(Some(8192));
    file.allocate(8192).unwrap();
    write(&file, &[1; 8192], 0);
    let full = file.write_at(&mut [IoSlice::new(&[1])], 8192).unwrap_err();
    assert_eq!(full.kind(), ErrorKind::StorageFull);
    disk.remove(Path::new("/d/f")).unwrap();
    disk.open(Path::new("/d/g"), true).unwrap().allocate(8192).unwrap();
}

#[test]
fn dead_disk_fails_every_call_and_its_successor_works() {
    let (disk, path, file) = disk_with_file("f");
    disk.cut_power_after(2);
    write(&file, b"once", 0);
    assert!(file.sync().is_err());
    assert!(disk.list(Path::new("/d")).is_err());
    let next = disk.killed();
    assert_eq!(next.content(&path).unwrap(), b"once");
}

#[test]
fn directory_rename_moves_all_files_or_none() {
    let (old, new) = (Path::new("/d/old"), Path::new("/d/new"));
    let (mut stayed, mut moved) = (0, 0);
    for seed in 0..100 {
        let disk = SimulatedDisk::new();
        for dir in [Path::new("/d"), old] {
            disk.create_dir(dir).unwrap();
        }
        for name in ["a", "b"] {
            disk.open(&old.join(name), true).unwrap();
        }
        disk.sync_dir(old).unwrap();
        disk.rename(old, new).unwrap();
        assert_eq!(disk.list(new).unwrap().len(), 2);
        let synced = seed % 2 == 0;
        if synced {
            disk.sync_dir(Path::new("/d")).unwrap();
        }
        let after = disk.power_loss(seed);
        match (after.list(old), after.list(new)) {
            (Ok(names), Err(_)) => {
                assert!(names.len() == 2 && !synced);
                stayed += 1;
            }
            (Err(_), Ok(names)) => {
                assert_eq!(names.len(), 2);
                moved += 1;
            }
            found => panic!("{found:?}"),
        }
    }
    assert!(stayed > 10 && moved > 60);
}

#[test]
fn directory_rename_over_files_is_rejected() {
    let disk = SimulatedDisk::new();
    for dir in ["/d/old", "/d/new"] {
        disk.create_dir(Path::new(dir)).unwrap();
        disk.open(&Path::new(dir).join("f"), true).unwrap();
    }
    assert!(disk.rename(Path::new("/d/old"), Path::new("/d/new")).is_err());
}

#[test]
fn injected_fault_affects_only_the_named_directory() {
    let disk = SimulatedDisk::new();
    for dir in ["/d", "/e"] {
        disk.create_dir(Path::new(dir)).unwrap();
    }
    disk.fail_write("e/", 0);
    let files = ["/d/f", "/e/f"].map(|path| disk.open(Path::new(path), true).unwrap());
    let written = files.map(|file| file.write_at(&mut [IoSlice::new(&[7])], 0).is_ok());
    assert_eq!(written, [true, false]);
}

#[test]
fn bit_flip_survives_power_loss_and_makes_nothing_durable() {
    let mut reverted = 0;
    for seed in 0..100 {
        let (disk, path, file) = disk_with_file("f");
        write(&file, &[7; 2 * SECTOR], 0);
        file.sync().unwrap();
        disk.sync_dir(Path::new("/d")).unwrap();
        write(&file, &[8; SECTOR], 0);
        disk.flip_bit(&path, 3, 0);
        disk.flip_bit(&path, SECTOR as u64, 1);
        let content = disk.power_loss(seed).content(&path).unwrap();
        reverted += usize::from(content[0] == 7);
        assert_eq!(content[3], content[0] ^ 1);
        assert_eq!(content[SECTOR], 7 ^ 2);
    }
    assert!((1..100).contains(&reverted), "{reverted}");
}

#[test]
fn file_stays_corrupted_until_the_bytes_are_durably_rewritten_or_it_is_removed() {
    let (disk, path, file) = disk_with_file("f");
    write(&file, &[7; 100], 0);
    file.sync().unwrap();
    disk.sync_dir(Path::new("/d")).unwrap();
    assert_eq!(disk.corrupted_files(), Vec::<PathBuf>::new());
    disk.corrupt(&path, 5, &[1, 2]);
    write(&file, &[7; 6], 0);
    file.sync().unwrap();
    assert_eq!(disk.corrupted_files(), std::slice::from_ref(&path), "one of the two is as it was");
    write(&file, &[7; 10], 0);
    assert_eq!(disk.corrupted_files(), std::slice::from_ref(&path), "it is not synced");
    let mut kept = 0;
    for seed in 0..20 {
        let copy = SimulatedDisk::unpack(&disk.pack(), Path::new("/"));
        copy.corrupt(&path, 5, &[1]);
        let again = copy.open(&path, false).unwrap();
        write(&again, &[7; 10], 0);
        let after = copy.power_loss(seed);
        let is_whole = after.content(&path).unwrap()[..10] == [7; 10];
        assert_eq!(after.corrupted_files().is_empty(), is_whole, "seed {seed}");
        kept += usize::from(is_whole);
    }
    assert!((1..20).contains(&kept), "{kept}");
    file.sync().unwrap();
    assert_eq!(disk.corrupted_files(), Vec::<PathBuf>::new());
    disk.flip_bit(&path, 5, 0);
    disk.remove(&path).unwrap();
    assert_eq!(disk.corrupted_files(), [path], "power may bring it back");
    disk.sync_dir(Path::new("/d")).unwrap();
    assert_eq!(disk.corrupted_files(), Vec::<PathBuf>::new());
}
