//! Flow control of a session: its charges under quotas, `connection.blocked`, and the limits of connections and channels.
//!
//! A client that sent more than its share is not read until the excess is made up for, as with a full disk; clients
//! that support it get `connection.blocked`. A client that received more than its share gets no deliveries meanwhile.
//! Work in flight is completed, and nothing is rejected.

use std::sync::Arc;
use std::task::{Context, Poll};

use access::Quotas;
use access::quotas::{Meter, Protocol, QuotaClient};
use access::user_limits::{Limit, LimitTarget};
use access_rules::quota::Quota;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::codec::methods::{ConnectionBlocked, ConnectionUnblocked};
use crate::errors::{Exception, ReplyCode};
use crate::gateway::counts::{CountGuard, CountedResource};
use crate::session::{Phase, Session};

/// The client's name for itself, which people read and quotas apply to.
pub(crate) const CLIENT_ID: &str = "connection_name";

/// Reason of `connection.blocked`, in RabbitMQ's words.
const BLOCKED_REASON: &str = "low on disk";
/// The same for an exceeded quota.
const THROTTLED_REASON: &str = "quota exceeded";

pub(crate) struct Charges {
    sends: Arc<Meter>,
    takes: Arc<Meter>,
    pub(crate) client: Box<str>,
    /// Waits of the two meters.
    waiting: [Option<BoxFuture<'static, ()>>; 2],
}

/// Charges a session for work done by another task.
#[derive(Clone)]
pub(crate) struct SessionCharge {
    meter: Arc<Meter>,
    user: Arc<str>,
    client: Box<str>,
}

impl SessionCharge {
    /// Charges the creation or deletion of a queue.
    pub(crate) fn changed_a_queue(&self) {
        let caller = QuotaClient::new(Some(&*self.user), &self.client);
        self.meter.take(Quota::ControllerMutationRate, caller, 1);
    }
}

impl Charges {
    pub(crate) fn new(quotas: &Quotas) -> Self {
        let meter = || Arc::new(Meter::new(quotas, Protocol::Amqp));
        let (sends, takes) = (meter(), meter());
        Self { sends, takes, client: Box::default(), waiting: [None, None] }
    }

    /// Returns whether the client may send.
    pub(crate) fn may_send(&self) -> bool {
        !self.sends.waits()
    }

    /// Returns whether the client may receive deliveries.
    pub(crate) fn may_receive(&self) -> bool {
        !self.takes.waits()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.sends.is_idle()
    }

    /// Ready when a wait began or ended.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let mut any = false;
        for (meter, waiting) in [&self.sends, &self.takes].into_iter().zip(&mut self.waiting) {
            if waiting.is_none() && meter.waits() {
                let meter = Arc::clone(meter);
                *waiting = Some(async move { meter.waited().await }.boxed());
                any = true;
            }
            if waiting.as_mut().is_some_and(|waiting| waiting.poll_unpin(context).is_ready()) {
                *waiting = None;
                any = true;
            }
        }
        if any { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Session {
    /// Sends `connection.blocked` or `connection.unblocked` to a client that supports it.
    pub(crate) fn notify_blocked(&mut self) {
        let alarm = *self.gateway.alarm.borrow();
        if !alarm {
            self.is_blocked = false;
        }
        let blocked = alarm || !self.charges.may_send();
        let tells = self.capabilities.connection_blocked && self.phase == Phase::Running;
        if !tells || blocked == self.told_blocked {
            return;
        }
        self.told_blocked = blocked;
        if blocked {
            let reason = if alarm { BLOCKED_REASON } else { THROTTLED_REASON };
            self.output.method(0, ConnectionBlocked { reason, ..ConnectionBlocked::default() });
        } else {
            self.output.method(0, ConnectionUnblocked::default());
        }
    }

    /// Charges a complete message of the client.
    pub(crate) fn charge_sent(&mut self, bytes: usize) {
        self.charge(Quota::ProducerByteRate, bytes);
    }

    /// Charges a reply of `basic.get`. A client over its share is not read, so it gets no more replies meanwhile.
    pub(crate) fn charge_got(&mut self, bytes: usize) {
        self.charge(Quota::ConsumerByteRate, bytes);
    }

    fn charge(&mut self, quota: Quota, bytes: usize) {
        if self.charges.is_idle() {
            return;
        }
        let caller = QuotaClient::new(Some(self.user()), &self.charges.client);
        if !self.charges.sends.take(quota, caller, bytes as u64).is_zero() {
            self.notify_blocked();
        }
    }

    /// Charges bytes that were delivered.
    pub(crate) fn charge_delivered(&mut self, bytes: usize) {
        if !self.charges.is_idle() {
            let caller = QuotaClient::new(Some(self.user()), &self.charges.client);
            self.charges.takes.take(Quota::ConsumerByteRate, caller, bytes as u64);
        }
    }

    pub(crate) fn charged(&self) -> SessionCharge {
        let user = self.principal.as_ref().map(|principal| Arc::clone(principal.name()));
        SessionCharge {
            meter: Arc::clone(&self.charges.sends),
            user: user.unwrap_or_default(),
            client: self.charges.client.clone(),
        }
    }

    pub(crate) fn poll_quotas(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let polled = self.charges.poll(context);
        if polled.is_ready() {
            self.notify_blocked();
        }
        polled
    }

    /// Counts the connection against its limits. The errors use RabbitMQ's words.
    pub(crate) fn count_connection(&mut self, vhost: &str) -> Result<(), Exception> {
        let (users, counts) = (&self.gateway.users, &self.gateway.counts);
        let user = self.user();
        let most = users.limit(LimitTarget::User(user), Limit::MaxConnections);
        let of_user = counts.enter(CountedResource::Connections(user.into()), most).map_err(|most| {
            not_allowed(format!(
                "Connection refused for user '{user}': user connection limit ({most}) is reached"
            ))
        })?;
        let most = users.limit(LimitTarget::VirtualHost(vhost), Limit::MaxConnections);
        let of_vhost = counts.enter(CountedResource::VhostConnections(vhost.into()), most);
        let of_vhost = of_vhost.map_err(|most| {
            not_allowed(format!(
                "access to vhost '{vhost}' refused for user '{user}': connection limit ({most}) is reached"
            ))
        })?;
        self.counted = vec![of_user, of_vhost];
        Ok(())
    }

    /// Counts a channel against its user's limit.
    pub(crate) fn count_channel(&self) -> Result<CountGuard, Exception> {
        let user = self.user();
        let most = self.gateway.users.limit(LimitTarget::User(user), Limit::MaxChannels);
        self.gateway.counts.enter(CountedResource::Channels(user.into()), most).map_err(|most| {
            not_allowed(format!(
                "number of channels opened for user '{user}' has reached the maximum allowed user limit of ({most})"
            ))
        })
    }
}

fn not_allowed(text: String) -> Exception {
    Exception::new(ReplyCode::NotAllowed, text)
}
