//! The result of a run: the numbers that are printed when no invariant was violated.

use std::fmt;

/// The result of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    pub lives: u32,
    pub crashes: u32,
    /// Simulated time.
    pub seconds: f64,
    /// Acknowledged records of the logs, and jobs.
    pub records: usize,
    pub jobs: usize,
    /// Confirmed messages of AMQP's clients.
    pub messages: usize,
    pub delivered: u64,
    pub settled: u64,
    /// Records that members of groups read, and accepted commits.
    pub read: u64,
    pub commits: u64,
    /// Lives that began with catalog changes that the other shard had not adopted.
    pub behind: u32,
    /// The longest wait of a client without faults.
    pub longest_ms: u64,
    pub lines: u64,
    pub hash: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            lives,
            crashes,
            seconds,
            records,
            jobs,
            messages,
            delivered,
            settled,
            read,
            commits,
            behind,
            longest_ms,
            lines,
            ..
        } = self;
        write!(
            f,
            "{seconds:.1} simulated seconds, {lives} lives, {crashes} crashes; acknowledged: {records} \
             records, {jobs} jobs, {messages} messages; {delivered} deliveries, {settled} settled; \
             {read} read, {commits} commits; {behind} lives behind the catalog; longest wait \
             {longest_ms} ms; {lines} lines of trace"
        )
    }
}
