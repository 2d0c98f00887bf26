//! Barriers: they make sure that this node's copy of the catalog has every change acknowledged by any node before.
//!
//! An entry found in the copy exists. An entry missing from it may exist all the same, since another node created it
//! a moment ago. So before a gateway replies "no such", it passes a barrier and looks again. The catalog's leader
//! confirms its leadership (ReadIndex) and returns the index of its log; this node waits until it has applied the log up
//! to there. All callers during one barrier share the next one. A node that is alone needs no request. Readers of a
//! shard with rows pass barriers of that shard.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};

use machine::Catalog;
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use crate::error::Unavailable;

/// Versions of the catalog: one grows when topics and groups come, go or move, the other with each change of documents.
/// Neither counts a change of configuration, so they are only sent to nodes of earlier versions, which ask for them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CatalogVersions {
    definitions: u64,
    documents: u64,
}

impl CatalogVersions {
    pub fn of(catalog: &Catalog) -> Self {
        Self { definitions: catalog.version(), documents: catalog.documents_stamp() }
    }
}

/// Barriers of one kind, one at a time.
#[derive(Debug, Default)]
pub struct Barriers {
    begun: AtomicU64,
    /// Number of the last barrier that was passed.
    passed: Mutex<u64>,
}

impl Barriers {
    /// Number of barriers begun so far.
    pub fn begun(&self) -> u64 {
        self.begun.load(Ordering::SeqCst)
    }

    /// Returns once a barrier was passed that began after this call: the caller's own or a concurrent caller's.
    pub async fn pass(
        &self,
        barrier: impl Future<Output = Result<(), Unavailable>>,
    ) -> Result<(), Unavailable> {
        let needed = self.begun.load(Ordering::SeqCst) + 1;
        let mut passed = self.passed.lock().await;
        if *passed >= needed {
            return Ok(());
        }
        let begun = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        barrier.await?;
        *passed = begun;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use futures_util::future::join_all;
    use tokio::time::sleep;

    use super::*;

    #[tokio::test]
    async fn callers_during_a_barrier_share_the_next_one() {
        let (barriers, asked) = (Barriers::default(), Cell::new(0));
        let one = || {
            barriers.pass(async {
                asked.set(asked.get() + 1);
                sleep(Duration::from_millis(1)).await;
                Ok(())
            })
        };
        let passed = join_all((0..100).map(|_| one())).await;
        assert!(passed.iter().all(Result::is_ok));
        assert_eq!(asked.get(), 2, "what began before somebody came says nothing to him");
        assert!(one().await.is_ok());
        assert_eq!(asked.get(), 3);
    }

    #[tokio::test]
    async fn failed_barrier_fails_its_callers() {
        let (barriers, asked) = (Barriers::default(), Cell::new(0));
        let one = || {
            barriers.pass(async {
                asked.set(asked.get() + 1);
                Err(Unavailable::NotLeader)
            })
        };
        let passed = join_all((0..3).map(|_| one())).await;
        assert!(passed.iter().all(Result::is_err));
        assert_eq!(asked.get(), 3);
    }
}
