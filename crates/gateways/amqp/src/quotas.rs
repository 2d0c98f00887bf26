//! What a session is charged where there are quotas, and how many connections and channels there may be.
//!
//! Whoever has sent more than its share is not listened to until that is made up for, as where the disk is full: clients
//! that want to know are told that they are blocked. Whoever was delivered more is delivered nothing meanwhile. What was
//! begun before is done, and nothing is refused.

use std::sync::Arc;
use std::task::{Context, Poll};

use access::Quotas;
use access::limits::{Limit, LimitOf};
use access::quotas::{Asker, Meter, Protocol, Quota};
use base::HashMap;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;

use crate::errors::{Exception, ReplyCode};
use crate::session::Session;

/// What a client calls itself, for people; its quotas go by that.
pub(crate) const CLIENT_ID: &str = "connection_name";

pub(crate) struct Charges {
    sends: Arc<Meter>,
    takes: Arc<Meter>,
    pub(crate) client: Box<str>,
    /// Of each of the two, while it waits.
    waiting: [Option<BoxFuture<'static, ()>>; 2],
}

/// Charges a session for what is done beside it.
#[derive(Clone)]
pub(crate) struct Charged {
    meter: Arc<Meter>,
    user: Arc<str>,
    client: Box<str>,
}

impl Charged {
    /// A queue was made or deleted.
    pub(crate) fn changed_a_queue(&self) {
        let asker = Asker::new(Some(&*self.user), &self.client);
        self.meter.take(Quota::ControllerMutationRate, asker, 1);
    }
}

impl Charges {
    pub(crate) fn new(quotas: &Quotas) -> Self {
        let meter = || Arc::new(Meter::new(quotas, Protocol::Amqp));
        let (sends, takes) = (meter(), meter());
        Self { sends, takes, client: Box::default(), waiting: [None, None] }
    }

    /// Whether the session may be listened to.
    pub(crate) fn is_heard(&self) -> bool {
        !self.sends.waits()
    }

    /// Whether it may be delivered to.
    pub(crate) fn is_delivered_to(&self) -> bool {
        !self.takes.waits()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.sends.is_idle()
    }

    /// Whether it began to wait, or need not any more.
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
    /// A message came whole.
    pub(crate) fn charge_sent(&mut self, bytes: usize) {
        self.charge(Quota::ProducerByteRate, bytes);
    }

    /// A message is the answer to a request for it, for which there are no more answers meanwhile.
    pub(crate) fn charge_got(&mut self, bytes: usize) {
        self.charge(Quota::ConsumerByteRate, bytes);
    }

    fn charge(&mut self, quota: Quota, bytes: usize) {
        if self.charges.is_idle() {
            return;
        }
        let asker = Asker::new(Some(self.user()), &self.charges.client);
        if !self.charges.sends.take(quota, asker, bytes as u64).is_zero() {
            self.tell_blocked();
        }
    }

    /// So much was delivered.
    pub(crate) fn charge_delivered(&mut self, bytes: usize) {
        if !self.charges.is_idle() {
            let asker = Asker::new(Some(self.user()), &self.charges.client);
            self.charges.takes.take(Quota::ConsumerByteRate, asker, bytes as u64);
        }
    }

    pub(crate) fn charged(&self) -> Charged {
        let user = self.principal.as_ref().map(|principal| Arc::clone(principal.name()));
        Charged {
            meter: Arc::clone(&self.charges.sends),
            user: user.unwrap_or_default(),
            client: self.charges.client.clone(),
        }
    }

    pub(crate) fn poll_quotas(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let polled = self.charges.poll(context);
        if polled.is_ready() {
            self.tell_blocked();
        }
        polled
    }

    /// Counts the connection where it is limited, in RabbitMQ's words if there are too many.
    pub(crate) fn count_connection(&mut self, vhost: &str) -> Result<(), Exception> {
        let (users, counts) = (&self.gateway.users, &self.gateway.counts);
        let user = self.user();
        let most = users.limit(LimitOf::User(user), Limit::MaxConnections);
        let of_user = counts.enter(Counted::Connections(user.into()), most).map_err(|most| {
            not_allowed(format!(
                "Connection refused for user '{user}': user connection limit ({most}) is reached"
            ))
        })?;
        let most = users.limit(LimitOf::VirtualHost(vhost), Limit::MaxConnections);
        let of_vhost = counts.enter(Counted::VhostConnections(vhost.into()), most);
        let of_vhost = of_vhost.map_err(|most| {
            not_allowed(format!(
                "access to vhost '{vhost}' refused for user '{user}': connection limit ({most}) is reached"
            ))
        })?;
        self.counted = vec![of_user, of_vhost];
        Ok(())
    }

    /// Counts a channel of the user.
    pub(crate) fn count_channel(&self) -> Result<Entered, Exception> {
        let user = self.user();
        let most = self.gateway.users.limit(LimitOf::User(user), Limit::MaxChannels);
        self.gateway.counts.enter(Counted::Channels(user.into()), most).map_err(|most| {
            not_allowed(format!(
                "number of channels opened for user '{user}' has reached the maximum allowed user limit of ({most})"
            ))
        })
    }
}

fn not_allowed(text: String) -> Exception {
    Exception::new(ReplyCode::NotAllowed, text)
}

/// What is counted.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Counted {
    /// Of a user.
    Connections(Box<str>),
    Channels(Box<str>),
    /// To a virtual host.
    VhostConnections(Box<str>),
}

/// How many there are on this node. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts(Arc<Mutex<HashMap<Counted, u64>>>);

/// One is there while this is held.
#[derive(Debug)]
pub(crate) struct Entered {
    counts: Counts,
    what: Counted,
}

impl Counts {
    /// One more; `Err`: there are as many as there may be.
    pub(crate) fn enter(&self, what: Counted, most: Option<u64>) -> Result<Entered, u64> {
        let mut counts = self.0.lock();
        let present = counts.get(&what).copied().unwrap_or(0);
        if let Some(most) = most.filter(|most| present >= *most) {
            return Err(most);
        }
        counts.insert(what.clone(), present + 1);
        Ok(Entered { counts: self.clone(), what })
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut counts = self.counts.0.lock();
        if let Some(count) = counts.get_mut(&self.what) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.what);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_as_many_as_are_held() {
        let counts = Counts::default();
        let of = |user: &str| Counted::Channels(user.into());
        let first = counts.enter(of("ada"), Some(2)).expect("there is room");
        let _second = counts.enter(of("ada"), Some(2)).expect("there is room");
        assert_eq!(counts.enter(of("ada"), Some(2)).err(), Some(2));
        assert!(counts.enter(of("bob"), Some(1)).is_ok() && counts.enter(of("ada"), None).is_ok());
        drop(first);
        assert!(counts.enter(of("ada"), Some(2)).is_ok());
        assert_eq!(counts.enter(of("eve"), Some(0)).err(), Some(0));
        drop(_second);
        assert!(counts.0.lock().is_empty());
    }
}
