//! The cluster's level as stored in a data directory: its file `level`.
//!
//! The catalog has the level of the cluster, but a program that does not support the level may be unable to read
//! the catalog. So the level also has a file of its own, whose format never changes, and which is on disk before
//! anything is written at the level. A directory without it is at the first level.
//!
//! ```text
//!  0  magic "PRlevel\n"   8  version u32   12  level u16
//! 14  length u16, and the name of the program that had raised the cluster to it
//!     CRC32C of all before it u32
//! ```
//!
//! Numbers are little-endian.

use std::fmt;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};

use base::checksum::crc32c;
use base::{ClusterLevel, Format, Level, Levels};
use bytes::{Buf, BufMut};
use thiserror::Error;
use world::World;
use world::disk::{read_whole, replace};

const FILE: &str = "level";
const MAGIC: &[u8; 8] = b"PRlevel\n";
const VERSION: u32 = 1;
const _: () = assert!(VERSION == Format::LevelFile.newest(Levels::OURS.max));
/// Length limit of a name; longer names are cut.
const PROGRAM_BYTES_MAX: usize = 200;

/// The level of a cluster, and the program that had raised it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RaisedLevel {
    pub level: Level,
    /// With its version: the program that an operator has to start.
    pub program: String,
}

/// The program does not support the cluster's level.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub struct LevelMissing {
    pub raised: RaisedLevel,
    pub can: Levels,
}

impl fmt::Display for LevelMissing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { raised: RaisedLevel { level, program }, can } = self;
        if *level < can.min {
            return write!(
                f,
                "the cluster is at feature level {level}, and this program supports {can}: start the version before it on \
                 all nodes, and type `postroad cluster upgrade --finalize` there"
            );
        }
        write!(
            f,
            "the cluster is at feature level {level}, and this program supports {can}: start {program}, which had raised \
             it to that, or a later one"
        )
    }
}

/// Reason why a data directory is not opened.
#[derive(Debug, Error)]
pub enum LevelError {
    #[error(transparent)]
    Missing(#[from] LevelMissing),
    #[error(
        "{} says at which feature level the cluster is, and is damaged or of a later version: start the program that \
         the other nodes run, or remove the file if this one is known to be able",
        path.display()
    )]
    Damaged { path: PathBuf },
    #[error("{doing}: {source}; look whether the disk is well, and start the node again")]
    Io { doing: String, source: io::Error },
}

impl RaisedLevel {
    /// Whether a program that supports these levels may continue here.
    pub fn check(self, can: Levels) -> Result<Level, LevelMissing> {
        match can.has(self.level) {
            true => Ok(self.level),
            false => Err(LevelMissing { raised: self, can }),
        }
    }

    fn encode(&self) -> Vec<u8> {
        let program = &self.program[..self.program.floor_char_boundary(PROGRAM_BYTES_MAX)];
        let mut out = Vec::with_capacity(64);
        out.put_slice(MAGIC);
        out.put_u32_le(VERSION);
        out.put_u16_le(self.level.0);
        out.put_u16_le(program.len() as u16);
        out.put_slice(program.as_bytes());
        out.put_u32_le(crc32c(&out));
        out
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (content, checksum) = bytes.split_last_chunk::<4>()?;
        if crc32c(content).to_le_bytes() != *checksum {
            return None;
        }
        let mut content = content.strip_prefix(MAGIC)?;
        if content.try_get_u32_le().ok()? != VERSION {
            return None;
        }
        let level = Level(content.try_get_u16_le().ok()?);
        let length = usize::from(content.try_get_u16_le().ok()?);
        let program = content.get(..length).filter(|_| content.len() == length)?;
        Some(Self { level, program: std::str::from_utf8(program).ok()?.to_owned() })
    }
}

/// The level of the directory's cluster, for a program that supports these levels. Refused if it is none of them.
pub fn open(world: &World, dir: &Path, can: Levels) -> Result<ClusterLevel, LevelError> {
    let level = ClusterLevel::new(can);
    let io = |doing: &str, source| LevelError::Io { doing: doing.to_owned(), source };
    let path = dir.join(FILE);
    let names = match world.disk.list(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        names => names.map_err(|error| io("reading the data directory", error))?,
    };
    if !names.iter().any(|name| name == FILE) {
        // A directory that is absent, or of no cluster yet, gets its level from the catalog.
        return Ok(level);
    }
    let bytes = read_whole(&*world.disk, &path).map_err(|error| io("reading the level", error))?;
    let raised = RaisedLevel::decode(&bytes).ok_or(LevelError::Damaged { path })?;
    level.raise(raised.check(can)?);
    Ok(level)
}

/// Stores the level. From now on no program without support for it opens the directory.
pub fn keep(world: &World, dir: &Path, raised: &RaisedLevel) -> io::Result<()> {
    let bytes = raised.encode();
    replace(&*world.disk, dir, FILE, &mut [IoSlice::new(&bytes)])
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use world::SimulatedDisk;

    use super::*;

    const CAN_TWO: Levels = Levels { min: Level(1), max: Level(2) };

    fn second() -> RaisedLevel {
        RaisedLevel { level: Level(2), program: "postroad 2".to_owned() }
    }

    #[test]
    fn bytes_of_the_level_file_do_not_change() {
        let expected = b"PRlevel\n\x01\0\0\0\x02\0\x0a\0postroad 2";
        let bytes = second().encode();
        assert_eq!(bytes[..bytes.len() - 4], expected[..]);
        assert_eq!(RaisedLevel::decode(&bytes), Some(second()));
        let long = RaisedLevel { program: "é".repeat(300), ..second() };
        let read = RaisedLevel::decode(&long.encode()).expect("it is cut");
        assert_eq!(read.program.len(), PROGRAM_BYTES_MAX);
    }

    #[test]
    fn directory_is_opened_only_by_a_program_that_supports_its_level() {
        let world = World::on(Arc::new(SimulatedDisk::new()));
        let dir = Path::new("/data");
        let opened = |can| open(&world, dir, can);
        assert_eq!(opened(CAN_TWO).expect("there is none yet").now(), Level::FIRST);
        world.disk.create_dir(dir).expect("made");
        keep(&world, dir, &second()).expect("kept");
        assert_eq!(opened(CAN_TWO).expect("it can").now(), Level(2));
        let error = opened(Levels { min: Level(1), max: Level(1) }).expect_err("it cannot");
        assert!(error.to_string().contains("start postroad 2"), "{error}");
        let error = opened(Levels { min: Level(3), max: Level(4) }).expect_err("not any more");
        assert!(error.to_string().contains("cluster upgrade --finalize"), "{error}");
    }

    proptest! {
        #[test]
        fn changed_or_cut_file_is_rejected(
            position in any::<prop::sample::Index>(),
            bit in 0..8_u8,
            length in any::<prop::sample::Index>(),
        ) {
            let bytes = second().encode();
            let mut changed = bytes.clone();
            changed[position.index(bytes.len())] ^= 1 << bit;
            prop_assert_eq!(RaisedLevel::decode(&changed), None);
            prop_assert_eq!(RaisedLevel::decode(&bytes[..length.index(bytes.len())]), None);
        }
    }
}
