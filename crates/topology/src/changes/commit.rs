//! Optimistic changes: planned from memory, committed by one command of the log if the inputs are unchanged, planned
//! again otherwise.

use broker::{ExecuteError, Refusal, Unavailable};
use documents::{Change, DocumentRef, StoreError};

use crate::error::ChangeError;
use crate::store::{DocumentId, VHOSTS};
use crate::virtual_host::{Registry, VirtualHost};

/// Most attempts of a change. Repeated conflicts occur only when many clients change one entity at once.
const ATTEMPTS_MAX: u32 = 100;

/// Outcome of an attempt.
pub(crate) enum AttemptOutcome {
    Done,
    /// A condition of the change failed; memory has been updated.
    Again,
}

/// Attempts of one change.
#[derive(Debug, Default)]
pub(crate) struct Attempts(u32);

impl Registry {
    /// Commits a change. Memory contains it when this returns.
    pub(crate) async fn make(
        &self,
        change: Change,
        attempts: &mut Attempts,
    ) -> Result<AttemptOutcome, StoreError> {
        let made = change.make(&self.broker).await;
        self.catch_up();
        attempts.0 += 1;
        match made {
            Ok(()) => Ok(AttemptOutcome::Done),
            Err(error) if is_outdated(&error) && attempts.0 < ATTEMPTS_MAX => {
                // This node's copy may stay outdated for longer than all attempts take.
                self.broker.catalog_is_current().await.map_err(ExecuteError::from)?;
                self.catch_up();
                // Stale documents may conflict with the change.
                if attempts.0 > 1 {
                    self.delete_stale().await?;
                }
                Ok(AttemptOutcome::Again)
            }
            Err(error) if is_unanswered(&error) && attempts.0 < ATTEMPTS_MAX => {
                // The catalog's leader was lost, and the change may have been committed. Memory shows it once it is
                // current. A late commit is rejected, since it names the earlier versions.
                self.broker.catalog_is_current().await.map_err(ExecuteError::from)?;
                self.catch_up();
                Ok(AttemptOutcome::Again)
            }
            Err(error) => Err(error),
        }
    }

    /// Deletes stale documents.
    pub(crate) async fn delete_stale(&self) -> Result<(), StoreError> {
        let stale = self.shared.kept.stale();
        let stored = stale.into_iter().map(|((space, name), version): (DocumentId, u64)| {
            DocumentRef { space, name: name.to_string(), version }
        });
        documents::store::delete_all(&self.broker, &stored.collect::<Vec<_>>()).await?;
        self.catch_up();
        Ok(())
    }
}

impl VirtualHost {
    /// Like [`Registry::make`], on the condition that the vhost exists.
    pub(crate) async fn make(
        &self,
        mut change: Change,
        attempts: &mut Attempts,
    ) -> Result<AttemptOutcome, ChangeError> {
        let topology = self.topology()?;
        if self.version() != 0 {
            change.check_version(VHOSTS, documents::join(&[self.name()]), self.version());
        }
        let made = topology.make(change, attempts).await?;
        if matches!(made, AttemptOutcome::Again) && !topology.has(self) {
            return Err(ChangeError::VirtualHostGone(self.name().to_owned()));
        }
        Ok(made)
    }

    /// Applies all changed documents to memory.
    pub(crate) fn catch_up(&self) {
        if let Ok(topology) = self.topology() {
            topology.catch_up();
        }
    }

    /// Applies all changes that any node made before the call. Every reply on the existence or absence of an entity
    /// follows such a refresh. On a node that is alone it costs nothing.
    #[tasks::boxed]
    pub async fn refresh(&self) -> Result<(), StoreError> {
        if !self.broker().is_alone() {
            self.broker().catalog_is_current().await.map_err(ExecuteError::from)?;
            self.catch_up();
        }
        Ok(())
    }
}

/// Returns whether the change was based on outdated state.
fn is_outdated(error: &StoreError) -> bool {
    let StoreError::Execute(ExecuteError::Refused(refusal)) = error else { return false };
    matches!(
        refusal,
        Refusal::DocumentConflict { .. }
            | Refusal::UnknownTopic { .. }
            | Refusal::TopicExists { .. }
            | Refusal::TopicCollision { .. }
    )
}

/// Returns whether it is unknown if the change was committed.
fn is_unanswered(error: &StoreError) -> bool {
    matches!(error, StoreError::Execute(ExecuteError::Unavailable(Unavailable::Unanswered)))
}
