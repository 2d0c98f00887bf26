//! A node at a glance, again and again: rates, and the topics, queues and groups at the top of a list. `postroad top`
//! asks for it.
//!
//! Two decisions shaped it. Nothing is counted for it while records come and go: who looks makes the node read the
//! offsets that it has anyway, and a rate is the difference to the look before. And an answer is as large as the screen of whoever asked:
//! all topics are counted, some at a time, and only what is shown is asked for more.
//!
//! What was counted is shared: however many look, the node counts once in [`COUNTED_AGAIN_AFTER`]; and it is
//! forgotten once nobody looks any more.
//!
//! * `sample`: what is counted
//! * `counting`: counting it
//! * `totals`: of the node as a whole
//! * `rows`: which of it is shown, and what is asked of those

mod counting;
mod rows;
mod sample;
mod totals;

use std::sync::Arc;
use std::time::Duration;

use base::limits::OVERVIEW_ROWS_MAX;
use broker::operations::{Effect, OperationAnswer, OperationError, OperationFamily};
use broker::{Broker, Unavailable};
use gateway::Connections;
use operations::overview::{Look, Operation, Order, Overview, Table};
use parking_lot::Mutex;
use tasks::Task;
use world::Instant;

use self::sample::Sample;

/// What was counted is not counted again within this.
pub const COUNTED_AGAIN_AFTER: Duration = Duration::from_millis(400);
/// What was counted is forgotten after this, and there are no rates over longer.
pub const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

/// What the machine says of the process.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Process {
    pub cpu_seconds: f64,
    /// `None`: the machine does not say.
    pub resident_bytes: Option<u64>,
}

/// What a node is to those who look, besides what the broker knows.
#[derive(Clone, Debug)]
pub struct Host {
    pub version: &'static str,
    pub started: Instant,
    pub connections: Connections,
    pub process: fn() -> Process,
}

/// Answers whoever looks.
#[derive(Debug)]
pub struct Overviews {
    broker: Broker,
    host: Host,
    counted: Arc<Counted>,
}

/// What was counted last.
#[derive(Debug, Default)]
struct Counted {
    /// One counts; who comes meanwhile waits and takes what was counted.
    counting: tokio::sync::Mutex<()>,
    last: Mutex<Option<Arc<Sample>>>,
}

impl Overviews {
    pub fn new(broker: Broker, host: Host) -> Self {
        Self { broker, host, counted: Arc::default() }
    }

    /// A look at the node.
    pub async fn look(&self, look: Look) -> Result<Overview, OperationError> {
        if !(1..=OVERVIEW_ROWS_MAX).contains(&(look.rows_max as usize)) {
            let rows = look.rows_max;
            let words = format!("a look has 1 to {OVERVIEW_ROWS_MAX} rows, not {rows}");
            return Err(OperationError::Invalid(words));
        }
        if look.table == Table::Topics && look.order == Order::Age {
            let words = "topics have no age to be sorted by; queues and groups have".to_owned();
            return Err(OperationError::Invalid(words));
        }
        let sample = self.sample().await.map_err(unavailable)?;
        let (rows, matching) = rows::of(&self.broker, &sample, &look).await?;
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

    /// What was counted a moment ago, or is counted now.
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
            // It ends by itself once nobody looks.
            drop(tasks::spawn(Task::OverviewEnd, async move { counted.forgotten().await }));
        }
        Ok(sample)
    }
}

impl Counted {
    /// Returns once nobody has looked for long, and what was counted is forgotten.
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
    /// Names of all topics and groups are among what is shown, so whoever looks may see the cluster.
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
            let overview = self.look(look).await?;
            serde_json::to_vec(&overview)
                .map_err(|error| OperationError::Failed(format!("the answer is no JSON: {error}")))
        })
    }
}

fn unavailable(why: Unavailable) -> OperationError {
    OperationError::Unavailable(why.to_string())
}
