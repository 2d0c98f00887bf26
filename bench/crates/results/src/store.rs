use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::{Run, SCHEMA};

#[derive(Debug, Error)]
pub enum StoreError {
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: std::io::Error },
    #[error("{path} is no result of a run: {source}")]
    Malformed { path: PathBuf, source: serde_json::Error },
    #[error("{path} has schema {found}, this suite reads up to {SCHEMA}: use a newer one")]
    TooNew { path: PathBuf, found: u32 },
}

/// Writes the run into the folder, under a name from its test, system and time. A reader sees the
/// whole file or none.
pub fn write(run: &Run, folder: &Path) -> Result<PathBuf, StoreError> {
    let Run { test, system, started_ms, .. } = run;
    let name = format!("{}-{}-{}-{started_ms}.json", test.name, system.name, system.tier);
    let path = folder.join(name.replace(['/', ' '], "-"));
    let failed = |source| StoreError::Io { path: path.clone(), source };
    fs::create_dir_all(folder).map_err(failed)?;
    let unfinished = path.with_extension("json.unfinished");
    let text = serde_json::to_vec_pretty(run)
        .map_err(|source| StoreError::Malformed { path: path.clone(), source })?;
    let mut file = fs::File::create(&unfinished).map_err(failed)?;
    file.write_all(&text).map_err(failed)?;
    drop(file);
    fs::rename(&unfinished, &path).map_err(failed)?;
    Ok(path)
}

pub fn read(path: &Path) -> Result<Run, StoreError> {
    #[derive(serde::Deserialize)]
    struct Schema {
        schema: u32,
    }
    let text = fs::read(path).map_err(|source| StoreError::Io { path: path.into(), source })?;
    let malformed = |source| StoreError::Malformed { path: path.into(), source };
    let Schema { schema: found } = serde_json::from_slice(&text).map_err(malformed)?;
    if found > SCHEMA {
        return Err(StoreError::TooNew { path: path.into(), found });
    }
    serde_json::from_slice(&text).map_err(malformed)
}

/// All runs in a folder, the oldest first.
pub fn read_all(folder: &Path) -> Result<Vec<Run>, StoreError> {
    let failed = |source| StoreError::Io { path: folder.into(), source };
    let mut runs = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            runs.push(read(&path)?);
        }
    }
    runs.sort_by_key(|run| run.started_ms);
    Ok(runs)
}
