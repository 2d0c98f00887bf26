//! Concurrent pieces of work, on machines of any size.

use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;

use crate::failure::Outcome;

/// Number of concurrent pieces on a small machine. A large one runs one for every four cores, since each piece
/// starts threads and servers of its own.
const AT_ONCE_MIN: usize = 2;
const CORES_EACH: usize = 4;

/// Number of test binaries, or client families, that this machine runs at once.
pub(crate) fn at_once() -> usize {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    AT_ONCE_MIN.max(cores / CORES_EACH)
}

/// Runs `work` on each piece, `at_once` of them concurrently, and passes each result to `done` as soon as it is
/// there. After an error of `done` no more pieces are started.
pub(crate) fn side_by_side<I: Send, T: Send>(
    pieces: Vec<I>,
    at_once: usize,
    work: impl Fn(I) -> T + Sync,
    mut done: impl FnMut(T) -> Outcome,
) -> Outcome {
    let waiting = Mutex::new(pieces.into_iter());
    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
    let (ends, ended) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..at_once.max(1) {
            let ends = ends.clone();
            let (next, work) = (&next, &work);
            scope.spawn(move || {
                while let Some(piece) = next() {
                    if ends.send(work(piece)).is_err() {
                        break;
                    }
                }
            });
        }
        drop(ends);
        ended.into_iter().try_for_each(&mut done)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::failure::Failure;

    #[test]
    fn pieces_run_concurrently_and_each_result_is_reported() {
        // Each piece waits for another one, so that one at a time would hang.
        let pair = Barrier::new(2);
        let mut told = Vec::new();
        let work = |n: u32| {
            pair.wait();
            n
        };
        side_by_side((0..10).collect(), 2, work, |n| {
            told.push(n);
            Ok(())
        })
        .expect("nothing fails");
        told.sort_unstable();
        assert_eq!(told, (0..10).collect::<Vec<_>>());
    }

    #[test]
    fn no_piece_starts_after_a_failure() {
        let begun = AtomicUsize::new(0);
        let work = |_| begun.fetch_add(1, Ordering::Relaxed);
        let told = side_by_side((0..1_000_000).collect::<Vec<u32>>(), 1, work, |_| {
            Err(Failure::new("broken"))
        });
        assert_eq!(told.err().map(|failure| failure.to_string()).as_deref(), Some("broken"));
        assert!(begun.load(Ordering::Relaxed) < 1_000_000);
    }
}
