//! A disk packed into one byte string, to be kept in a repository: the tests of a newer version open the files
//! that an older version wrote.
//!
//! ```text
//! per file   length of its path, its own length, number of blocks   u32 each, little endian
//!            path
//!            per block: its number (u32), 64 bytes
//! ```
//!
//! Blocks of zeros are left out: segments are allocated long before they are full.

use std::io::IoSlice;
use std::path::{Path, PathBuf};

use super::super::Disk;
use super::SimulatedDisk;

const BLOCK: usize = 64;

impl SimulatedDisk {
    /// Packs all files, as readers see them now.
    pub fn pack(&self) -> Vec<u8> {
        let mut paths: Vec<PathBuf> = self.shared.state.lock().names.keys().cloned().collect();
        paths.sort_unstable();
        let mut out = Vec::new();
        for path in paths {
            let Some(content) = self.content(&path) else { continue };
            let blocks: Vec<(usize, &[u8])> = content
                .chunks(BLOCK)
                .enumerate()
                .filter(|(_, block)| block.iter().any(|byte| *byte != 0))
                .collect();
            let path = path.to_str().expect("paths of tests are text");
            for number in [path.len(), content.len(), blocks.len()] {
                out.extend_from_slice(&(number as u32).to_le_bytes());
            }
            out.extend_from_slice(path.as_bytes());
            for (place, block) in blocks {
                out.extend_from_slice(&(place as u32).to_le_bytes());
                out.extend_from_slice(block);
                out.resize(out.len() + BLOCK - block.len(), 0);
            }
        }
        out
    }

    /// The disk packed by [`Self::pack`]. Relative paths are placed below `dir`. Panics on invalid input: it is
    /// the test's own.
    pub fn unpack(packed: &[u8], dir: &Path) -> Self {
        let disk = Self::new();
        let mut rest = packed;
        let number = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("four bytes"));
        while !rest.is_empty() {
            let mut take = |len: usize| {
                let (taken, more) = rest.split_at(len);
                rest = more;
                taken
            };
            let [path_len, len, blocks] = [number(take(4)), number(take(4)), number(take(4))];
            let path = std::str::from_utf8(take(path_len as usize)).expect("a path is text");
            let path = dir.join(path);
            let parent = path.parent().expect("a file is in a directory");
            disk.create_dir(parent).expect("it is alive");
            let file = disk.open(&path, true).expect("no path comes twice");
            file.allocate(u64::from(len)).expect("it has room");
            for _ in 0..blocks {
                let at = u64::from(number(take(4))) * BLOCK as u64;
                let block = take(BLOCK);
                let block = &block[..BLOCK.min((u64::from(len) - at) as usize)];
                file.write_at(&mut [IoSlice::new(block)], at).expect("it has room");
            }
            file.sync().expect("it is alive");
            disk.sync_dir(parent).expect("it is alive");
        }
        disk
    }
}
