//! Waits because of quotas, for metrics: by protocol and quota, since these are few.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use access_rules::quota::Quota;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    Kafka,
    Amqp,
    Http,
}

impl Protocol {
    const ALL: [Self; 3] = [Self::Kafka, Self::Amqp, Self::Http];

    /// Name of the protocol in the connection list.
    pub fn word(self) -> &'static str {
        match self {
            Self::Kafka => "kafka",
            Self::Amqp => "amqp",
            Self::Http => "http",
        }
    }

    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.word() == word)
    }
}

#[derive(Debug, Default)]
struct Counters {
    times: AtomicU64,
    nanos: AtomicU64,
}

/// Counters since the node started.
#[derive(Debug, Default)]
pub(crate) struct Throttled {
    by_protocol: [[Counters; Quota::ALL.len()]; Protocol::ALL.len()],
    waiting: [AtomicU64; Protocol::ALL.len()],
}

/// Counters of one protocol.
#[derive(Clone, PartialEq, Debug)]
pub struct ThrottledSeen {
    pub protocol: &'static str,
    /// Connections that wait at this moment.
    pub waiting: u64,
    /// By quota: number of waits and their total duration.
    pub by_quota: Vec<(&'static str, u64, Duration)>,
}

impl Throttled {
    pub(crate) fn add(&self, protocol: Protocol, quota: Quota, wait: Duration) {
        let counters = &self.by_protocol[protocol as usize][quota.place()];
        counters.times.fetch_add(1, Ordering::Relaxed);
        let nanos = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
        counters.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// Counts a connection as waiting while the guard is held.
    pub(crate) fn waits(&self, protocol: Protocol) -> ThrottledGuard<'_> {
        let waiting = &self.waiting[protocol as usize];
        waiting.fetch_add(1, Ordering::Relaxed);
        ThrottledGuard(waiting)
    }

    pub(crate) fn seen(&self) -> Vec<ThrottledSeen> {
        let of = |protocol: Protocol| {
            let by_quota = Quota::ALL.into_iter().map(|quota| {
                let counters = &self.by_protocol[protocol as usize][quota.place()];
                let nanos = counters.nanos.load(Ordering::Relaxed);
                let times = counters.times.load(Ordering::Relaxed);
                (quota.word(), times, Duration::from_nanos(nanos))
            });
            ThrottledSeen {
                protocol: protocol.word(),
                waiting: self.waiting[protocol as usize].load(Ordering::Relaxed),
                by_quota: by_quota.collect(),
            }
        };
        Protocol::ALL.into_iter().map(of).collect()
    }
}

#[derive(Debug)]
pub(crate) struct ThrottledGuard<'a>(&'a AtomicU64);

impl Drop for ThrottledGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
