//! Manifest of a backup: `backup.json`, written last. Without it there is no backup.

use base::checksum::crc32c;
use operations::backup::LogId;
use serde::{Deserialize, Serialize};

/// Name of the manifest's file.
pub const MANIFEST: &str = "backup.json";
/// Name of a marker file that exists while the backup is being taken.
pub const INCOMPLETE: &str = "incomplete";
/// Left behind if writing the marker fails.
pub(crate) const INCOMPLETE_DRAFT: &str = "incomplete.tmp";
pub const FORMAT: u32 = 1;

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    pub format: u32,
    /// Version of the source node.
    pub version: String,
    pub cluster: String,
    /// The source node.
    pub node: u64,
    /// Everything acknowledged before this time is in the backup; ms since the epoch.
    pub begun_ms: i64,
    pub ended_ms: i64,
    /// The catalog first, numbered without a gap.
    pub shards: Vec<ShardEntry>,
    /// CRC32C of this document with 0 here.
    pub checksum: u32,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShardEntry {
    pub shard: u32,
    /// Last entry in the snapshot.
    pub snapshot: LogId,
    /// Last entry of the backup. The log file may have more behind it.
    pub last_index: u64,
    /// Time of that entry, ms since the epoch.
    pub last_ms: i64,
    pub segments: u64,
    pub files: Vec<FileEntry>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileEntry {
    pub name: String,
    pub bytes: u64,
    /// CRC32C.
    pub checksum: u32,
}

impl Manifest {
    /// Size of all files.
    pub fn bytes(&self) -> u64 {
        self.shards.iter().map(ShardEntry::bytes).sum()
    }

    /// Sets the checksum.
    pub(crate) fn sealed(self) -> Self {
        Self { checksum: self.checksum(), ..self }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        // Encoding cannot fail: every map key is text.
        serde_json::to_vec_pretty(self).unwrap_or_default()
    }

    /// Returns why the bytes are no usable manifest.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let manifest: Self = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if manifest.checksum != manifest.checksum() {
            return Err("its checksum does not hold".to_owned());
        }
        if manifest.format != FORMAT {
            let format = manifest.format;
            return Err(format!("it has format {format}, and this program knows {FORMAT}"));
        }
        manifest.check().map(|()| manifest)
    }

    fn checksum(&self) -> u32 {
        let bare = Self { checksum: 0, ..self.clone() };
        crc32c(&serde_json::to_vec(&bare).unwrap_or_default())
    }

    fn check(&self) -> Result<(), String> {
        let numbered =
            (0..).zip(&self.shards).all(|(number, entry): (u32, _)| entry.shard == number);
        if self.shards.is_empty() || !numbered {
            return Err("its shards are not numbered from the catalog on".to_owned());
        }
        for entry in &self.shards {
            let shard = entry.shard;
            if entry.last_index < entry.snapshot.index {
                return Err(format!("shard {shard} ends before its snapshot"));
            }
            let names = file_names(shard, entry.segments);
            if !entry.files.iter().map(|file| &file.name).eq(names.iter()) {
                return Err(format!("the files of shard {shard} are others than they should be"));
            }
        }
        Ok(())
    }
}

impl ShardEntry {
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }
}

/// File names of a shard with this number of segments, in the order of a manifest.
fn file_names(shard: u32, segments: u64) -> Vec<String> {
    let sections = SECTIONS.map(|section| section_file(shard, section));
    let segments = (0..segments).map(|segment| segment_file(shard, segment));
    sections.into_iter().chain(segments).chain([log_file(shard)]).collect()
}

/// Sections of a snapshot, in their order.
pub(crate) const SECTIONS: [&str; 4] = ["consensus", "state", "live", "segments"];

pub(crate) fn section_file(shard: u32, section: &str) -> String {
    format!("shard-{shard}.{section}")
}

pub(crate) fn segment_file(shard: u32, segment: u64) -> String {
    format!("shard-{shard}.batches-{segment:06}")
}

pub(crate) fn log_file(shard: u32) -> String {
    format!("shard-{shard}.log")
}

/// Whether it is the name of a file of an incomplete backup.
pub(crate) fn is_backup_file(name: &str) -> bool {
    let Some(rest) = name.strip_prefix("shard-") else {
        return [INCOMPLETE, INCOMPLETE_DRAFT, "backup.json.tmp"].contains(&name);
    };
    let Some((shard, what)) = rest.split_once('.') else { return false };
    let known = SECTIONS.contains(&what) || what == "log" || what.starts_with("batches-");
    known && shard.parse::<u32>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn manifest() -> Manifest {
        let file = |name: String| FileEntry { name, bytes: 10, checksum: 3 };
        let shard = |shard: u32, segments: u64| ShardEntry {
            shard,
            snapshot: LogId { index: 5, term: 1, leader: 1 },
            last_index: 9,
            last_ms: 1_700_000_000_000,
            segments,
            files: file_names(shard, segments).into_iter().map(file).collect(),
        };
        Manifest {
            format: FORMAT,
            version: "0.1.0".to_owned(),
            cluster: "c".to_owned(),
            node: 2,
            begun_ms: 1,
            ended_ms: 2,
            shards: vec![shard(0, 0), shard(1, 2)],
            checksum: 0,
        }
    }

    #[test]
    fn changed_manifest_is_rejected() {
        let written = manifest().sealed();
        let bytes = written.encode();
        let read = Manifest::decode(&bytes).expect("as it was written");
        assert_eq!(read, written);
        for place in 0..bytes.len() {
            for bit in [0, 3, 6] {
                let mut changed = bytes.clone();
                changed[place] ^= 1 << bit;
                // A changed space may be another kind of whitespace.
                let same = Manifest::decode(&changed).is_ok_and(|other| other == read);
                assert!(same || Manifest::decode(&changed).is_err(), "byte {place} bit {bit}");
            }
            assert!(Manifest::decode(&bytes[..place]).is_err(), "cut to {place}");
        }
    }

    #[test]
    fn manifest_with_inconsistent_fields_is_rejected() {
        let refused = |change: fn(&mut Manifest)| {
            let mut manifest = manifest();
            change(&mut manifest);
            Manifest::decode(&manifest.sealed().encode()).expect_err("refused")
        };
        assert!(refused(|it| it.format = 2).contains("format 2"));
        assert!(refused(|it| it.shards.clear()).contains("numbered"));
        assert!(refused(|it| it.shards[1].shard = 2).contains("numbered"));
        assert!(refused(|it| it.shards[1].last_index = 4).contains("shard 1 ends before"));
        assert!(refused(|it| it.shards[0].files[0].name = "../x".to_owned()).contains("shard 0"));
        assert!(refused(|it| it.shards[1].segments = 1).contains("shard 1"));
    }

    #[test]
    fn only_files_of_a_backup_are_recognized_as_its_own() {
        for name in file_names(3, 2).iter().map(String::as_str).chain([INCOMPLETE]) {
            assert!(is_backup_file(name), "{name}");
        }
        for name in ["shard-1", "shard-x.log", "shard-1.seg", "notes.txt", "backup.json"] {
            assert!(!is_backup_file(name), "{name}");
        }
    }
}
