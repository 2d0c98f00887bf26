//! Exit of a process after the failure of a part. Each case runs in its own process: this test binary, started for one
//! case.

#![expect(clippy::disallowed_types, reason = "it measures the time of processes")]

use std::process::{Command, Output};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use tasks::{Failure, Task, exit};

const CASE: &str = "TASKS_TEST_CASE";
const ENDS_WITHIN: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a case. Returns its output and its duration.
fn run(case: &str) -> (Output, Duration) {
    let this = std::env::current_exe().expect("a test is a program");
    let mut command = Command::new(this);
    command.args(["--exact", "in_a_process_of_its_own", "--nocapture"]).env(CASE, case);
    let began = Instant::now();
    let output = command.output().expect("it runs");
    (output, began.elapsed())
}

#[track_caller]
fn ends(case: &str, words: &[&str]) {
    let (output, took) = run(case);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(exit::EXIT_CODE), "{said}");
    for word in words {
        assert!(said.contains(word), "no {word:?} in: {said}");
    }
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(!out.contains("went on"), "{out}");
    assert!(took <= ENDS_WITHIN + Duration::from_secs(2), "with its start: {took:?}");
}

#[test]
fn in_a_process_of_its_own() {
    let Ok(case) = std::env::var(CASE) else { return };
    exit::on_failure().expect("a thread");
    match case.as_str() {
        "reported" => {
            Failure::new().report("the disk is gone");
            println!("went on");
        }
        "half changed" => half_changed(),
        "in no task" => {
            let _ = thread::spawn(|| panic!("no soup")).join();
            println!("went on");
        }
        "several at once" => {
            for number in 0..8 {
                let _ = tasks::thread(
                    Task::JournalReader,
                    format!("reader {number}"),
                    || panic!("no soup"),
                    || println!("went on"),
                );
            }
            thread::sleep(PATIENCE);
        }
        "a busy runtime" => {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .enable_all()
                .build()
                .expect("a runtime");
            runtime.block_on(async {
                // Blocks the runtime: neither a timer nor a task that waits for a failure runs from now on.
                tasks::spawn(Task::KafkaSession, async { thread::sleep(PATIENCE) });
                let failing = || panic!("no soup");
                let _ = tasks::thread(Task::JournalWriter, "journal".into(), failing, || {});
                std::future::pending::<()>().await;
            });
        }
        "a session" => {
            let runtime = tokio::runtime::Builder::new_current_thread().build();
            runtime.expect("a runtime").block_on(async {
                let mut sessions = tasks::Set::default();
                sessions.spawn(Task::AmqpSession, async { panic!("no soup") });
                let ended = sessions.join_next().await.expect("one of them");
                assert!(ended.is_err_and(|error| error.is_panic()));
            });
            println!("the others go on");
        }
        other => panic!("no case {other}"),
    }
}

/// A thread panics under a lock; a thread that waits for the lock never gets it.
fn half_changed() {
    let state = Arc::new(Mutex::new((0, 0)));
    let (changed, locked) = (Arc::clone(&state), Arc::new(std::sync::Barrier::new(2)));
    let waiting = Arc::clone(&locked);
    let change = move || {
        let mut state = changed.lock().expect("no thread has panicked yet");
        state.0 += 1;
        waiting.wait();
        panic!("between two halves");
    };
    let _ = tasks::thread(Task::Apply, "apply".into(), change, || println!("went on"));
    locked.wait();
    let read = state.lock().map_or_else(|poisoned| *poisoned.into_inner(), |state| *state);
    println!("went on and read {read:?}");
}

#[test]
fn reported_failure_ends_the_process_with_its_reason() {
    let advice = "Start it again: everything acknowledged is on disk.";
    ends("reported", &["postroad: the disk is gone. The process ends now with code 2", advice]);
}

#[test]
fn state_half_changed_by_a_panic_is_never_read() {
    ends("half changed", &["apply panicked: between two halves", "tests/exit.rs:"]);
}

#[test]
fn code_outside_any_task_counts_as_vital() {
    ends("in no task", &["an unknown task panicked: no soup"]);
}

#[test]
fn only_one_of_several_failures_is_reported() {
    ends("several at once", &["journal-reader panicked: no soup"]);
    let (output, _) = run("several at once");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said.matches("The process ends now").count(), 1, "{said}");
}

#[test]
fn blocked_runtime_does_not_delay_the_exit() {
    ends("a busy runtime", &["journal-writer panicked: no soup"]);
}

#[test]
fn a_panic_in_a_session_does_not_end_the_process() {
    let (output, _) = run("a session");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("the others go on"));
}
