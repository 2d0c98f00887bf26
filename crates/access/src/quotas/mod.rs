//! Quotas: rates of produced, consumed and changed data for each client, by Kafka's names and rules (KIP-13, KIP-257,
//! KIP-546, KIP-599, KIP-612), for every protocol.
//!
//! Quotas are one document, which memory follows as it does the rules. As in Kafka, each node enforces them for
//! itself, so that a client of three nodes has three times as much. A client over its quota is served and owes the
//! difference as time, which its protocol enforces: Kafka's connections are throttled and muted, AMQP's are not read,
//! HTTP responds 429.
//!
//! Without quotas, a request costs one load of a counter.
//!
//! * [`alteration`]: changes of quotas; `resolution`: the quota that applies to a client
//! * [`filter`]: selects the listed quotas
//! * [`bucket`]: remaining credit; [`meter`]: charges a session
//! * [`throttled`]: waits, for metrics
//! * `storage`: the document

pub mod alteration;
pub mod bucket;
pub mod filter;
pub mod meter;
mod resolution;
mod storage;
pub mod throttled;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use access_rules::quota::{Entity, Quota, Values};
use base::HashMap;
use broker::{Broker, DocumentChanges, DocumentWatch, ExecuteError};
use documents::StoreError;
use parking_lot::{Mutex, RwLock};
use tasks::Task;
use tokio::sync::watch;
use world::Instant;

use crate::error::OpenError;
use crate::limits::{QUOTA_BUCKETS_MIN, QUOTAS_MAX};
pub use alteration::Alteration;
use bucket::Bucket;
pub use filter::{Component, Filter, Match};
pub use meter::{Meter, QuotaClient};
use throttled::Throttled;
pub use throttled::{Protocol, ThrottledSeen};

/// A full burst is available from the start.
const BEGIN_NANOS: u64 = bucket::BURST_NANOS;

/// All quotas, keyed by entity.
pub type Table = BTreeMap<Entity, Values>;

#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum QuotaError {
    #[error("{0}")]
    Invalid(String),
    #[error("there would be quotas of more than {QUOTAS_MAX} users, clients and addresses")]
    TooMany,
    #[error("this node keeps no quotas")]
    NotKept,
    #[error("it could not be stored: {0}")]
    Storage(#[from] StoreError),
    #[error("{0}")]
    Unreadable(String),
}

impl From<OpenError> for QuotaError {
    fn from(error: OpenError) -> Self {
        Self::Unreadable(error.to_string())
    }
}

/// The quotas of a node. Clones share them; by default there are none, and none can be set.
#[derive(Clone, Debug)]
pub struct Quotas(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    broker: Option<Broker>,
    /// Origin of the clock; its value is [`BEGIN_NANOS`].
    origin: Instant,
    table: RwLock<Arc<Table>>,
    /// Changes with each change of the quotas; 0 while none is set.
    stamp: AtomicU64,
    changed: watch::Sender<()>,
    documents: Mutex<Option<DocumentWatch>>,
    buckets: Mutex<Buckets>,
    throttled: Throttled,
}

/// Key of a shared bucket. As in Kafka, a quota of a user is shared by all its clients, and a quota of a client by
/// all its users.
type Shared = (Quota, Option<Arc<str>>, Option<Arc<str>>);

#[derive(Debug)]
struct Buckets {
    by_sharer: HashMap<Shared, Arc<Bucket>>,
    /// Number of buckets at which unused ones are swept.
    swept_at: usize,
}

impl Default for Quotas {
    fn default() -> Self {
        Self::of(None, None)
    }
}

impl Quotas {
    fn of(broker: Option<Broker>, documents: Option<DocumentWatch>) -> Self {
        Self(Arc::new(Inner {
            broker,
            origin: Instant::now(),
            table: RwLock::default(),
            stamp: AtomicU64::new(0),
            changed: watch::Sender::new(()),
            documents: Mutex::new(documents),
            buckets: Mutex::new(Buckets {
                by_sharer: HashMap::default(),
                swept_at: QUOTA_BUCKETS_MIN,
            }),
            throttled: Throttled::default(),
        }))
    }

    /// Reads the quotas, and follows changes of all nodes.
    pub fn open(broker: Broker) -> Result<Self, OpenError> {
        let documents = broker.watch_documents(&[storage::SPACE]);
        let more = broker.watch_documents(&[storage::SPACE]);
        documents.take();
        let quotas = Self::of(Some(broker.clone()), Some(documents));
        quotas.read()?;
        let following = follow(Arc::downgrade(&quotas.0), more);
        broker.vital(Task::Quotas, following);
        broker.follow_catalog(Arc::downgrade(&quotas.0), |quotas| Quotas(quotas).take_changes());
        Ok(quotas)
    }

    /// All quotas, sorted.
    pub fn table(&self) -> Arc<Table> {
        Arc::clone(&self.0.table.read())
    }

    /// Whether no quotas are set.
    pub fn is_empty(&self) -> bool {
        self.stamp() == 0
    }

    /// Unchanged as long as the quotas are.
    pub(crate) fn stamp(&self) -> u64 {
        self.0.stamp.load(Ordering::Acquire)
    }

    /// Fires when a quota changes.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.0.changed.subscribe()
    }

    /// Waits since the node started, by protocol and quota.
    pub fn throttled(&self) -> Vec<ThrottledSeen> {
        self.0.throttled.seen()
    }

    pub(crate) fn counters(&self) -> &Throttled {
        &self.0.throttled
    }

    pub(crate) fn now_nanos(&self) -> u64 {
        let elapsed = u64::try_from(self.0.origin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        BEGIN_NANOS.saturating_add(elapsed)
    }

    /// Converts a time of [`Quotas::now_nanos`].
    pub(crate) fn instant(&self, nanos: u64) -> Instant {
        self.0.origin + Duration::from_nanos(nanos.saturating_sub(BEGIN_NANOS))
    }

    /// The bucket that a client is charged by, if a quota applies to it.
    pub(crate) fn bucket(&self, quota: Quota, user: &str, client: &str) -> Option<Arc<Bucket>> {
        let table = self.table();
        let (rate, of_user, of_client) = resolution::resolve(&table, quota, user, client)?;
        Some(self.shared(quota, of_user.then_some(user), of_client.then_some(client), rate))
    }

    fn shared(
        &self,
        quota: Quota,
        user: Option<&str>,
        client: Option<&str>,
        rate: f64,
    ) -> Arc<Bucket> {
        let now = self.now_nanos();
        let key = (quota, user.map(Arc::from), client.map(Arc::from));
        let mut buckets = self.0.buckets.lock();
        if buckets.by_sharer.len() >= buckets.swept_at {
            // A client must not lose its debt by a short disconnect.
            buckets
                .by_sharer
                .retain(|_, bucket| Arc::strong_count(bucket) > 1 || !bucket.debt(now).is_zero());
            buckets.swept_at = (buckets.by_sharer.len() * 2).max(QUOTA_BUCKETS_MIN);
        }
        let bucket = buckets.by_sharer.entry(key).or_insert_with(|| Arc::new(Bucket::new(rate)));
        bucket.set_rate(rate, now);
        Arc::clone(bucket)
    }

    /// Counts a connection of this address. `Err`: over the quota; close the connection after this time.
    pub fn connects(&self, address: IpAddr, protocol: Protocol) -> Result<(), Duration> {
        if self.is_empty() {
            return Ok(());
        }
        let address = address.to_canonical();
        let Some(rate) = resolution::resolve_address(&self.table(), address) else { return Ok(()) };
        let text = address.to_string();
        let bucket = self.shared(Quota::ConnectionCreationRate, Some(&text), None, rate);
        let now = self.now_nanos();
        let debt = bucket.debt(now);
        if debt.is_zero() {
            bucket.charge(1, now);
            return Ok(());
        }
        self.0.throttled.add(protocol, Quota::ConnectionCreationRate, debt);
        Err(debt)
    }

    /// Changes quotas; one result for each alteration. `validate_only`: changes nothing.
    pub async fn alter(
        &self,
        alterations: &[Alteration],
        validate_only: bool,
    ) -> Vec<Result<(), QuotaError>> {
        let mut answers: Vec<Result<(), QuotaError>> =
            alterations.iter().map(Alteration::check).collect();
        let good: Vec<&Alteration> = alterations
            .iter()
            .zip(&answers)
            .filter(|(_, it)| it.is_ok())
            .map(|(it, _)| it)
            .collect();
        if good.is_empty() {
            return answers;
        }
        if let Err(error) = self.change(&good, validate_only).await {
            answers.iter_mut().filter(|it| it.is_ok()).for_each(|it| *it = Err(error.clone()));
        }
        answers
    }

    async fn change(
        &self,
        alterations: &[&Alteration],
        validate_only: bool,
    ) -> Result<(), QuotaError> {
        let Some(broker) = &self.0.broker else { return Err(QuotaError::NotKept) };
        self.catch_up().await?;
        loop {
            let (version, mut table) = storage::current(broker)?;
            let before = table.clone();
            for alteration in alterations {
                alteration.apply(&mut table);
            }
            if table.len() > QUOTAS_MAX {
                return Err(QuotaError::TooMany);
            }
            if validate_only || table == before {
                return Ok(());
            }
            match storage::write(broker, &table, version).await {
                Err(error) if error.is_conflict() => {}
                written => {
                    written?;
                    return Ok(self.read()?);
                }
            }
        }
    }

    /// Brings memory up to date with all changes before the call.
    pub async fn catch_up(&self) -> Result<(), QuotaError> {
        let Some(broker) = self.0.broker.as_ref().filter(|broker| !broker.is_alone()) else {
            return Ok(());
        };
        let current = broker.catalog_is_current().await;
        current.map_err(|error| QuotaError::Storage(ExecuteError::from(error).into()))?;
        self.take_changes();
        Ok(())
    }

    /// Reads the document into memory.
    fn read(&self) -> Result<(), OpenError> {
        let Some(broker) = &self.0.broker else { return Ok(()) };
        // Under the lock, so that older state never replaces newer.
        let mut table = self.0.table.write();
        let (version, read) = storage::current(broker)?;
        let stamp = if read.is_empty() { 0 } else { version.max(1) };
        *table = Arc::new(read);
        self.0.stamp.store(stamp, Ordering::Release);
        drop(table);
        self.0.changed.send_replace(());
        Ok(())
    }

    fn take_changes(&self) {
        let documents = self.0.documents.lock();
        let changes = documents.as_ref().map(DocumentWatch::take);
        if changes.is_none_or(|it| matches!(it, DocumentChanges::Named(names) if names.is_empty()))
        {
            return;
        }
        if let Err(error) = self.read() {
            // A later version may have written it: the last known state is kept.
            tracing::error!(%error, "the quotas cannot be read");
        }
    }
}

/// Applies changes of all nodes until the quotas are dropped.
async fn follow(quotas: Weak<Inner>, documents: DocumentWatch) {
    while documents.changed().await {
        documents.take();
        let Some(quotas) = quotas.upgrade().map(Quotas) else { return };
        quotas.take_changes();
    }
}

#[cfg(test)]
mod tests;
