//! A user, in memory and as a document.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use access_rules::Permissions;
use passwords::{GUEST_HASH, PasswordError, Secret, Verifiers};
use serde::{Deserialize, Serialize};

use crate::permissions::{Grant, PatternError, Patterns, check_permissions};
use crate::tags::Tags;
use crate::user_name::GUEST;

/// The virtual host in which `guest` has all permissions; it exists from the start.
const GUEST_VIRTUAL_HOST: &str = "/";

#[derive(Clone, Debug)]
pub(crate) struct Account {
    pub(crate) name: Arc<str>,
    /// Version of its document; 0: it has none.
    pub(crate) version: u64,
    pub(crate) secret: Arc<Secret>,
    /// Keyed by virtual host.
    pub(crate) permissions: BTreeMap<Arc<str>, Arc<CompiledPermissions>>,
    pub(crate) tags: Tags,
}

#[derive(Debug)]
pub(crate) struct CompiledPermissions {
    set: Permissions,
    /// Compiled on first use: a user who never logs in costs only the text.
    patterns: OnceLock<Arc<Patterns>>,
}

impl CompiledPermissions {
    pub(crate) fn new(set: Permissions) -> Arc<Self> {
        Arc::new(Self { set, patterns: OnceLock::new() })
    }

    pub(crate) fn grant(&self) -> Option<Grant> {
        if let Some(patterns) = self.patterns.get() {
            return Some(Grant::of(Arc::clone(patterns)));
        }
        // The patterns were validated when they were set.
        let compiled = Arc::new(Patterns::compile(&self.set).ok()?);
        Some(Grant::of(Arc::clone(self.patterns.get_or_init(|| compiled))))
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct UserDocument {
    /// Without any verifier the user is deleted. Only the default user has such a document.
    #[serde(flatten)]
    verifiers: Verifiers,
    #[serde(default)]
    permissions: BTreeMap<String, Permissions>,
    #[serde(default, skip_serializing_if = "Tags::is_empty")]
    tags: Tags,
}

impl UserDocument {
    /// Marks the default user as deleted.
    pub(crate) const GONE: Self = Self {
        verifiers: Verifiers { password_hash: None, rabbitmq: None, scram: Vec::new() },
        permissions: BTreeMap::new(),
        tags: Tags::NONE,
    };
}

/// Reason why a document cannot be used.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub(crate) enum AccountError {
    #[error(transparent)]
    Password(#[from] PasswordError),
    #[error(transparent)]
    Pattern(#[from] PatternError),
}

impl Account {
    pub(crate) fn guest() -> Result<Self, PasswordError> {
        let secret = Arc::new(Secret::new(&GUEST_HASH.to_owned().into())?);
        let all = CompiledPermissions::new(Permissions::everything());
        let permissions = BTreeMap::from([(Arc::from(GUEST_VIRTUAL_HOST), all)]);
        Ok(Self {
            name: Arc::from(GUEST),
            version: 0,
            secret,
            permissions,
            tags: Tags::administrator(),
        })
    }

    /// `None`: the document marks the user as deleted.
    pub(crate) fn from_document(
        name: &str,
        version: u64,
        document: UserDocument,
    ) -> Result<Option<Self>, AccountError> {
        if document.verifiers == UserDocument::GONE.verifiers {
            return Ok(None);
        }
        let secret = Arc::new(Secret::new(&document.verifiers)?);
        let mut permissions = BTreeMap::new();
        for (virtual_host, set) in document.permissions {
            check_permissions(&set)?;
            permissions.insert(Arc::from(virtual_host), CompiledPermissions::new(set));
        }
        let tags = document.tags;
        Ok(Some(Self { name: Arc::from(name), version, secret, permissions, tags }))
    }

    pub(crate) fn document(&self) -> UserDocument {
        let permissions = self.permissions_set().into_iter();
        UserDocument {
            verifiers: self.secret.verifiers(),
            permissions: permissions.map(|(name, set)| (name.to_string(), set)).collect(),
            tags: self.tags.clone(),
        }
    }

    /// Takes over cached state of an earlier account of the same user, where it still applies: the last right
    /// password, and compiled patterns.
    pub(crate) fn learn_from(&mut self, known: &Self) {
        if known.secret == self.secret {
            self.secret = Arc::clone(&known.secret);
        }
        for (virtual_host, granted) in &mut self.permissions {
            match known.permissions.get(virtual_host) {
                Some(known) if known.set == granted.set => *granted = Arc::clone(known),
                _ => {}
            }
        }
    }

    pub(crate) fn permissions_set(&self) -> BTreeMap<Arc<str>, Permissions> {
        let set = self.permissions.iter();
        set.map(|(name, granted)| (Arc::clone(name), granted.set.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_document_keeps_its_format() {
        let text = format!(
            r#"{{"password_hash":"{GUEST_HASH}","permissions":{{"/":{{"configure":".*","write":".*","read":".*"}}}},"tags":["administrator"]}}"#
        );
        let guest = Account::guest().expect("guest's hash is one");
        assert_eq!(serde_json::to_string(&guest.document()).expect("JSON"), text);
        let read: UserDocument = serde_json::from_str(&text).expect("a document");
        let read = Account::from_document(GUEST, 7, read).expect("of use").expect("a user");
        assert_eq!((read.version, read.permissions_set()), (7, guest.permissions_set()));
        let gone = r#"{"password_hash":null,"permissions":{}}"#;
        assert_eq!(serde_json::to_string(&UserDocument::GONE).expect("JSON"), gone);
        let read: UserDocument = serde_json::from_str(r#"{"password_hash":null}"#).expect("read");
        assert!(Account::from_document(GUEST, 1, read).expect("of use").is_none());
    }
}
