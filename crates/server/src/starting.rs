//! Conditions for the start of a node: its data directory, and what it waits for. Messages name the remedies.

use std::fmt::Display;
use std::fs::DirBuilder;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use broker::{Broker, UnreadyReason};
use cli::output::bytes;
use cluster::Node;
use tokio::time::timeout;
use world::disk::{DIRECTORY_MODE, lock_holder};

use crate::serve_error::ServeError;
use crate::settings::{Settings, source};

/// A node that is not ready within this time prints the reason.
const READY_SOON: Duration = Duration::from_secs(3);

fn refused(path: &Path, problem: String) -> ServeError {
    ServeError::Data { path: path.to_owned(), problem }
}

/// Rejects a data directory that cannot be read or made.
fn check_data(path: &Path) -> Result<(), ServeError> {
    let problem = match std::fs::read_dir(path) {
        Ok(_) => return Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let created = DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path);
            match created {
                Ok(()) => return Ok(()),
                Err(error) => format!("cannot be created: {error}; name another with --data"),
            }
        }
        Err(error) if error.kind() == ErrorKind::NotADirectory => {
            "is a file; name a directory with --data".to_owned()
        }
        Err(error) => format!(
            "cannot be read: {error}; run the node as the user that owns it, or name another with --data"
        ),
    };
    Err(refused(path, problem))
}

/// Checks the environment and the data directory before anything is opened.
pub(crate) fn check(data: &Path) -> Result<(), ServeError> {
    warn_of_variables();
    check_data(data)
}

/// Warns of environment variables that look like settings but are unknown.
fn warn_of_variables() {
    for (name, meant) in source::unknown_variables() {
        let meant = meant.map_or(String::new(), |meant| format!("; {meant} may be meant"));
        tracing::warn!("the variable {name} is no setting{meant}");
    }
}

/// Rejects a data directory that another process uses.
pub(crate) fn check_unused(path: &Path) -> Result<(), ServeError> {
    let shards = std::fs::read_dir(path).into_iter().flatten().flatten();
    let Some(holder) = shards.map(|it| it.path()).find_map(|it| lock_holder(&it)) else {
        return Ok(());
    };
    let by = holder.pid.map_or("another process".to_owned(), |pid| format!("process {pid}"));
    Err(refused(path, format!("is in use by {by}; stop that first, or name another with --data")))
}

/// Prints a line on standard output. A closed output must not stop the server.
pub(crate) fn say(line: impl Display) {
    let mut stdout = std::io::stdout().lock();
    let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
}

/// Describes what the node waits for while no node leads the catalog, for as long as it runs.
pub(crate) fn waits_for(
    node: Option<&Arc<Node>>,
) -> impl Fn() -> Option<String> + Send + Sync + use<> {
    let node = node.map(Arc::downgrade);
    move || node.as_ref()?.upgrade()?.waits_for()
}

/// Waits until the node serves clients, and announces it. After a while a line names the missing condition.
pub(crate) async fn ready(broker: &Broker, settings: &Settings) -> Result<(), ServeError> {
    let mut ready = pin!(broker.ready());
    let ready = match timeout(READY_SOON, ready.as_mut()).await {
        Ok(ready) => ready,
        Err(_) => {
            say(awaited(broker, settings.disk_reserve_bytes));
            ready.await
        }
    };
    ready.map_err(|error| ServeError::Failed(error.to_string()))?;
    say("ready");
    Ok(())
}

fn awaited(broker: &Broker, reserve_bytes: u64) -> String {
    let is_full = broker.vitals().shards.iter().any(|shard| shard.is_full);
    match (is_full, broker.unready()) {
        (true, _) => {
            let reserve = bytes(reserve_bytes);
            format!(
                "not ready: the disk is full; free more than {reserve}, which stay in reserve (--disk-reserve)"
            )
        }
        (false, Some(UnreadyReason::DiskHangs(since))) => {
            format!("not ready: the disk has not answered for {} seconds", since.as_secs())
        }
        (false, _) if broker.is_alone() => "not ready: waits for the disk".to_owned(),
        (false, _) => "not ready: waits for a majority of the cluster's nodes".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn unusable_data_directory_is_named_with_the_remedy() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("file");
        std::fs::write(&file, "").expect("is written");
        let error = check_data(&file).expect_err("it is a file").to_string();
        assert!(error.contains(&file.display().to_string()) && error.contains("--data"), "{error}");
        let within = check_data(&file.join("data")).expect_err("a file has no entries").to_string();
        assert!(within.contains("file/data"), "{within}");
        let new = folder.path().join("a/b");
        check_data(&new).expect("is made");
        check_unused(&new).expect("has no shards");
    }

    #[test]
    fn new_data_directory_is_private_and_an_existing_one_keeps_its_mode() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mode =
            |path: &Path| std::fs::metadata(path).expect("is there").permissions().mode() & 0o777;
        let new = folder.path().join("new");
        check_data(&new).expect("is made");
        assert_eq!(mode(&new), 0o700);
        let shared = std::fs::Permissions::from_mode(0o750);
        std::fs::set_permissions(&new, shared).expect("are set");
        check_data(&new).expect("is readable");
        assert_eq!(mode(&new), 0o750);
    }
}
