//! A segment file of the log during recovery.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::frame::reader::FrameReader;
use crate::segment::SegmentHeader;
use world::DiskFile;

/// A segment file of the log during recovery.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) path: PathBuf,
    pub(super) file: Arc<dyn DiskFile>,
    pub(super) header: Option<SegmentHeader>,
    pub(super) file_bytes: u64,
}

impl Candidate {
    /// Why it cannot be used; `None` if it can.
    pub(super) fn fault(&self, id: u32) -> Option<String> {
        match self.header {
            None => Some("its header is damaged".to_owned()),
            Some(header) if header.id != id => {
                Some(format!("its header is that of segment {}", header.id))
            }
            Some(header) if self.file_bytes < header.bytes => {
                let has = self.file_bytes;
                Some(format!("it has {has} bytes and had at least {}: cut short", header.bytes))
            }
            Some(_) => None,
        }
    }

    pub(super) fn frames(&self, id: u32) -> io::Result<FrameReader<'_>> {
        // The salt in another segment's header does not apply.
        let own = self.header.filter(|header| header.id == id);
        FrameReader::new(&*self.file, id, own.map(|header| header.salt))
    }
}
