//! Damage found in segments that the log no longer writes to, until it is repaired.
//!
//! Nothing here is durable: damage is found again at the next read.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::PathBuf;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// Checks that bytes are a batch as it was appended, at this offset if one is given. The journal
/// does not know the batch format; its user supplies the check.
#[derive(Clone, Copy)]
pub struct BatchCheck(pub fn(&[u8], Option<u64>) -> bool);

impl fmt::Debug for BatchCheck {
    /// Hides the function's address, which differs from run to run.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BatchCheck")
    }
}

/// A segment with bytes that cannot be read as they were written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damage {
    pub segment: u32,
    pub generation: u32,
    pub file: PathBuf,
    /// Position in the file of the first damage found; there may be more.
    pub position: u64,
    pub what: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, position, what, .. } = self;
        write!(f, "{} is damaged at {position}: {what}", file.display())
    }
}

/// Known damage, one entry per segment.
#[derive(Debug, Default)]
pub(crate) struct DamagedSegments {
    known: Mutex<BTreeMap<u32, Damage>>,
    found: Notify,
}

impl DamagedSegments {
    pub(crate) fn note(&self, damage: Damage) {
        {
            let mut known = self.known.lock();
            let before = known.get(&damage.segment);
            if before.is_some_and(|before| before.generation >= damage.generation) {
                return;
            }
            known.insert(damage.segment, damage.clone());
        }
        tracing::error!(%damage, "stored records are damaged, and are not served");
        self.found.notify_one();
    }

    /// The segment was rewritten up to this generation, or deleted.
    pub(crate) fn is_gone(&self, segment: u32, generation: u32) {
        let mut known = self.known.lock();
        if known.get(&segment).is_some_and(|damage| damage.generation <= generation) {
            known.remove(&segment);
        }
    }

    pub(crate) fn list(&self) -> Vec<Damage> {
        self.known.lock().values().cloned().collect()
    }

    /// Resolves when damage was found since the last call resolved.
    pub(crate) async fn found(&self) {
        self.found.notified().await;
    }
}

/// Whether the error means that the bytes are lost, and not only unavailable now.
pub(crate) fn is_loss(error: &io::Error) -> bool {
    // Devices report lost sectors as EIO.
    const EIO: i32 = 5;
    let kinds = [io::ErrorKind::NotFound, io::ErrorKind::UnexpectedEof, io::ErrorKind::InvalidData];
    kinds.contains(&error.kind()) || error.raw_os_error() == Some(EIO)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn damage(segment: u32, generation: u32) -> Damage {
        let what = "the test says so".to_owned();
        Damage { segment, generation, file: "x".into(), position: 7, what }
    }

    #[test]
    fn damaged_segment_is_recorded_once_until_it_is_rewritten() {
        let damaged = DamagedSegments::default();
        damaged.note(damage(3, 1));
        damaged.note(Damage { position: 9, ..damage(3, 1) });
        damaged.note(damage(1, 2));
        assert_eq!(damaged.list(), [damage(1, 2), damage(3, 1)]);
        damaged.is_gone(1, 1);
        damaged.is_gone(3, 1);
        assert_eq!(damaged.list(), [damage(1, 2)]);
        damaged.note(damage(1, 3));
        assert_eq!(damaged.list(), [damage(1, 3)]);
    }

    #[test]
    fn temporary_error_is_no_loss() {
        for (number, loss) in [(5, true), (2, true), (24, false), (12, false), (11, false)] {
            assert_eq!(is_loss(&io::Error::from_raw_os_error(number)), loss, "errno {number}");
        }
    }
}
