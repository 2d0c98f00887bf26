//! Repeated summary of a node for `postroad top`: rates, and the top topics, queues and groups.
//!
//! Two decisions shape it. First, appends and settles count nothing for it: a look reads offsets that the node has
//! anyway, and a rate is the difference to the previous look. Second, a reply is as large as the client's screen: all
//! topics are counted, some at a time, and only the shown rows need further queries.
//!
//! Clients share the counts: the node counts at most once in [`COUNTED_AGAIN_AFTER`], and drops the counts once no
//! client looks any more.
//!
//! * `sample`: the counts
//! * `counting`: counting
//! * `totals`: figures of the node as a whole
//! * `rows`: selection of the shown rows, and queries for them

mod counting;
mod limits;
mod rows;
mod sample;
mod totals;

use std::sync::Arc;
use std::time::Duration;

use base::limits::OVERVIEW_ROWS_MAX;
use broker::{Broker, Unavailable};
use gateway::Connections;
use operations::family::{Effect, OperationAnswer, OperationError, OperationFamily};
use operations::overview::{Operation, Order, Overview, Table, TableQuery};
use parking_lot::Mutex;
use tasks::Task;
use world::Instant;

use self::sample::Sample;

/// Counts are reused for this long.
pub const COUNTED_AGAIN_AFTER: Duration = Duration::from_millis(400);
/// Unused counts are dropped after this time. It is also the longest time that rates cover.
pub const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

/// Figures of the process, from the operating system.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Process {
    pub cpu_seconds: f64,
    /// `None`: the operating system does not report it.
    pub resident_bytes: Option<u64>,
}

/// Facts about a node that the broker does not know.
#[derive(Clone, Debug)]
pub struct Host {
    pub version: &'static str,
    pub started: Instant,
    pub connections: Connections,
    pub process: fn() -> Process,
}

/// Serves looks at the node.
#[derive(Debug)]
pub struct Overviews {
    broker: Broker,
    host: Host,
    counted: Arc<SampleCache>,
}

/// The last counts.
#[derive(Debug, Default)]
struct SampleCache {
    /// One task counts; concurrent callers wait and share the result.
    counting: tokio::sync::Mutex<()>,
    last: Mutex<Option<Arc<Sample>>>,
}

impl Overviews {
    pub fn new(broker: Broker, host: Host) -> Self {
        Self { broker, host, counted: Arc::default() }
    }

    /// Serves one query.
    pub async fn overview(&self, query: TableQuery) -> Result<Overview, OperationError> {
        if !(1..=OVERVIEW_ROWS_MAX).contains(&(query.rows_max as usize)) {
            let rows = query.rows_max;
            let words = format!("an overview has 1 to {OVERVIEW_ROWS_MAX} rows, not {rows}");
            return Err(OperationError::Invalid(words));
        }
        if query.table == Table::Topics && query.order == Order::Age {
            let words = "topics have no age to be sorted by; queues and groups have".to_owned();
            return Err(OperationError::Invalid(words));
        }
        let sample = self.sample().await.map_err(unavailable)?;
        let (rows, matching) = rows::of(&self.broker, &sample, &query).await?;
        let broker = &self.broker;
        Ok(Overview {
            at_ms: broker.clock().now_ms(),
            over_ms: sample.over.map(|over| over.as_millis() as u64),
            node: totals::node(broker, &self.host, &sample),
            nodes: totals::members(broker),
            alarms: totals::alarms(broker),
            totals: totals::of(broker, &sample).await,
            rates: totals::rates(&sample),
            matching,
            rows,
            cut: sample.cut,
            counted_in_micros: sample.took.as_micros() as u64,
        })
    }

    /// The recent counts, or new ones.
    async fn sample(&self) -> Result<Arc<Sample>, Unavailable> {
        let _one_at_a_time = self.counted.counting.lock().await;
        let last = self.counted.last.lock().clone();
        if let Some(last) = &last
            && last.at.elapsed() < COUNTED_AGAIN_AFTER
        {
            return Ok(Arc::clone(last));
        }
        let before = last.filter(|last| last.at.elapsed() < FORGOTTEN_AFTER);
        let sample = counting::count(&self.broker, &self.host, before.as_deref()).await?;
        let sample = Arc::new(sample);
        *self.counted.last.lock() = Some(Arc::clone(&sample));
        if before.is_none() {
            let counted = Arc::clone(&self.counted);
            // The task ends by itself once no client looks any more.
            drop(tasks::spawn(Task::OverviewEnd, async move { counted.forgotten().await }));
        }
        Ok(sample)
    }
}

impl SampleCache {
    /// Drops the counts once they are unused for long, then returns.
    async fn forgotten(&self) {
        loop {
            let Some(age) = self.last.lock().as_ref().map(|last| last.at.elapsed()) else { return };
            tokio::time::sleep(FORGOTTEN_AFTER.saturating_sub(age)).await;
            let mut last = self.last.lock();
            if last.as_ref().is_none_or(|last| last.at.elapsed() >= FORGOTTEN_AFTER) {
                *last = None;
                return;
            }
        }
    }
}

impl OperationFamily for Overviews {
    /// The reply names topics and groups of all users, so the caller needs permission to view the cluster.
    fn effect(&self, operation: &[u8]) -> Effect {
        match serde_json::from_slice::<Operation>(operation) {
            Ok(_) => Effect::Look,
            Err(_) => Effect::Change(String::new()),
        }
    }

    fn carry_out(&self, operation: Vec<u8>) -> OperationAnswer<'_> {
        Box::pin(async move {
            let Operation::Look(look) = serde_json::from_slice(&operation).map_err(|error| {
                OperationError::Invalid(format!("the document is no operation: {error}"))
            })?;
            let overview = self.overview(look).await?;
            serde_json::to_vec(&overview)
                .map_err(|error| OperationError::Failed(format!("the answer is no JSON: {error}")))
        })
    }
}

fn unavailable(why: Unavailable) -> OperationError {
    OperationError::Unavailable(why.to_string())
}
