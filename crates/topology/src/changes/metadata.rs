//! Changes of the description, tags and settings of a virtual host.

use documents::{Change, DocumentRef, WritePrecondition};

use super::{AttemptOutcome, Attempts};
use crate::error::ChangeError;
use crate::store::VHOST_METADATA;
use crate::virtual_host::{METADATA_NAME, Metadata, VirtualHost};

impl VirtualHost {
    fn metadata_stored(&self, version: u64) -> DocumentRef {
        let name = documents::join(&[self.name(), METADATA_NAME]);
        DocumentRef { space: VHOST_METADATA, name, version }
    }

    /// Changes the metadata by `change`; this node applies it before this returns. The caller checks the values.
    pub async fn set_metadata(
        &self,
        change: impl Fn(&Metadata) -> Metadata + Send,
    ) -> Result<(), ChangeError> {
        let mut attempts = Attempts::default();
        loop {
            self.refresh().await?;
            let (before, version) = self.metadata_versioned();
            let wanted = change(&before);
            if wanted == *before {
                return Ok(());
            }
            let stored = self.metadata_stored(version);
            let mut made = Change::new();
            made.put(VHOST_METADATA, stored.name, &wanted, WritePrecondition::Version(version))?;
            if let AttemptOutcome::Done = self.make(made, &mut attempts).await? {
                return Ok(());
            }
        }
    }

    /// Rejects the deletion of a protected vhost. Unchanged metadata is a condition of the change.
    pub(crate) fn check_unprotected(&self, change: &mut Change) -> Result<(), ChangeError> {
        let (metadata, version) = self.metadata_versioned();
        if metadata.protected_from_deletion {
            return Err(ChangeError::ProtectedVirtualHost(self.name().to_owned()));
        }
        let stored = self.metadata_stored(version);
        change.check_version(VHOST_METADATA, stored.name, version);
        Ok(())
    }
}
