//! Who may log in, and what each may do in which vhost.
//!
//! A user is one document, with the hash of the password and the permissions in every vhost: what
//! is deleted or changed about somebody is one entry of the log, and there is nothing that could be
//! left over. Sessions hold what they may do, and look again when the catalog says that something
//! changed.
//!
//! Two kinds of users are there without a document. Those of the node's settings may do everything,
//! and only whoever writes the settings can change that. `guest`, RabbitMQ's default user, is there
//! while the settings name nobody and no document says otherwise; it can do everything in `/`, and
//! connects from this machine only, whatever is changed about it.
//!
//! * `password`: what is kept of a password; `permissions`: what a user may do

mod password;
mod permissions;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use base::limits::{AMQP_PASSWORD_CHECKS_AT_ONCE_MAX, AMQP_USERS_MAX};
use broker::Document;
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use tasks::Task;
use tokio::sync::Semaphore;

use super::Catalog;
use super::documents::{self, Stored};
use super::recovery::OpenError;
use crate::errors::Exception;
use crate::names::DEFAULT_VHOST;
use crate::options::User;

use password::{GUEST_HASH, Secret, same};
use permissions::Patterns;

pub use password::{PasswordError, hash_password};
pub use permissions::{PatternError, Permissions};
pub(crate) use permissions::{Permission, Rights};

/// The space of their documents.
const USERS: &str = "amqp.users";
/// RabbitMQ's default user.
const GUEST: &str = "guest";
/// A short string on the wire.
const USER_NAME_BYTES_MAX: usize = 255;

/// Users and their permissions. Clones share them.
#[derive(Clone, Debug)]
pub struct Users(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    catalog: Catalog,
    /// Those of the node's settings.
    settings: Vec<User>,
    accounts: RwLock<BTreeMap<Arc<str>, Arc<Account>>>,
    /// What is looked at instead where there is no such user.
    nobody: Arc<Secret>,
    /// Held by whoever changes a user.
    changes: tokio::sync::Mutex<()>,
    /// Each check of a password holds 19 MiB and a core for its time.
    checks: Semaphore,
}

#[derive(Clone, Debug)]
struct Account {
    name: Arc<str>,
    secret: Arc<Secret>,
    /// By vhost.
    permissions: BTreeMap<Arc<str>, Arc<Granted>>,
}

#[derive(Debug)]
struct Granted {
    set: Permissions,
    /// Made when it is first needed: a user who never comes costs its text.
    patterns: OnceLock<Arc<Patterns>>,
}

impl Granted {
    fn new(set: Permissions) -> Arc<Self> {
        Arc::new(Self { set, patterns: OnceLock::new() })
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct UserDocument {
    /// `None`: there is no such user. Only of the default one is that ever said.
    password_hash: Option<String>,
    #[serde(default)]
    permissions: BTreeMap<String, Permissions>,
}

/// A user as it is listed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedUser {
    pub name: Arc<str>,
    /// May do everything, and cannot be changed: the node's settings name it.
    pub of_settings: bool,
    pub loopback_only: bool,
    /// By vhost.
    pub permissions: BTreeMap<Arc<str>, Permissions>,
}

#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum UserError {
    #[error("a user has a name of 1 to {USER_NAME_BYTES_MAX} bytes")]
    Name,
    #[error("user {0} is there already")]
    Exists(String),
    #[error("there is no user {0}")]
    NotFound(String),
    #[error("user {0} is one of the node's settings (amqp-user), and is changed there")]
    OfSettings(String),
    #[error("there are {AMQP_USERS_MAX} users already")]
    TooMany,
    #[error("there is no vhost {0}")]
    NoSuchVhost(String),
    #[error("user {user} has no permissions in vhost {vhost}")]
    NoPermissions { user: String, vhost: String },
    #[error(transparent)]
    Password(#[from] PasswordError),
    #[error(transparent)]
    Pattern(#[from] PatternError),
    #[error("it could not be stored: {0}")]
    Storage(#[from] Exception),
}

impl Users {
    /// Reads what is kept, and takes away what is said of vhosts that are gone.
    pub async fn open(catalog: &Catalog, settings: Vec<User>) -> Result<Self, OpenError> {
        let mut accounts = BTreeMap::new();
        let guest = Account::guest().map_err(|error| inconsistent(GUEST, &error))?;
        let nobody = Arc::clone(&guest.secret);
        if settings.is_empty() {
            accounts.insert(Arc::clone(&guest.name), Arc::new(guest));
        }
        let mut stale = Vec::new();
        for (name, document) in read(catalog)? {
            let Some(account) = Account::of_document(&name, document)? else {
                accounts.remove(&*name);
                continue;
            };
            let mut kept = account.clone();
            kept.permissions.retain(|vhost, _| catalog.vhost(vhost).is_some());
            if kept.permissions.len() != account.permissions.len() {
                stale.push(kept.clone());
            }
            accounts.insert(Arc::clone(&kept.name), Arc::new(kept));
        }
        let users = Self(Arc::new(Inner {
            catalog: catalog.clone(),
            settings,
            accounts: RwLock::new(accounts),
            nobody,
            changes: tokio::sync::Mutex::new(()),
            checks: Semaphore::new(AMQP_PASSWORD_CHECKS_AT_ONCE_MAX),
        }));
        for account in stale {
            users.keep(account).await?;
        }
        Ok(users)
    }

    // ----------------------------------------------------------------------------- logging in

    /// Whether the password is the user's, where that can be said at once.
    pub(crate) fn knows(&self, name: &str, password: &str) -> Option<bool> {
        if let Some(user) = self.of_settings(name) {
            return Some(same(user.password.as_bytes(), password.as_bytes()));
        }
        let account = self.account(name)?;
        account.secret.is_right_again(password).then_some(true)
    }

    /// Whether the password is the user's. Takes as long for a user that is not there.
    pub(crate) async fn verify(&self, name: &str, password: String) -> bool {
        let account = self.account(name);
        let secret = account.as_ref().map_or(&self.0.nobody, |account| &account.secret);
        let secret = Arc::clone(secret);
        let Ok(_permit) = self.0.checks.acquire().await else { return false };
        let checked = self
            .0
            .catalog
            .broker()
            .workers()
            .blocking(Task::AmqpPassword, move || secret.is_right(&password));
        checked.await.unwrap_or(false) && account.is_some()
    }

    /// Whether somebody may connect from there.
    pub(crate) fn may_come_from(&self, name: &str, peer: IpAddr) -> bool {
        !self.is_loopback_only(name) || peer.to_canonical().is_loopback()
    }

    pub(crate) fn exists(&self, name: &str) -> bool {
        self.of_settings(name).is_some() || self.0.accounts.read().contains_key(name)
    }

    /// What a user may do in a vhost; `None`: not even open it.
    pub(crate) fn rights(&self, name: &str, vhost: &str) -> Option<Rights> {
        if self.of_settings(name).is_some() {
            return Some(Rights::new(&Arc::from(name), None));
        }
        let account = self.account(name)?;
        let granted = account.permissions.get(vhost)?;
        let patterns = granted.patterns.get().cloned().or_else(|| {
            // They were checked when they were set.
            let compiled = Arc::new(granted.set.compile().ok()?);
            Some(Arc::clone(granted.patterns.get_or_init(|| compiled)))
        });
        patterns.map(|patterns| Rights::new(&account.name, Some(patterns)))
    }

    fn account(&self, name: &str) -> Option<Arc<Account>> {
        self.0.accounts.read().get(name).cloned()
    }

    fn of_settings(&self, name: &str) -> Option<&User> {
        self.0.settings.iter().find(|user| user.name == name)
    }

    fn is_loopback_only(&self, name: &str) -> bool {
        name == GUEST && self.of_settings(name).is_none()
    }

    // ------------------------------------------------------------------------------- changing

    /// Makes a user, who may do nothing yet. The hash is [`hash_password`]'s.
    pub async fn add(&self, name: &str, password_hash: String) -> Result<(), UserError> {
        if name.is_empty() || name.len() > USER_NAME_BYTES_MAX {
            return Err(UserError::Name);
        }
        self.refuse_settings(name)?;
        let secret = Arc::new(Secret::new(password_hash)?);
        let _changing = self.0.changes.lock().await;
        let (known, count) = {
            let accounts = self.0.accounts.read();
            (accounts.contains_key(name), accounts.len())
        };
        if known {
            return Err(UserError::Exists(name.to_owned()));
        }
        if count >= AMQP_USERS_MAX {
            return Err(UserError::TooMany);
        }
        let account = Account { name: Arc::from(name), secret, permissions: BTreeMap::new() };
        Ok(self.keep(account).await?)
    }

    /// Connections that are open stay so.
    pub async fn set_password(&self, name: &str, password_hash: String) -> Result<(), UserError> {
        let secret = Arc::new(Secret::new(password_hash)?);
        self.change(name, |account| {
            account.secret = secret;
            Ok(())
        })
        .await
    }

    /// Gives a user these permissions in a vhost, and no others.
    pub async fn allow(&self, name: &str, vhost: &str, set: Permissions) -> Result<(), UserError> {
        set.compile()?;
        self.change(name, |account| {
            if self.0.catalog.vhost(vhost).is_none() {
                return Err(UserError::NoSuchVhost(vhost.to_owned()));
            }
            account.permissions.insert(Arc::from(vhost), Granted::new(set));
            Ok(())
        })
        .await
    }

    /// Takes a vhost from a user, whose connections to it are closed.
    pub async fn deny(&self, name: &str, vhost: &str) -> Result<(), UserError> {
        self.change(name, |account| match account.permissions.remove(vhost) {
            Some(_) => Ok(()),
            None => {
                let (user, vhost) = (name.to_owned(), vhost.to_owned());
                Err(UserError::NoPermissions { user, vhost })
            }
        })
        .await
    }

    /// Deletes a user, whose connections are closed.
    pub async fn delete(&self, name: &str) -> Result<(), UserError> {
        self.refuse_settings(name)?;
        let _changing = self.0.changes.lock().await;
        if self.account(name).is_none() {
            return Err(UserError::NotFound(name.to_owned()));
        }
        let broker = self.0.catalog.broker();
        let kept = documents::name(&[name]);
        if name == GUEST {
            // Otherwise it would be back after a restart.
            let gone = UserDocument { password_hash: None, permissions: BTreeMap::new() };
            documents::put(broker, USERS, kept, &gone).await?;
        } else if let Some(version) = documents::version(broker, USERS, &kept) {
            documents::delete(broker, &Stored { space: USERS, name: kept, version }).await?;
        }
        self.0.accounts.write().remove(name);
        self.0.catalog.note_change();
        Ok(())
    }

    /// A vhost is gone, and with it what anybody may do there.
    pub async fn forget_vhost(&self, vhost: &str) -> Result<(), UserError> {
        let _changing = self.0.changes.lock().await;
        let accounts: Vec<Arc<Account>> = self.0.accounts.read().values().cloned().collect();
        let changed = accounts.into_iter().filter_map(|account| {
            let mut account = Account::clone(&account);
            account.permissions.remove(vhost).map(|_| self.keep(account))
        });
        futures_util::future::try_join_all(changed).await?;
        Ok(())
    }

    fn refuse_settings(&self, name: &str) -> Result<(), UserError> {
        match self.of_settings(name) {
            Some(_) => Err(UserError::OfSettings(name.to_owned())),
            None => Ok(()),
        }
    }

    async fn change(
        &self,
        name: &str,
        change: impl FnOnce(&mut Account) -> Result<(), UserError>,
    ) -> Result<(), UserError> {
        self.refuse_settings(name)?;
        let _changing = self.0.changes.lock().await;
        let known = self.account(name).ok_or_else(|| UserError::NotFound(name.to_owned()))?;
        let mut account = Account::clone(&known);
        change(&mut account)?;
        Ok(self.keep(account).await?)
    }

    /// Makes a user durable as it is to be, and then known.
    async fn keep(&self, account: Account) -> Result<(), Exception> {
        let kept = documents::name(&[&account.name]);
        documents::put(self.0.catalog.broker(), USERS, kept, &account.document()).await?;
        self.0.accounts.write().insert(Arc::clone(&account.name), Arc::new(account));
        self.0.catalog.note_change();
        Ok(())
    }

    // -------------------------------------------------------------------------------- looking

    /// Sorted by name.
    pub fn list(&self) -> Vec<ListedUser> {
        let accounts: Vec<Arc<Account>> = self.0.accounts.read().values().cloned().collect();
        let of_settings = |name: &str| self.of_settings(name).is_some();
        let accounts = accounts.iter().filter(|account| !of_settings(&account.name));
        let mut listed: Vec<_> = accounts
            .map(|account| ListedUser {
                name: Arc::clone(&account.name),
                of_settings: false,
                loopback_only: self.is_loopback_only(&account.name),
                permissions: account.permissions_set(),
            })
            .collect();
        listed.extend(self.0.settings.iter().map(|user| ListedUser {
            name: Arc::from(&*user.name),
            of_settings: true,
            loopback_only: false,
            permissions: BTreeMap::new(),
        }));
        listed.sort_by(|a, b| a.name.cmp(&b.name));
        listed
    }
}

impl Account {
    fn guest() -> Result<Self, PasswordError> {
        let secret = Arc::new(Secret::new(GUEST_HASH.to_owned())?);
        let all = Granted::new(Permissions::everything());
        let permissions = BTreeMap::from([(Arc::from(DEFAULT_VHOST), all)]);
        Ok(Self { name: Arc::from(GUEST), secret, permissions })
    }

    /// `None`: the document says that there is no such user.
    fn of_document(name: &str, document: UserDocument) -> Result<Option<Self>, OpenError> {
        let Some(hash) = document.password_hash else { return Ok(None) };
        let secret = Secret::new(hash).map_err(|error| inconsistent(name, &error))?;
        let mut permissions = BTreeMap::new();
        for (vhost, set) in document.permissions {
            set.compile().map_err(|error| inconsistent(name, &error))?;
            permissions.insert(Arc::from(vhost), Granted::new(set));
        }
        Ok(Some(Self { name: Arc::from(name), secret: Arc::new(secret), permissions }))
    }

    fn document(&self) -> UserDocument {
        let permissions = self.permissions_set().into_iter();
        UserDocument {
            password_hash: Some(self.secret.hash().to_owned()),
            permissions: permissions.map(|(vhost, set)| (vhost.to_string(), set)).collect(),
        }
    }

    fn permissions_set(&self) -> BTreeMap<Arc<str>, Permissions> {
        let set = self.permissions.iter();
        set.map(|(vhost, granted)| (Arc::clone(vhost), granted.set.clone())).collect()
    }
}

fn read(catalog: &Catalog) -> Result<Vec<(String, UserDocument)>, OpenError> {
    let raw = documents::all(catalog.broker(), USERS);
    let decode =
        |(name, Document { body, .. }): (String, Document)| match serde_json::from_slice(&body) {
            Ok(document) => Ok((documents::parts(&name).concat(), document)),
            Err(source) => Err(OpenError::Malformed { space: USERS, name, source }),
        };
    raw.into_iter().map(decode).collect()
}

fn inconsistent(user: &str, reason: &dyn std::fmt::Display) -> OpenError {
    let name = documents::name(&[user]);
    OpenError::Inconsistent { space: USERS, name, reason: reason.to_string() }
}
