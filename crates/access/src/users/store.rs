//! Documents of users: one each, with password hash and permissions in all virtual hosts, so that a change of a user
//! is one entry of the log.

use std::sync::Arc;

use broker::Broker;
use documents::store::{put, read};
use documents::{Change, DocumentRef, LoadedDocument, StoreError, WritePrecondition};

use super::account::{Account, AccountError, UserDocument};
use crate::error::OpenError;

/// Space of the documents. Its name dates from the time when only AMQP had users.
pub(crate) const SPACE: &str = "amqp.users";

/// State of a user's document.
pub(crate) enum UserDocumentState {
    User(Account),
    /// Deleted, even if it is the default user; the version of the document.
    Gone(u64),
}

fn decode(name: &str, found: LoadedDocument<UserDocument>) -> Result<UserDocumentState, OpenError> {
    let version = found.stored.version;
    match Account::from_document(name, version, found.body) {
        Ok(Some(account)) => Ok(UserDocumentState::User(account)),
        Ok(None) => Ok(UserDocumentState::Gone(version)),
        Err(reason) => Err(inconsistent(found.stored.name, &reason)),
    }
}

pub(crate) fn inconsistent(name: String, reason: &AccountError) -> OpenError {
    OpenError::Inconsistent { space: SPACE, name, reason: reason.to_string() }
}

/// Names of all users with a document.
pub(crate) fn names(broker: &Broker) -> Vec<Arc<str>> {
    let catalog = broker.catalog();
    let documents = catalog.documents(SPACE);
    documents.map(|(name, _)| documents::split(name).concat().into()).collect()
}

/// `None`: there is no document.
pub(crate) fn one(broker: &Broker, name: &str) -> Result<Option<UserDocumentState>, OpenError> {
    let found = read::<UserDocument>(broker, SPACE, &documents::join(&[name]))?;
    found.map(|found| decode(name, found)).transpose()
}

/// Writes a user, unless its document has changed since it was read.
pub(crate) async fn write(broker: &Broker, account: &Account) -> Result<(), StoreError> {
    let name = documents::join(&[&account.name]);
    let expect = WritePrecondition::Version(account.version);
    put(broker, SPACE, name, &account.document(), expect).await.map(drop)
}

/// Writes that the user is deleted, even if it is the default user.
pub(crate) fn write_gone(change: &mut Change, account: &Account) -> Result<(), StoreError> {
    let name = documents::join(&[&account.name]);
    let expect = WritePrecondition::Version(account.version);
    change.put(SPACE, name, &UserDocument::GONE, expect)
}

pub(crate) fn delete(change: &mut Change, account: &Account) {
    let (name, version) = (documents::join(&[&account.name]), account.version);
    change.delete(&DocumentRef { space: SPACE, name, version });
}
