//! SCRAM credentials of users, as Kafka's requests list and change them: one mechanism at a time.

use std::sync::Arc;

use passwords::Verifiers;
use scram::{Hash, Verifier};

use super::Users;
use crate::error::UserError;

/// A SCRAM mechanism of a user, and its iterations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScramCredential {
    pub hash: Hash,
    pub iterations: u32,
}

impl Users {
    /// `None`: there is no such user, or it has no document.
    pub fn scram_credentials(&self, name: &str) -> Option<Vec<ScramCredential>> {
        let account = self.account(name)?;
        let of = |it: &Verifier| ScramCredential { hash: it.hash(), iterations: it.iterations() };
        let mut credentials: Vec<_> = account.secret.scram().iter().map(of).collect();
        credentials.sort_by_key(|credential| credential.hash);
        Some(credentials)
    }

    /// Sets the verifier of a mechanism. Creates the user, without any rights, if there is none.
    pub async fn set_scram_credential(
        &self,
        name: &str,
        verifier: Verifier,
    ) -> Result<(), UserError> {
        loop {
            let changed = self
                .change(name, |account| {
                    account.secret = Arc::new(account.secret.with(verifier.clone()));
                    Ok(())
                })
                .await;
            if !matches!(changed, Err(UserError::NotFound(_))) {
                return changed;
            }
            let scram = vec![verifier.to_string()];
            let added =
                self.add(name, Verifiers { password_hash: None, rabbitmq: None, scram }).await;
            // A concurrent request may have created it.
            if !matches!(added, Err(UserError::Exists(_))) {
                return added;
            }
        }
    }

    /// Removes the verifier of a mechanism; a user without another way to log in is deleted.
    pub async fn delete_scram_credential(&self, name: &str, hash: Hash) -> Result<(), UserError> {
        let missing = || UserError::NoCredential { user: name.to_owned(), hash };
        let account = self.account(name).ok_or_else(missing)?;
        account.secret.verifier(hash).ok_or_else(missing)?;
        if account.secret.without(hash).is_none() {
            return self.delete(name).await;
        }
        self.change(name, |account| {
            account.secret = Arc::new(account.secret.without(hash).ok_or_else(missing)?);
            Ok(())
        })
        .await
    }
}
