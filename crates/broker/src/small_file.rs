//! Small files of a node's data directory, beside its shards.

use std::io::{self, IoSlice};
use std::path::Path;

use world::Disk;

/// Makes the file, or replaces it: after a crash there is what was there before, or all of this.
pub(crate) fn write(disk: &dyn Disk, dir: &Path, name: &str, content: &[u8]) -> io::Result<()> {
    let temporary = format!("{name}.tmp");
    let path = dir.join(&temporary);
    // What a crash left.
    if disk.list(dir)?.contains(&temporary) {
        disk.remove(&path)?;
    }
    let file = disk.open(&path, true)?;
    file.write_at(&mut [IoSlice::new(content)], 0)?;
    file.sync()?;
    disk.rename(&path, &dir.join(name))?;
    disk.sync_dir(dir)
}
