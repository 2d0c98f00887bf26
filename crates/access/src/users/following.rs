//! Keeps memory in step with the documents, whichever node changes them.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use broker::{DocumentChanges, DocumentWatch, ExecuteError};

use super::account::Account;
use super::store::UserDocumentState;
use super::{Inner, Users, rules, store, user_limits};
use crate::error::{OpenError, UserError};
use crate::user_name::GUEST;

impl Users {
    /// A user by its document, or the default user.
    pub(crate) fn current(&self, name: &str) -> Result<Option<Account>, OpenError> {
        Ok(match store::one(&self.0.broker, name)? {
            Some(UserDocumentState::User(account)) => Some(account),
            Some(UserDocumentState::Gone(_)) => None,
            None => self.account_by_default(name),
        })
    }

    /// The default user, if it exists without a document.
    pub(crate) fn account_by_default(&self, name: &str) -> Option<Account> {
        let is_there = name == GUEST && self.0.settings.is_empty();
        is_there.then(Account::guest)?.ok()
    }

    pub(super) fn take_changes(&self) {
        // Held until memory is up to date, so that a concurrent caller finds all changes.
        let documents = self.0.documents.lock();
        let read = match documents.take() {
            DocumentChanges::Named(names) if names.is_empty() => return,
            DocumentChanges::All => {
                vec![self.read_accounts(), self.read_rules(), self.read_limits()]
            }
            DocumentChanges::Named(names) => {
                let read = names.iter().map(|(space, name)| match &**space {
                    rules::SPACE => self.read_rules(),
                    user_limits::SPACE => self.read_limits(),
                    _ => self.refresh(&documents::split(name).concat()),
                });
                read.collect()
            }
        };
        for error in read.into_iter().filter_map(Result::err) {
            // A later version may have written it: the last known state is kept.
            tracing::error!(%error, "a user, the rules or the limits cannot be read");
        }
        self.notify_changed();
    }

    /// Reads all users into memory.
    pub(crate) fn read_accounts(&self) -> Result<(), OpenError> {
        let mut names: BTreeSet<Arc<str>> = self.0.accounts.read().keys().cloned().collect();
        names.insert(Arc::from(GUEST));
        names.extend(store::names(&self.0.broker));
        names.iter().try_for_each(|name| self.refresh(name))
    }

    /// Brings memory up to date with all changes before the call. Callers use it before they reject an unknown user,
    /// which another node may have just created.
    pub async fn catch_up(&self) -> Result<(), UserError> {
        if self.0.broker.is_alone() {
            return Ok(());
        }
        let current = self.0.broker.catalog_is_current().await;
        current.map_err(|error| UserError::Storage(ExecuteError::from(error).into()))?;
        self.take_changes();
        Ok(())
    }

    /// A user, also one that another node has just created.
    pub(crate) async fn known(&self, name: &str) -> Result<Option<Account>, UserError> {
        if let Some(account) = self.current(name)? {
            return Ok(Some(account));
        }
        self.catch_up().await?;
        Ok(self.current(name)?)
    }

    /// Reads a user into memory. The document is read under the lock, so that older state never replaces newer.
    pub(crate) fn refresh(&self, name: &str) -> Result<(), OpenError> {
        let mut accounts = self.0.accounts.write();
        match self.current(name)? {
            Some(mut account) => {
                if let Some(known) = accounts.get(name) {
                    account.learn_from(known);
                }
                accounts.insert(Arc::clone(&account.name), Arc::new(account));
            }
            None => {
                accounts.remove(name);
            }
        }
        Ok(())
    }
}

/// Applies changes of all nodes until the users are dropped.
pub(crate) async fn follow(users: Weak<Inner>, documents: DocumentWatch) {
    while documents.changed().await {
        documents.take();
        let Some(users) = users.upgrade().map(Users) else { return };
        users.take_changes();
    }
}
