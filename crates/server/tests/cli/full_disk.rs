//! The real binary on a full file system.

use std::path::Path;
use std::process::Command;

use crate::harness::{Broker, eventually, serve};

/// `serve` with its data on its own file system of 160 MB, which is unmounted when it ends. `None` if this user may not
/// mount, not even in a separate namespace.
fn serve_on_small_disk(data: &Path) -> Option<Command> {
    let namespace = ["--user", "--map-root-user", "--mount"];
    let allowed = Command::new("unshare").args(namespace).arg("true").status();
    if !allowed.is_ok_and(|status| status.success()) {
        eprintln!("skipped: unshare cannot make a namespace here");
        return None;
    }
    let inner = serve(data);
    let mut command = Command::new("unshare");
    let mount = r#"mount -t tmpfs -o size=160m tmpfs "$0" && exec "$@""#;
    command.args(namespace).args(["sh", "-c", mount]).arg(data);
    command.arg(inner.get_program()).args(inner.get_args()).args(["--disk-reserve", "24MiB"]);
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    Some(command)
}

#[test]
fn full_disk_rejects_only_records_and_recovers_by_itself() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let data = folder.path().join("data");
    std::fs::create_dir(&data).expect("a folder");
    let Some(mut command) = serve_on_small_disk(&data) else { return };
    command.stdin(std::process::Stdio::null());
    let broker = Broker::start_with(command, &data);
    broker.run(&["topic", "create", "kept"]).ok();
    broker.feed(&["produce", "kept"], "one\ntwo\n").ok();
    broker.run(&["topic", "create", "large", "--partitions", "4"]).ok();

    let line = "x".repeat(20_000) + "\n";
    let too_much = line.repeat(10_000);
    let refused = broker.feed(&["produce", "large"], &too_much);
    assert_ne!(refused.code, Some(0), "200 MB fit on 160");
    assert!(refused.err.contains("disk"), "it says why: {}", refused.err);
    assert!(refused.err.contains("waiting to send again"), "and while it waits: {}", refused.err);

    assert_eq!(broker.run(&["consume", "kept"]).ok(), "one\ntwo\n");
    assert_eq!(broker.run(&["consume", "kept", "-g", "app"]).ok(), "one\ntwo\n");
    assert_eq!(broker.run(&["consume", "kept", "-g", "app"]).ok(), "", "commits are taken");
    broker.run(&["topic", "create", "small"]).ok();

    broker.run(&["topic", "delete", "large"]).ok();
    eventually("records are taken again", || {
        broker.feed(&["produce", "kept"], "three\n").code == Some(0)
    });
    let all = broker.run(&["consume", "kept"]).ok();
    assert!(all.starts_with("one\ntwo\nthree\n"), "{all}");
    let (status, log) = broker.terminate();
    assert_eq!(status.code(), Some(0), "{log}");
}
