//! How a change is made: worked out by memory, carried out by one command of the log where nothing has changed
//! meanwhile, worked out anew otherwise.

use broker::{ExecuteError, Refusal, Unavailable};
use documents::{Change, StoreError, Stored};

use crate::error::ChangeError;
use crate::projection::DocumentId;
use crate::store::VHOSTS;
use crate::topology::Inner;
use crate::virtual_host::VirtualHost;

/// How often a change is worked out. Others are faster again and again only where many change one thing at once.
const ATTEMPTS_MAX: u32 = 100;

/// What became of an attempt.
pub(crate) enum Made {
    Done,
    /// Something was not as memory had it; memory has caught up.
    Again,
}

/// Attempts of one change.
#[derive(Debug, Default)]
pub(crate) struct Attempts(u32);

impl Inner {
    /// Makes a change. Memory has it when this returns.
    pub(crate) async fn make(
        &self,
        change: Change,
        attempts: &mut Attempts,
    ) -> Result<Made, StoreError> {
        let made = change.make(&self.broker).await;
        self.catch_up();
        attempts.0 += 1;
        match made {
            Ok(()) => Ok(Made::Done),
            Err(error) if is_outdated(&error) && attempts.0 < ATTEMPTS_MAX => {
                // The copy that it was worked out by may be old for longer than all attempts take.
                self.broker.catalog_is_current().await.map_err(ExecuteError::from)?;
                self.catch_up();
                // Those stand in the way that lead to nothing, and are of no use.
                if attempts.0 > 1 {
                    self.delete_stale().await?;
                }
                Ok(Made::Again)
            }
            Err(error) if is_unanswered(&error) && attempts.0 < ATTEMPTS_MAX => {
                // The catalog's leader was lost, and the change may have been made. Memory tells once it is current; and
                // one that arrives late is refused, since it names the versions of before.
                self.broker.catalog_is_current().await.map_err(ExecuteError::from)?;
                self.catch_up();
                Ok(Made::Again)
            }
            Err(error) => Err(error),
        }
    }

    /// Deletes documents that lead to nothing.
    pub(crate) async fn delete_stale(&self) -> Result<(), StoreError> {
        let stale = self.shared.kept.stale();
        let stored = stale.into_iter().map(|((space, name), version): (DocumentId, u64)| Stored {
            space,
            name: name.to_string(),
            version,
        });
        documents::store::delete_all(&self.broker, &stored.collect::<Vec<_>>()).await?;
        self.catch_up();
        Ok(())
    }
}

impl VirtualHost {
    /// As [`Inner::make`], while the vhost is there.
    pub(crate) async fn make(
        &self,
        mut change: Change,
        attempts: &mut Attempts,
    ) -> Result<Made, ChangeError> {
        let topology = self.topology()?;
        if self.version() != 0 {
            change.check_version(VHOSTS, documents::join(&[self.name()]), self.version());
        }
        let made = topology.make(change, attempts).await?;
        if matches!(made, Made::Again) && !topology.has(self) {
            return Err(ChangeError::VirtualHostGone(self.name().to_owned()));
        }
        Ok(made)
    }

    /// Memory is what the documents say by now.
    pub(crate) fn catch_up(&self) {
        if let Ok(topology) = self.topology() {
            topology.catch_up();
        }
    }

    /// Brings memory up to all that any node changed before the call. Every answer that says of something that it is
    /// there, or that it is not, comes after it. On a node that is alone it costs nothing.
    pub async fn refresh(&self) -> Result<(), StoreError> {
        if !self.broker().is_alone() {
            self.broker().catalog_is_current().await.map_err(ExecuteError::from)?;
            self.catch_up();
        }
        Ok(())
    }
}

/// Whether a change was worked out by something that is not so any more.
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

/// Whether nobody knows if a change was made.
fn is_unanswered(error: &StoreError) -> bool {
    matches!(error, StoreError::Execute(ExecuteError::Unavailable(Unavailable::Unanswered)))
}
