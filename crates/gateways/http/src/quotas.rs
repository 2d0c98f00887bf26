//! What requests are charged where there are quotas. Who owes something is answered 429, and when to ask again; what was
//! asked before that is done, however much it was. HTTP has no name of a client: quotas of a user count, and those of
//! clients that have none of their own.

use std::time::Duration;

use access::Quotas;
use access::quotas::{Asker as Charged, Meter, Protocol, Quota};

use crate::front::Node;
use crate::login::Asker;
use crate::problem::{Kind, Problem};

/// Of one request.
pub(crate) struct Spending {
    meter: Meter,
    quota: Quota,
    user: Option<String>,
}

impl Spending {
    /// Somebody wants to send, take or change something, and may unless something is owed.
    pub(crate) fn begin(node: &Node, asker: &Asker, quota: Quota) -> Result<Self, Problem> {
        Self::of(&node.quotas, asker.name(), quota)
    }

    fn of(quotas: &Quotas, user: Option<&str>, quota: Quota) -> Result<Self, Problem> {
        let meter = Meter::new(quotas, Protocol::Http);
        let user = user.filter(|_| !meter.is_idle()).map(str::to_owned);
        let spending = Self { meter, quota, user };
        let owed = spending.meter.debt(quota, spending.charged());
        if owed.is_zero() {
            return Ok(spending);
        }
        spending.meter.note(quota, owed);
        Err(throttled(quota, owed))
    }

    fn charged(&self) -> Charged<'_> {
        Charged::new(self.user.as_deref(), "")
    }

    /// It was so much.
    pub(crate) fn charge(&self, amount: u64) {
        self.meter.charge(self.quota, self.charged(), amount);
    }

    /// The same of an answer that goes on, which waits then.
    pub(crate) async fn charge_and_wait(&self, amount: u64) {
        self.meter.take(self.quota, self.charged(), amount);
        self.meter.waited().await;
    }
}

fn throttled(quota: Quota, owed: Duration) -> Problem {
    let detail =
        format!("{} is used up: ask again in {} ms", quota.word(), owed.as_millis().max(1));
    Problem::later(Kind::Throttled, detail, owed.max(Duration::from_millis(1)))
}
