//! Distinguishes damaged frames from frames that are being written.
//!
//! A running broker appends to the segment being read. The reader may reach a place before its frame is written, and
//! the frames behind it afterwards, which looks like damage. In a directory that a broker uses, a place counts as
//! damaged only if several reads find it so.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ::journal::inspect::{FrameInfo, SegmentFile, Verdict};
use world::disk::lock_holder;

use super::shard::frames;
use crate::command_error::CommandError;

/// A group commit ends within this time, unless the disk hangs.
const READ_AGAIN_AFTER: Duration = Duration::from_millis(200);
/// Reads that have to find the same place damaged.
const SAME_READS: u32 = 4;
/// Limit on the reads of a segment. If each read finds another place, the segment is being written.
const READS_MAX: u32 = 20;

/// A place that looks damaged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct DamagedPlace {
    path: PathBuf,
    /// `None`: the file as a whole.
    position: Option<u64>,
    what: &'static str,
}

impl DamagedPlace {
    pub(super) fn text(&self) -> String {
        let path = self.path.display();
        match self.position {
            Some(position) => format!("at byte {position} of {path}"),
            None => format!("{} {path}", self.what),
        }
    }
}

/// Damaged places.
#[derive(Default)]
pub(super) struct Damage {
    pub(super) places: Vec<DamagedPlace>,
    /// The previous frame was damaged: a sequence error in the next one is the same damage.
    in_gap: bool,
}

impl Damage {
    pub(super) fn add(&mut self, path: &Path, what: &'static str) {
        self.places.push(DamagedPlace { path: path.to_owned(), position: None, what });
    }

    pub(super) fn look_at(&mut self, frame: &FrameInfo, file: &SegmentFile) {
        let known = std::mem::replace(&mut self.in_gap, frame.verdict == Verdict::Damaged);
        match frame.verdict {
            Verdict::Stranger if known => {}
            Verdict::Damaged | Verdict::Stranger => {
                let (path, position) = (file.path.clone(), Some(frame.position));
                self.places.push(DamagedPlace { path, position, what: "in" });
            }
            _ => {}
        }
    }

    /// Adds the damage found in one segment. Returns whether the segment is being written instead.
    pub(super) fn settle(
        &mut self,
        found: Self,
        dir: &Path,
        file: &SegmentFile,
    ) -> Result<bool, CommandError> {
        if found.places.is_empty() || !is_in_use(dir) {
            self.places.extend(found.places);
            return Ok(false);
        }
        let again = || -> Result<Vec<DamagedPlace>, CommandError> {
            std::thread::sleep(READ_AGAIN_AFTER);
            let mut again = Self::default();
            for frame in frames(dir, file.id)? {
                again.look_at(&frame?, file);
            }
            // The header does not change, and is not read again.
            let whole = found.places.iter().filter(|place| place.position.is_none());
            Ok(whole.cloned().chain(again.places).collect())
        };
        let last = lasting(found.places.clone(), again)?;
        let is_written = last.is_empty();
        self.places.extend(last);
        Ok(is_written)
    }
}

/// The places that several consecutive reads find.
fn lasting<E>(
    mut places: Vec<DamagedPlace>,
    mut again: impl FnMut() -> Result<Vec<DamagedPlace>, E>,
) -> Result<Vec<DamagedPlace>, E> {
    let mut same = 1;
    for _ in 1..READS_MAX {
        let found = again()?;
        let lasting: Vec<DamagedPlace> =
            found.iter().filter(|it| places.contains(it)).cloned().collect();
        same = if lasting.is_empty() { 1 } else { same + 1 };
        if found.is_empty() {
            return Ok(found);
        }
        if same >= SAME_READS {
            return Ok(lasting);
        }
        places = if lasting.is_empty() { found } else { lasting };
    }
    Ok(Vec::new())
}

/// Whether a broker has locked the directory.
pub(super) fn is_in_use(dir: &Path) -> bool {
    lock_holder(dir).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(position: u64) -> DamagedPlace {
        DamagedPlace { path: "1.seg".into(), position: Some(position), what: "in" }
    }

    fn lasts(first: &[u64], reads: &[&[u64]]) -> Vec<u64> {
        let places = |all: &[u64]| all.iter().map(|at| place(*at)).collect::<Vec<_>>();
        let mut reads = reads.iter().chain(std::iter::repeat(reads.last().expect("a read")));
        let again = || Ok::<_, ()>(places(reads.next().expect("endless")));
        let lasting = lasting(places(first), again).expect("no error");
        lasting.iter().filter_map(|place| place.position).collect()
    }

    #[test]
    fn places_that_are_whole_at_the_next_read_were_being_written() {
        assert!(lasts(&[10], &[&[]]).is_empty());
        assert!(lasts(&[10], &[&[20], &[30], &[]]).is_empty());
        let moving: Vec<Vec<u64>> = (2..40).map(|at| vec![at * 10]).collect();
        let moving: Vec<&[u64]> = moving.iter().map(Vec::as_slice).collect();
        assert!(lasts(&[10], &moving).is_empty());
    }

    #[test]
    fn place_that_each_read_finds_is_damaged() {
        assert_eq!(lasts(&[10], &[&[10]]), [10]);
        assert_eq!(lasts(&[10, 20], &[&[10, 30], &[10, 40], &[10]]), [10]);
        assert_eq!(lasts(&[5], &[&[10], &[10, 20], &[10]]), [10]);
    }
}
