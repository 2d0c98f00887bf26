//! Charges requests where there are quotas. A client in debt gets 429 with the time to retry; an admitted request is
//! served whole, whatever its size. HTTP has no client ids, so only quotas of users and of the default client apply.

use std::time::Duration;

use access::Quotas;
use access::quotas::{Meter, Protocol, QuotaClient as Charged};
use access_rules::quota::Quota;

use crate::front::Node;
use crate::login::RequestClient;
use crate::problem::{Kind, Problem};

/// Charges of one request.
pub(crate) struct RequestCharges {
    meter: Meter,
    quota: Quota,
    user: Option<String>,
}

impl RequestCharges {
    /// Begins a request that produces, consumes or changes something; it fails while the client is in debt.
    pub(crate) fn begin(
        node: &Node,
        caller: &RequestClient,
        quota: Quota,
    ) -> Result<Self, Problem> {
        Self::of(&node.quotas, caller.name(), quota)
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

    /// Charges an amount.
    pub(crate) fn charge(&self, amount: u64) {
        self.meter.charge(self.quota, self.charged(), amount);
    }

    /// Charges a part of a streaming response, and waits while in debt.
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
