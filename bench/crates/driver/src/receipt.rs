use std::fmt;
use std::sync::Arc;

use crate::Failure;

/// Keeps account of sent messages.
pub trait Confirmed: Send + Sync {
    /// Records the outcome of the message with this number.
    fn resolve(&self, number: u64, sent: Result<(), Failure>);
}

/// Handle by which a sender reports the outcome of one message. If it is dropped unresolved, the
/// outcome is unknown.
pub struct Receipt {
    account: Option<Arc<dyn Confirmed>>,
    number: u64,
}

impl Receipt {
    pub fn new(account: Arc<dyn Confirmed>, number: u64) -> Self {
        Self { account: Some(account), number }
    }

    pub fn resolve(mut self, sent: Result<(), Failure>) {
        if let Some(account) = self.account.take() {
            account.resolve(self.number, sent);
        }
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        if let Some(account) = self.account.take() {
            account.resolve(self.number, Err(Failure::Unknown("its sender forgot it".into())));
        }
    }
}

impl fmt::Debug for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receipt").field("number", &self.number).finish_non_exhaustive()
    }
}
