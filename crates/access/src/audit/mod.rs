//! Audit of changes, log-ins, denials and reads of records: as records of a topic that only administrators read, and
//! as lines of the log.
//!
//! Events are recorded where decisions are made ([`crate::authorizer`]) and where clients log in, so that no handler
//! has to do it. They contain names and rules, never values or record contents. A task of its own writes them behind
//! the requests, through a buffer. Where the buffer is full, an event is counted and dropped or, with `strict`, its
//! change is rejected.
//!
//! * `sampled`: limits the rate of frequent events; `writer`: writes the topic

mod sampled;
mod writer;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::limits::{AUDIT_EVENTS_QUEUED_MAX, AUDIT_TEXT_BYTES_MAX};
use crate::user_name::ANONYMOUS;
use base::HashSet;
use broker::Broker;
use parking_lot::Mutex;
use serde::Serialize;
use tasks::Task;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use sampled::{Denials, LogIns};

/// The topic of events.
pub use base::topics::AUDIT as TOPIC;
/// Target of the log lines.
const TARGET: &str = "audit";

/// The audit of a node. Clones share it; the default one records nothing.
#[derive(Clone, Debug, Default)]
pub struct Audit(Option<Arc<Inner>>);

#[derive(Debug)]
struct Inner {
    strict: bool,
    broker: Broker,
    events: mpsc::Sender<AuditQueueItem>,
    recorded: AtomicU64,
    dropped: AtomicU64,
    denials: Mutex<Denials>,
    log_ins: Mutex<LogIns>,
}

#[derive(Debug)]
enum AuditQueueItem {
    Event(Box<Event>),
    /// Completes once all earlier events are written.
    Flush(oneshot::Sender<()>),
}

/// One audited event.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Event {
    time_ms: i64,
    node: u32,
    principal: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    protocol: Option<&'static str>,
    address: IpAddr,
    action: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    resource: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
    outcome: Outcome,
    /// Rule or permission that decided.
    #[serde(skip_serializing_if = "String::is_empty")]
    rule: String,
    /// Name of the request in its protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<String>,
    /// Part of the resource that its name does not identify: a user, a rule.
    #[serde(skip_serializing_if = "String::is_empty")]
    subject: String,
    /// Number of earlier events of this kind that were left out.
    #[serde(skip_serializing_if = "is_none")]
    more_before: u32,
}

fn is_none(count: &u32) -> bool {
    *count == 0
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Outcome {
    /// Allowed; the response to the request says whether it also succeeded.
    Allowed,
    Denied,
    LoggedIn,
    LogInRefused,
}

/// Action and resource of a request.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct RequestedAction {
    pub(crate) action: String,
    pub(crate) resource: &'static str,
    pub(crate) name: String,
}

/// Context of a request: its name and the affected part of the resource.
#[derive(Clone, Copy, Default, Debug)]
pub struct RequestContext<'a> {
    /// Name of the request in its protocol.
    pub request: &'a str,
    /// Affected part of the resource: names, no values.
    pub subject: &'a str,
}

impl<'a> From<&'a str> for RequestContext<'a> {
    fn from(request: &'a str) -> Self {
        Self { request, subject: "" }
    }
}

/// Class of a request, which decides whether it is audited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Always audited.
    Change,
    /// Audited where people look at records, not for programs.
    Contents,
    /// Audited where it is denied.
    Use,
    /// Never audited: lists check it for each of their entries.
    Look,
}

/// The client of a request, for the audit.
pub struct AuditedClient {
    audit: Audit,
    principal: Arc<str>,
    address: IpAddr,
    protocol: &'static str,
    request: Option<String>,
    request_id: Option<String>,
    /// The requests come from a person that browses records.
    looks: bool,
    /// Events already written for this request, which may be checked twice. `None`: it is not a single request.
    written: Option<Mutex<HashSet<(RequestedAction, String)>>>,
}

impl fmt::Debug for AuditedClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuditedClient").field("principal", &self.principal).finish_non_exhaustive()
    }
}

impl Audit {
    /// Starts the task that writes events. `strict`: rejects changes whose event cannot be queued.
    pub fn open(broker: &Broker, strict: bool) -> Self {
        let (events, queued) = mpsc::channel(AUDIT_EVENTS_QUEUED_MAX);
        broker.vital(Task::Audit, writer::run(broker.clone(), queued));
        Self(Some(Arc::new(Inner {
            strict,
            broker: broker.clone(),
            events,
            recorded: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            denials: Mutex::default(),
            log_ins: Mutex::default(),
        })))
    }

    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Number of queued events, and of those dropped because the buffer was full.
    pub fn counted(&self) -> (u64, u64) {
        let seen = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        self.0.as_ref().map_or((0, 0), |inner| (seen(&inner.recorded), seen(&inner.dropped)))
    }

    /// Returns once all queued events are written, or after `within`.
    pub async fn flush(&self, within: Duration) {
        let Some(inner) = &self.0 else { return };
        let (told, written) = oneshot::channel();
        let flushed = async {
            if inner.events.send(AuditQueueItem::Flush(told)).await.is_ok() {
                let _ = written.await;
            }
        };
        if timeout(within, flushed).await.is_err() {
            tracing::warn!(target: TARGET, "events were not written before the node stopped");
        }
    }

    /// Client whose requests are audited; `None` where the audit is off. `principal`: `None` where the client did not
    /// log in.
    pub fn caller(
        &self,
        principal: Option<&str>,
        address: IpAddr,
        protocol: &'static str,
    ) -> Option<AuditedClient> {
        self.is_on().then(|| AuditedClient {
            audit: self.clone(),
            principal: principal.unwrap_or(ANONYMOUS).into(),
            address,
            protocol,
            request: None,
            request_id: None,
            looks: false,
            written: None,
        })
    }

    /// Records a log-in. `again`: the protocol logs in with each request, so the event is written once in a while.
    pub fn logged_in(&self, principal: &str, address: IpAddr, protocol: &'static str, again: bool) {
        let Some(inner) = &self.0 else { return };
        if again && !inner.log_ins.lock().is_new(principal, address) {
            return;
        }
        let action = "log-in".to_owned();
        let asked = RequestedAction { action, resource: "", name: String::new() };
        let event = inner.event(principal, address, asked, Outcome::LoggedIn);
        inner.queue(Event { protocol: Some(protocol), ..event });
    }

    /// Records the first failed log-in of a name within a minute. `before` counts the failures that were left out
    /// earlier.
    pub(crate) fn log_in_refused(&self, name: &str, address: IpAddr, reason: &str, before: u32) {
        let Some(inner) = &self.0 else { return };
        let action = "log-in".to_owned();
        let asked = RequestedAction { action, resource: "", name: String::new() };
        let event = inner.event(name, address, asked, Outcome::LogInRefused);
        inner.queue(Event { rule: reason.to_owned(), more_before: before, ..event });
    }
}

impl Inner {
    fn event(
        &self,
        principal: &str,
        address: IpAddr,
        asked: RequestedAction,
        outcome: Outcome,
    ) -> Event {
        Event {
            time_ms: self.broker.clock().now_ms(),
            node: self.broker.node(),
            principal: cut(principal.to_owned()),
            protocol: None,
            address: address.to_canonical(),
            action: asked.action,
            resource: asked.resource,
            name: cut(asked.name),
            outcome,
            rule: String::new(),
            request: None,
            request_id: None,
            subject: String::new(),
            more_before: 0,
        }
    }

    /// Queues an event. False: the buffer is full.
    fn queue(&self, event: Event) -> bool {
        let taken = self.events.try_send(AuditQueueItem::Event(Box::new(event))).is_ok();
        let counter = if taken { &self.recorded } else { &self.dropped };
        counter.fetch_add(1, Ordering::Relaxed);
        taken
    }
}

fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(AUDIT_TEXT_BYTES_MAX));
    text
}

impl AuditedClient {
    /// Binds the client to one request, by its name and id.
    pub fn by(mut self, request: String, id: Option<String>) -> Self {
        self.request = Some(cut(request));
        self.request_id = id;
        self.written = Some(Mutex::default());
        self
    }

    /// Marks the client as a person that browses records.
    pub fn looking(mut self, looks: bool) -> Self {
        self.looks = looks;
        self
    }

    pub(crate) fn looks(&self) -> bool {
        self.looks
    }

    /// Records a decision. Returns whether the action may proceed: with `strict`, a change whose event cannot be
    /// queued may not.
    pub(crate) fn decided(
        &self,
        kind: Kind,
        is_allowed: bool,
        said: RequestContext<'_>,
        asked: impl FnOnce() -> RequestedAction,
        rule: impl FnOnce() -> String,
    ) -> bool {
        let Some(inner) = &self.audit.0 else { return is_allowed };
        let mut more_before = 0;
        match (is_allowed, kind) {
            (true, Kind::Use | Kind::Look) | (false, Kind::Look) => return is_allowed,
            (true, Kind::Change | Kind::Contents) => {}
            (false, _) => match inner.denials.lock().next(&self.principal) {
                Some(before) => more_before = before,
                None => return false,
            },
        }
        let asked = asked();
        // Reading the audit topic would write to it, and so on without end.
        if kind == Kind::Contents && asked.name == TOPIC {
            return is_allowed;
        }
        if let Some(written) = &self.written
            && !written.lock().insert((asked.clone(), said.subject.to_owned()))
        {
            return is_allowed;
        }
        let outcome = if is_allowed { Outcome::Allowed } else { Outcome::Denied };
        let named = (!said.request.is_empty()).then(|| said.request.to_owned());
        let event = Event {
            protocol: Some(self.protocol),
            rule: cut(rule()),
            request: named.or_else(|| self.request.clone()),
            request_id: self.request_id.clone(),
            subject: cut(said.subject.to_owned()),
            more_before,
            ..inner.event(&self.principal, self.address, asked, outcome)
        };
        let is_written = inner.queue(event);
        is_allowed && (is_written || !inner.strict || kind != Kind::Change)
    }
}

#[cfg(test)]
mod tests;
