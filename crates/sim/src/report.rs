//! What a run did: the numbers that are printed when it held.

use std::fmt;

/// What a run did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    pub lives: u32,
    pub crashes: u32,
    /// Simulated.
    pub seconds: f64,
    /// Acknowledged records of the logs, and jobs.
    pub records: usize,
    pub jobs: usize,
    /// Confirmed messages of AMQP's clients.
    pub messages: usize,
    pub delivered: u64,
    pub settled: u64,
    /// Records that members of groups read, and commits that were taken.
    pub read: u64,
    pub commits: u64,
    /// Lives that began with changes of the catalog that the other shard had not.
    pub behind: u32,
    /// The longest wait of a client while nothing failed.
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
