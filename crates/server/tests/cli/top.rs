//! `postroad top`: for scripts, and on a terminal.

use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Instant;

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Termios, Winsize, tcgetattr, tcsetwinsize};
use serde_json::Value;
use tasks::Task;

use crate::harness::{Broker, PATIENCE, eventually, postroad, run, seq, serve, wait};

/// Three topics, one of them a queue, and a group whose name has control characters.
fn at_work() -> Broker {
    let broker = Broker::start();
    for topic in ["orders", "audit"] {
        broker.run(&["topic", "create", topic, "-p", "2"]).ok();
    }
    broker.run(&["queue", "declare", "work", "-p", "1"]).ok();
    broker.feed(&["produce", "work"], seq(1..=5)).ok();
    broker.feed(&["produce", "orders"], seq(1..=20)).ok();
    broker.run(&["consume", "orders", "--group", EVIL, "-n", "20"]).ok();
    broker.feed(&["produce", "orders"], seq(1..=7)).ok();
    broker
}

const EVIL: &str = "read\u{1b}[2Jers\u{9b}31m";

fn names<'a>(overview: &'a Value, table: &str, key: &str) -> Vec<&'a str> {
    let rows = overview["rows"][table].as_array().expect("rows");
    rows.iter().map(|row| row[key].as_str().expect("a name")).collect()
}

#[test]
fn scripts_read_a_line_of_json_for_each_look() {
    let broker = at_work();
    let looks = ["top", "-o", "json", "--count", "3", "--every", "500ms", "--sort", "backlog"];
    let watching = broker.spawn(&looks);
    let look = |line: String| serde_json::from_str::<Value>(&line).expect("a line is a document");
    let first = look(watching.line());
    assert_eq!(names(&first, "topics", "topic"), ["orders", "work", "audit"]);
    assert_eq!(first["rows"]["topics"][0]["backlog"], 7, "{first}");
    assert_eq!(first["rows"]["topics"][1]["backlog"], 5, "{first}");
    assert_eq!((&first["matching"], &first["totals"]["queues"]), (&3.into(), &1.into()));
    assert_eq!(first["totals"]["ready"], 5);
    assert_eq!(first["rates"]["records_in"], 0.0, "{first}");
    assert!(first["node"]["processors"].is_number() && first["over_ms"].is_number(), "{first}");
    assert_eq!(first["nodes"][0]["live"], true);
    broker.feed(&["produce", "audit"], seq(1..=50)).ok();
    // The new records count in one of the two following looks, or arrive between this look and them.
    let came = [look(watching.line()), look(watching.line())];
    let of_audit = |overview: &Value| {
        let rows = overview["rows"]["topics"].as_array().expect("rows");
        let row = rows.iter().find(|row| row["topic"] == "audit").expect("it is there");
        (row["records"].as_u64().expect("a number"), row["records_in"].as_f64().expect("a rate"))
    };
    let said = watching.end();
    assert_eq!((said.code, said.out.as_str(), said.err.as_str()), (Some(0), "", ""));
    for overview in came.iter().filter(|overview| of_audit(overview).1 > 0.0) {
        assert_eq!(of_audit(overview).0, 50);
    }

    let groups = ["top", "-o", "json", "--count", "1", "--table", "groups", "--sort", "lag"];
    let said = broker.run(&groups).ok();
    assert!(!said.trim_end().chars().any(char::is_control), "{said:?}");
    let groups: Value = serde_json::from_str(&said).expect("one document");
    assert_eq!(names(&groups, "groups", "group"), [EVIL]);
    let row = &groups["rows"]["groups"][0];
    assert_eq!((&row["backlog"], &row["topic"]), (&7.into(), &"orders".into()));
    assert!(row["age_seconds"].as_f64().is_some_and(|age| age > 0.0), "{row}");
}

#[test]
fn text_has_the_requested_rows_without_control_characters() {
    let broker = at_work();
    let once =
        |more: &[&str]| broker.run(&[&["top", "--count", "1", "-o", "text"], more].concat()).ok();
    let text = once(&["--filter", "OR", "--sort", "name", "--rows", "1"]);
    assert!(text.starts_with("postroad ") && text.contains("waiting 5 (ready 5"), "{text}");
    assert!(text.contains("\n1 of 2 topics\nTOPIC "), "{text}");
    assert_eq!(text.lines().last().and_then(|line| line.split(' ').next()), Some("orders"));
    let text = once(&["--table", "queues", "--sort", "age"]);
    assert!(text.contains("\n1 queue\nQUEUE "), "{text}");
    let text = once(&["--table", "groups"]);
    assert!(text.contains("read\\u{1b}[2Jers\\u{9b}31m"), "{text}");
    assert!(!text.chars().any(|it| it.is_control() && it != '\n'), "{text:?}");
    for (wrong, words) in [
        (&["--sort", "age"][..], &["topics have no age"][..]),
        (&["--every", "100ms"], &["500ms to 1h"]),
        (&["--rows", "501"], &["1..=500"]),
    ] {
        let said = broker.run(&[&["top", "--count", "1"], wrong].concat());
        let code = said.code.expect("it ends by itself");
        said.fails(code, words);
    }
}

/// The task waits for a minute without looks, so the panic is injected before.
#[test]
fn panic_of_the_task_that_drops_counts_affects_no_client() {
    let folder = tempfile::tempdir().expect("a folder");
    let (data, trigger) = (folder.path().join("data"), folder.path().join("panic"));
    let mut serving = serve(&data);
    let injection = format!("{}:{}", Task::OverviewEnd.name(), trigger.display());
    serving.env(tasks::inject::VARIABLE, injection);
    let broker = Broker::start_with(serving, &data);
    let look = || broker.run(&["top", "--count", "1", "-o", "json"]).ok();
    look();
    std::fs::write(&trigger, "").expect("a file");
    eventually("it panics", || !trigger.exists());
    look();
    let (status, log) = broker.terminate();
    assert!(log.contains("injected into overview-end"), "{log}");
    assert_eq!(status.code(), Some(0));
}

// --------------------------------------------------------------------------------- on a terminal

/// A pseudo terminal with a command on it.
struct OnTerminal {
    child: Child,
    control: File,
    terminal: OwnedFd,
    /// The settings before.
    before: Termios,
    output: mpsc::Receiver<Vec<u8>>,
    shown: vt100::Parser,
    /// Whether it ever showed the alternate screen, which a live view uses.
    was_live: bool,
    /// All output.
    said: Vec<u8>,
}

impl OnTerminal {
    fn start(mut command: Command) -> Self {
        let control = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&control).expect("it may be used");
        unlockpt(&control).expect("it may be opened");
        let (rows, columns) = const { (NonZero::new(30).unwrap(), NonZero::new(120).unwrap()) };
        let (ws_row, ws_col) = (rows.get(), columns.get());
        let size = Winsize { ws_row, ws_col, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&control, size).expect("it has a size");
        let name = ptsname(&control, Vec::new()).expect("it has a name");
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let terminal = rustix::fs::open(name, flags, Mode::empty()).expect("it opens");
        let before = tcgetattr(&terminal).expect("it is a terminal");
        let end = || Stdio::from(terminal.try_clone().expect("a handle"));
        let child = command.stdin(end()).stdout(end()).stderr(end()).spawn().expect("it starts");
        drop(command);
        let control = File::from(control);
        let mut reading = control.try_clone().expect("a handle");
        let (sender, output) = mpsc::channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = reading.read(&mut buffer) {
                if sender.send(buffer[..length].to_vec()).is_err() {
                    return;
                }
            }
        });
        let shown = vt100::Parser::new(rows, columns, 0);
        let (was_live, said) = (false, Vec::new());
        Self { child, control, terminal, before, output, shown, was_live, said }
    }

    /// Waits until the terminal's screen matches.
    #[track_caller]
    fn until(&mut self, what: &str, is_so: impl Fn(&vt100::Screen) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_so(self.shown.screen()) {
            let left = deadline.saturating_duration_since(Instant::now());
            let more = self.output.recv_timeout(left);
            let more = more.unwrap_or_else(|_| {
                panic!("never: {what}, but\n{}", self.shown.screen().contents())
            });
            self.shown.process(&more);
            self.was_live |= self.shown.screen().alternate_screen();
            self.said.extend(more);
        }
    }

    #[track_caller]
    fn shows(&mut self, text: &str) {
        self.until(text, |screen| screen.contents().contains(text));
    }

    fn press(&mut self, keys: &str) {
        self.control.write_all(keys.as_bytes()).expect("it is typed");
    }

    fn modes(&self) -> LocalModes {
        tcgetattr(&self.terminal).expect("it is a terminal").local_modes
    }

    /// Waits for the command's end, and checks that it restored the terminal.
    #[track_caller]
    fn ends(&mut self) {
        self.until("the terminal as it was", |screen| {
            !screen.alternate_screen() && !screen.hide_cursor()
        });
        assert!(wait(&mut self.child).success());
        assert_eq!(self.modes(), self.before.local_modes);
        let now = tcgetattr(&self.terminal).expect("it is a terminal");
        assert_eq!(now.input_modes, self.before.input_modes);
        assert_eq!(now.output_modes, self.before.output_modes);
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        // Both fail if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn live_view_on_a_terminal_reacts_to_keys_and_ends_with_q() {
    let broker = at_work();
    let mut top = OnTerminal::start(broker.command(&["top", "--every", "500ms"]));
    top.shows("3 topics by rate");
    top.shows("orders");
    assert!(top.was_live);
    assert!(!top.modes().intersects(LocalModes::ICANON | LocalModes::ECHO), "keys are read alone");
    top.press("g");
    top.shows("read\\u{1b}[2Jers\\u{9b}31m");
    let said = String::from_utf8_lossy(&top.said);
    assert!(!said.contains('\u{9b}') && !said.contains("\u{1b}[2Jers"), "{said:?}");
    top.press("t/aud\r");
    top.shows("1 topic by");
    top.press("?");
    top.shows("any key closes this");
    top.press(" ");
    top.until("no help", |screen| !screen.contents().contains("any key closes this"));
    top.press(" ");
    top.shows("paused");
    top.press("q");
    top.ends();
}

#[test]
fn signal_ends_the_live_view_and_an_unreachable_node_does_not() {
    let broker = at_work();
    let mut top = OnTerminal::start(broker.command(&["top", "--every", "500ms"]));
    top.shows("orders");
    broker.kill();
    top.shows("cannot reach");
    let pid = Pid::from_child(&top.child);
    kill_process(pid, Signal::TERM).expect("it runs");
    top.ends();
}

#[test]
fn user_without_the_right_to_view_the_cluster_gets_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let mut serving = serve(&data);
    std::fs::write(folder.path().join("root"), "secret\n").expect("is written");
    serving.args(["--admin-user", "root", "--admin-password-file"]);
    serving.arg(folder.path().join("root"));
    let broker = Broker::start_with(serving, &data);
    broker.feed(&["user", "add", "app"], "pass\n").ok();
    let top = |more: &[&str]| {
        let mut command = postroad();
        command.args(["top", "--login", "app"]).args(more);
        command.env("POSTROAD_BOOTSTRAP", &broker.address).env("POSTROAD_PASSWORD", "pass");
        command
    };
    run(top(&["--count", "1"]), b"").fails(1, &["who may describe the cluster"]);
    // Also on a terminal, which stays on the normal screen.
    let mut on_terminal = OnTerminal::start(top(&[]));
    on_terminal.shows("who may describe the cluster");
    assert_eq!(wait(&mut on_terminal.child).code(), Some(1));
    assert!(!on_terminal.was_live);
    broker.run(&["acl", "add", "app", "describe", "cluster"]).ok();
    let said = run(top(&["--count", "1", "-o", "json"]), b"");
    assert!(said.json()["node"]["version"].is_string());
}
