//! What is damaged.

use std::path::Path;

use ::journal::inspect::{FrameInfo, SegmentFile, Verdict};

/// What is damaged, each with its place.
#[derive(Default)]
pub(super) struct Damage {
    pub(super) places: Vec<String>,
    /// The frame before was damaged: that the next one does not follow is the same damage.
    in_gap: bool,
}

impl Damage {
    pub(super) fn add(&mut self, path: &Path, place: &str) {
        self.places.push(format!("{place}{}", path.display()));
    }

    pub(super) fn look_at(&mut self, frame: &FrameInfo, file: &SegmentFile) {
        let known = std::mem::replace(&mut self.in_gap, frame.verdict == Verdict::Damaged);
        match frame.verdict {
            Verdict::Stranger if known => {}
            Verdict::Damaged | Verdict::Stranger => {
                self.add(&file.path, &format!("at byte {} of ", frame.position));
            }
            _ => {}
        }
    }
}
