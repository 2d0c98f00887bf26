use std::fmt;
use std::sync::Arc;

use crate::Failure;

/// Who keeps account of what was sent.
pub trait Confirmed: Send + Sync {
    /// The message with this number is safe, or is not.
    fn tell(&self, number: u64, sent: Result<(), Failure>);
}

/// How a sender says that one message is safe. Dropped without a word, it says that nobody knows.
pub struct Receipt {
    account: Option<Arc<dyn Confirmed>>,
    number: u64,
}

impl Receipt {
    pub fn new(account: Arc<dyn Confirmed>, number: u64) -> Self {
        Self { account: Some(account), number }
    }

    pub fn tell(mut self, sent: Result<(), Failure>) {
        if let Some(account) = self.account.take() {
            account.tell(self.number, sent);
        }
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        if let Some(account) = self.account.take() {
            account.tell(self.number, Err(Failure::Unknown("its sender forgot it".into())));
        }
    }
}

impl fmt::Debug for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receipt").field("number", &self.number).finish_non_exhaustive()
    }
}
