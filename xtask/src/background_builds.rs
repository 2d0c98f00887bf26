//! Builds the targets of later steps while an earlier step waits for elections, leases and disks.

use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

const LOOKS_EVERY: Duration = Duration::from_millis(100);

/// Background builds. They run until they are done or this is dropped. The step that needs a failed build runs it
/// again and reports the failure.
#[derive(Debug)]
pub(crate) struct BackgroundBuilds {
    builds: Arc<Mutex<Builds>>,
}

#[derive(Debug)]
struct Builds {
    /// In reverse order: the next build is the last entry.
    left: Vec<Command>,
    running: Option<Child>,
}

impl BackgroundBuilds {
    /// Starts the first build; each next one starts when the previous one has ended. They run at the lowest
    /// priority, so that the current step is hardly slower.
    pub(crate) fn begin(builds: Vec<Command>) -> Self {
        let left = builds.iter().rev().map(at_lowest_priority).collect();
        let builds = Arc::new(Mutex::new(Builds { left, running: None }));
        let of_thread = Arc::clone(&builds);
        thread::spawn(move || {
            while lock(&of_thread).advance() {
                thread::sleep(LOOKS_EVERY);
            }
        });
        Self { builds }
    }
}

impl Drop for BackgroundBuilds {
    fn drop(&mut self) {
        let mut builds = lock(&self.builds);
        builds.left.clear();
        if let Some(mut running) = builds.running.take() {
            // The process may have ended by itself.
            let _ = running.kill();
            let _ = running.wait();
        }
    }
}

impl Builds {
    /// Starts the next build if none runs. Returns `false` once all have ended.
    fn advance(&mut self) -> bool {
        let runs = |child: &mut Child| child.try_wait().is_ok_and(|ended| ended.is_none());
        if self.running.as_mut().is_some_and(runs) {
            return true;
        }
        self.running = None;
        let Some(mut next) = self.left.pop() else { return false };
        self.running = next.spawn().ok();
        true
    }
}

fn lock(builds: &Mutex<Builds>) -> MutexGuard<'_, Builds> {
    builds.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The same command under `nice`, with its output discarded.
fn at_lowest_priority(command: &Command) -> Command {
    let mut nice = Command::new("nice");
    nice.args(["-n", "19"]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => nice.env(name, value),
            None => nice.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        nice.current_dir(folder);
    }
    nice.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    nice
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Instant;

    use super::*;
    use crate::paths;

    fn shell(folder: &Path, script: &str) -> Command {
        let mut command = Command::new("sh");
        command.current_dir(folder).env("SAID", "this").args(["-c", script]);
        command
    }

    #[test]
    fn failed_build_does_not_stop_the_next_and_none_starts_after_drop() {
        let folder = paths::fresh("test-ahead").expect("a folder");
        let begun = Instant::now();
        let ahead = BackgroundBuilds::begin(vec![
            shell(&folder, "echo $SAID > first; exit 1"),
            shell(&folder, "cp first second; sleep 60"),
            shell(&folder, "touch third"),
        ]);
        while !folder.join("second").exists() {
            thread::sleep(Duration::from_millis(10));
        }
        drop(ahead);
        assert!(begun.elapsed() < Duration::from_secs(30), "what runs is ended");
        thread::sleep(3 * LOOKS_EVERY);
        assert_eq!(std::fs::read_to_string(folder.join("first")).expect("said"), "this\n");
        assert!(!folder.join("third").exists());
        paths::fresh("test-ahead").expect("cleared");
    }
}
