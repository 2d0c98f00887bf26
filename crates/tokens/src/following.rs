//! Schedule of reading an issuer's keys: at the start, periodically, and when a token names an unknown key.
//!
//! One task reads. A caller with such a token wakes it and waits for the outcome. Reads are rate-limited, so that
//! tokens with invented key names cost the issuer nothing. A failed read leaves the keys unchanged.

use std::sync::Arc;
use std::time::Duration;

use crate::limits::TOKEN_KEYS_READ_WITHIN;
use parking_lot::RwLock;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use world::World;

use crate::keys::Keys;
use crate::options::TokenOptions;
use crate::source;

/// Retry interval while a node has no keys yet, or after a failed read.
const TRIES_AGAIN_AFTER: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) struct FollowedKeys {
    current: RwLock<Arc<Keys>>,
    asked: Notify,
    /// Number of finished reads, successful or not, and time of the last one.
    read: watch::Sender<(u64, Option<Instant>)>,
    at_most_every: Duration,
}

impl FollowedKeys {
    pub(crate) fn new(options: &TokenOptions) -> Self {
        Self {
            current: RwLock::default(),
            asked: Notify::new(),
            read: watch::Sender::new((0, None)),
            at_most_every: options.read_at_most_every,
        }
    }

    pub(crate) fn current(&self) -> Arc<Keys> {
        Arc::clone(&self.current.read())
    }

    #[cfg(any(test, fuzzing))]
    pub(crate) fn set_keys(&self, keys: Keys) {
        *self.current.write() = Arc::new(keys);
    }

    /// Triggers a read of the keys, unless the last one was a moment ago. False: no read took place.
    pub(crate) async fn refresh(&self) -> bool {
        let mut read = self.read.subscribe();
        let (count, at) = *read.borrow_and_update();
        if at.is_some_and(|at| at.elapsed() < self.at_most_every) {
            return false;
        }
        self.asked.notify_one();
        let again = read.wait_for(|(now, _)| *now != count);
        // Connecting and reading each have their own timeout.
        matches!(timeout(TOKEN_KEYS_READ_WITHIN * 2, again).await, Ok(Ok(_)))
    }

    /// Reads the keys periodically until the node stops.
    pub(crate) async fn follow(
        &self,
        options: &TokenOptions,
        world: &World,
        mut stopping: watch::Receiver<bool>,
    ) {
        // A lasting error is logged once, not at each try.
        let mut said = None;
        loop {
            let read = source::read(&options.keys, world.net, &world.workers);
            let read = tokio::select! {
                biased;
                _ = stopping.wait_for(|stopping| *stopping) => return,
                read = read => read,
            };
            let again_after = match read {
                Ok(keys) => {
                    tracing::debug!(keys = keys.len(), "the keys of tokens were read");
                    *self.current.write() = Arc::new(keys);
                    said = None;
                    options.read_every
                }
                Err(error) => {
                    let error = error.to_string();
                    if said.as_ref() != Some(&error) {
                        tracing::error!(
                            error,
                            "the keys of tokens cannot be read; the keys that were read before stay valid"
                        );
                        said = Some(error);
                    }
                    TRIES_AGAIN_AFTER.min(options.read_every)
                }
            };
            let now = Instant::now();
            self.read.send_modify(|(count, at)| (*count, *at) = (*count + 1, Some(now)));
            tokio::select! {
                biased;
                _ = stopping.wait_for(|stopping| *stopping) => return,
                () = sleep(again_after) => {}
                () = self.asked.notified() => {}
            }
            let soonest = sleep_until(now + self.at_most_every);
            tokio::select! {
                biased;
                _ = stopping.wait_for(|stopping| *stopping) => return,
                () = soonest => {}
            }
        }
    }
}
