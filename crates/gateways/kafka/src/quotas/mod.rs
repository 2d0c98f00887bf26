//! Charges clients with quotas for the bytes that they send and receive, and for changes.
//!
//! A client over its quota is served. The response carries the throttle time, and the session is not read
//! until it has passed (KIP-219), as its [`access::quotas::Meter`] records. Changes differ since KIP-599:
//! while a debt remains, requests of versions that know the error are refused.
//!
//! `requests`: DescribeClientQuotas and AlterClientQuotas.

pub(crate) mod requests;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use access::quotas::QuotaClient;
use access_rules::quota::Quota;
use kafka_protocol::error::ResponseError;

use crate::errors::Fault;
use crate::messages::RequestHead;
use crate::request::Request;
use crate::state::Session;

fn caller<'a>(session: &'a Session, head: &'a RequestHead) -> QuotaClient<'a> {
    let user = session.login.principal().map(|principal| &**principal.name());
    QuotaClient::new(user, head.client_id.as_deref().unwrap_or_default())
}

/// Milliseconds of a response, rounded up.
fn millis(wait: Duration) -> i32 {
    i32::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX)
}

/// Charges produced bytes. Returns the throttle time.
pub(crate) fn charge_produced(session: &Session, head: &RequestHead, bytes: usize) -> i32 {
    if session.meter.is_idle() {
        return 0;
    }
    millis(session.meter.take(Quota::ProducerByteRate, caller(session, head), bytes as u64))
}

/// Charges fetched bytes. Returns the throttle time.
pub(crate) fn charge_fetched(
    session: &Session,
    head: &RequestHead,
    bytes: impl FnOnce() -> usize,
) -> i32 {
    if session.meter.is_idle() {
        return 0;
    }
    millis(session.meter.take(Quota::ConsumerByteRate, caller(session, head), bytes() as u64))
}

/// Throttle time of the client before it may fetch again.
pub(crate) fn throttle_owed(session: &Session, head: &RequestHead) -> i32 {
    if session.meter.is_idle() {
        return 0;
    }
    let wait = session.meter.debt(Quota::ConsumerByteRate, caller(session, head));
    session.meter.wait_for(Quota::ConsumerByteRate, wait);
    millis(wait)
}

/// Charges the partitions that one request creates or deletes.
pub(crate) struct Mutations<'a> {
    session: &'a Session,
    head: &'a RequestHead,
    is_strict: bool,
    wait_nanos: AtomicU64,
}

impl<'a> Mutations<'a> {
    /// `strict_since`: first version of the request that knows the error.
    pub(crate) fn new(request: &'a Request, strict_since: i16) -> Self {
        let (session, head) = (&*request.session, &request.head);
        let is_strict = head.version >= strict_since;
        Self { session, head, is_strict, wait_nanos: AtomicU64::new(0) }
    }

    /// For a request that is executed in any case.
    pub(crate) fn accepted(session: &'a Session, head: &'a RequestHead) -> Self {
        Self { session, head, is_strict: false, wait_nanos: AtomicU64::new(0) }
    }

    fn waits(&self, wait: Duration) {
        let nanos = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
        self.wait_nanos.fetch_max(nanos, Ordering::Relaxed);
    }

    /// Charges partitions that are created or deleted.
    pub(crate) fn note(&self, partitions: u32) {
        let meter = &self.session.meter;
        if !meter.is_idle() {
            let (quota, caller) = (Quota::ControllerMutationRate, caller(self.session, self.head));
            self.waits(meter.take(quota, caller, partitions.into()));
        }
    }

    /// Charges partitions before they are created or deleted, or refuses them.
    pub(crate) fn take(&self, partitions: u32) -> Result<(), Fault> {
        let meter = &self.session.meter;
        if meter.is_idle() {
            return Ok(());
        }
        let (quota, caller) = (Quota::ControllerMutationRate, caller(self.session, self.head));
        let owed = meter.debt(quota, caller);
        if self.is_strict && !owed.is_zero() {
            meter.wait_for(quota, owed);
            self.waits(owed);
            return Err(Fault::new(
                ResponseError::ThrottlingQuotaExceeded,
                "more partitions were made and deleted than this client may; it is to ask again later",
            ));
        }
        self.note(partitions);
        Ok(())
    }

    pub(crate) fn throttle_ms(&self) -> i32 {
        millis(Duration::from_nanos(self.wait_nanos.load(Ordering::Relaxed)))
    }
}
