//! Paths of the repository; every chore works from its root, wherever it was called.

use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::{Context, Outcome};

/// The repository's root: the parent of this crate's folder.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the repository")
}

/// Cargo's target folder, where chores keep created and downloaded files.
pub(crate) fn target() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(path) => root().join(path),
        None => root().join("target"),
    }
}

/// Creates an empty folder below the target folder; the files of an earlier run are removed.
pub(crate) fn fresh(name: &str) -> Outcome<PathBuf> {
    let path = target().join("xtask").join(name);
    if path.exists() {
        fs::remove_dir_all(&path).context(|| format!("cannot remove {}", path.display()))?;
    }
    fs::create_dir_all(&path).context(|| format!("cannot create {}", path.display()))?;
    Ok(path)
}
