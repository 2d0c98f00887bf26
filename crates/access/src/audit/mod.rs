//! Who changed what, who logged in, who was kept from something, and who looked into records: as records of a topic that
//! administrators alone read, and as lines of the log.
//!
//! It hears of it where that is decided ([`crate::authorizer`]) and where somebody becomes somebody, so that no handler
//! has to think of it. What is written are names and rules, never what was set or read. It is written behind
//! the requests, by a task of its own; between the two is a buffer. Where that is full, an event is counted and
//! dropped, or (`strict`) the change is refused that it is of.
//!
//! * `sampled`: what would be too much is counted; `writer`: the topic

mod sampled;
mod writer;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base::HashSet;
use base::limits::{AUDIT_EVENTS_QUEUED_MAX, AUDIT_TEXT_BYTES_MAX};
use broker::Broker;
use parking_lot::Mutex;
use serde::Serialize;
use tasks::Task;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::quotas::meter::ANONYMOUS;
use crate::users::Users;
use sampled::{Denials, LogIns};

/// Where events are.
pub use base::topics::AUDIT as TOPIC;
/// Of the log.
const TARGET: &str = "audit";

/// A node's. Clones are the same; by default nothing is written.
#[derive(Clone, Debug, Default)]
pub struct Audit(Option<Arc<Inner>>);

#[derive(Debug)]
struct Inner {
    strict: bool,
    broker: Broker,
    events: mpsc::Sender<Queued>,
    recorded: AtomicU64,
    dropped: AtomicU64,
    denials: Mutex<Denials>,
    log_ins: Mutex<LogIns>,
}

#[derive(Debug)]
enum Queued {
    Event(Box<Event>),
    /// Tells once all before it is written.
    Flush(oneshot::Sender<()>),
}

/// What happened.
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
    /// Why so.
    #[serde(skip_serializing_if = "String::is_empty")]
    rule: String,
    /// As the protocol calls it.
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<String>,
    /// What of the resource, where its name does not say it: which user, which rule.
    #[serde(skip_serializing_if = "String::is_empty")]
    subject: String,
    /// So many of the kind came before it and were not written one by one.
    #[serde(skip_serializing_if = "is_none")]
    more_before: u32,
}

fn is_none(count: &u32) -> bool {
    *count == 0
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Outcome {
    /// It was allowed; the answer says whether it was done.
    Allowed,
    Denied,
    LoggedIn,
    LogInRefused,
}

/// What was asked, of what.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Asked {
    pub(crate) action: String,
    pub(crate) resource: &'static str,
    pub(crate) name: String,
}

/// What is written of a question besides what was asked.
#[derive(Clone, Copy, Default, Debug)]
pub struct Said<'a> {
    /// As the protocol calls the request.
    pub request: &'a str,
    /// What of the resource: names, and no values.
    pub subject: &'a str,
}

impl<'a> From<&'a str> for Said<'a> {
    fn from(request: &'a str) -> Self {
        Self { request, subject: "" }
    }
}

/// What is written of something that is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Always.
    Change,
    /// Where people look, and not programs.
    Contents,
    /// Where it is denied.
    Use,
    /// Never: lists ask it of all that there is.
    Look,
}

/// Who asks, as it is written.
pub struct Asker {
    audit: Audit,
    principal: Arc<str>,
    address: IpAddr,
    protocol: &'static str,
    request: Option<String>,
    request_id: Option<String>,
    /// It is a person who looks.
    looks: bool,
    /// What was written of this request, which may be asked twice. `None`: it is no single request.
    written: Option<Mutex<HashSet<(Asked, String)>>>,
}

impl fmt::Debug for Asker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asker").field("principal", &self.principal).finish_non_exhaustive()
    }
}

impl Audit {
    /// Writes from now on. `strict`: where it cannot, changes are refused.
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

    /// Events that were taken, and those that found the buffer full.
    pub fn counted(&self) -> (u64, u64) {
        let seen = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        self.0.as_ref().map_or((0, 0), |inner| (seen(&inner.recorded), seen(&inner.dropped)))
    }

    /// Returns once all that was taken is written, or after that time.
    pub async fn flush(&self, within: Duration) {
        let Some(inner) = &self.0 else { return };
        let (told, written) = oneshot::channel();
        let flushed = async {
            if inner.events.send(Queued::Flush(told)).await.is_ok() {
                let _ = written.await;
            }
        };
        if timeout(within, flushed).await.is_err() {
            tracing::warn!(target: TARGET, "events were not written before the node stopped");
        }
    }

    /// Somebody, for whom what it asks is written. `None`: nothing is. `principal`: `None` where nobody logged in.
    pub fn asker(
        &self,
        principal: Option<&str>,
        address: IpAddr,
        protocol: &'static str,
    ) -> Option<Asker> {
        self.is_on().then(|| Asker {
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

    /// Somebody logged in. By protocols that say who they are with each request it is written once in a while.
    pub fn logged_in(&self, principal: &str, address: IpAddr, protocol: &'static str, again: bool) {
        let Some(inner) = &self.0 else { return };
        if again && !inner.log_ins.lock().is_new(principal, address) {
            return;
        }
        let action = "log-in".to_owned();
        let asked = Asked { action, resource: "", name: String::new() };
        let event = inner.event(principal, address, asked, Outcome::LoggedIn);
        inner.queue(Event { protocol: Some(protocol), ..event });
    }

    /// Somebody who said that name did not get in, the first time within a minute, after so many in the one before.
    pub(crate) fn log_in_refused(&self, name: &str, address: IpAddr, reason: &str, before: u32) {
        let Some(inner) = &self.0 else { return };
        let action = "log-in".to_owned();
        let asked = Asked { action, resource: "", name: String::new() };
        let event = inner.event(name, address, asked, Outcome::LogInRefused);
        inner.queue(Event { rule: reason.to_owned(), more_before: before, ..event });
    }
}

impl Users {
    /// Has it written what users do; once, before anybody logs in.
    pub fn set_audit(&self, audit: Audit) {
        self.0.failures.set_audit(audit.clone());
        let set = self.0.audit.set(audit);
        debug_assert!(set.is_ok(), "it was set before");
    }

    /// Where it is written what users do.
    pub fn audit(&self) -> Audit {
        self.0.audit.get().cloned().unwrap_or_default()
    }
}

impl Inner {
    fn event(&self, principal: &str, address: IpAddr, asked: Asked, outcome: Outcome) -> Event {
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

    /// Whether it will be written.
    fn queue(&self, event: Event) -> bool {
        let taken = self.events.try_send(Queued::Event(Box::new(event))).is_ok();
        let counter = if taken { &self.recorded } else { &self.dropped };
        counter.fetch_add(1, Ordering::Relaxed);
        taken
    }
}

fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(AUDIT_TEXT_BYTES_MAX));
    text
}

impl Asker {
    /// It asks by one request, which is called so.
    pub fn by(mut self, request: String, id: Option<String>) -> Self {
        self.request = Some(cut(request));
        self.request_id = id;
        self.written = Some(Mutex::default());
        self
    }

    /// It is a person who looks into records.
    pub fn looking(mut self, looks: bool) -> Self {
        self.looks = looks;
        self
    }

    pub(crate) fn looks(&self) -> bool {
        self.looks
    }

    /// Something was decided. Answers whether it may be done now: what has to be written and cannot be is not.
    pub(crate) fn decided(
        &self,
        kind: Kind,
        is_allowed: bool,
        said: Said<'_>,
        asked: impl FnOnce() -> Asked,
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
        // Whoever reads it would write more to be read.
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
