//! Users: who there is, and changes of them.
//!
//! The documents are what is kept, and memory follows them: a change is judged by the document,
//! written under the condition that nobody else has written it since, and only then read into
//! memory. What other nodes change comes the same way, by a watch of the documents. So two changes of one user may come at the same time and none is lost, without a lock
//! that only this node would know of. Sessions hold what they may do, and look again when
//! [`Users::changes`] says that something changed.
//!
//! Two kinds of users are there without a document. Those of the node's settings may do everything,
//! and only whoever writes the settings can change that. `guest`, RabbitMQ's default user, is there
//! while the settings name nobody and no document says otherwise; it can do everything in `/`, and
//! connects from this machine only, whatever is changed about it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use base::limits::{ACCESS_RULES_MAX, AMQP_USERS_MAX};
use broker::{Broker, DocumentWatch};
use documents::StoreError;
use parking_lot::{Mutex, RwLock};
use scram::Hash;
use tasks::Task;
use tokens::Tokens;
use tokio::sync::watch;

use crate::account::{Account, GUEST, Granted};
use crate::acl::Rule;
use crate::audit::Audit;
use crate::certificate::CertificateMapping;
use crate::failures::Failures;
use crate::limits::{self, LimitOf, Limits};
use crate::login_ports::LoginPorts;
use crate::login_queue::LoginQueue;
use crate::password::PasswordError;
use crate::permissions::{Grant, PatternError, Permissions};
use crate::proof::Proofs;
use crate::secret::{Secret, Verifiers};
use crate::store::{self, Known, OpenError};
use crate::tags::Tags;
use crate::{following, rules};

/// Where the documents are that are followed.
const SPACES: [&str; 3] = [store::SPACE, rules::SPACE, limits::SPACE];
/// A short string of AMQP 0-9-1, the narrowest of what protocols allow.
pub(crate) const USER_NAME_BYTES_MAX: usize = 255;
/// Whoever has the operators' token logs in by this name, which no user has.
pub const OPERATOR: &str = "_operator";

/// Somebody whom the node's settings name: may log in from anywhere and do everything.
#[derive(Clone, PartialEq, Eq)]
pub struct SettingsUser {
    pub name: String,
    pub password: String,
}

impl fmt::Debug for SettingsUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SettingsUser").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Users and their permissions. Clones share them.
#[derive(Clone, Debug)]
pub struct Users(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) broker: Broker,
    pub(crate) settings: Vec<SettingsUser>,
    /// Whether there is a virtual host of this name.
    virtual_host_exists: Box<dyn Fn(&str) -> bool + Send + Sync>,
    pub(crate) accounts: RwLock<BTreeMap<Arc<str>, Arc<Account>>>,
    /// What is looked at instead where there is no such user.
    nobody: Arc<Secret>,
    pub(crate) queue: LoginQueue,
    pub(crate) login_ports: OnceLock<LoginPorts>,
    pub(crate) proofs: Proofs,
    pub(crate) failures: Failures,
    /// Tells sessions that a user changed.
    pub(crate) changed: watch::Sender<()>,
    /// What changed in documents.
    pub(crate) documents: Mutex<DocumentWatch>,
    super_users: OnceLock<Vec<String>>,
    kept_apart: OnceLock<()>,
    pub(crate) certificates: OnceLock<CertificateMapping>,
    pub(crate) tokens: OnceLock<Tokens>,
    pub(crate) audit: OnceLock<Audit>,
    pub(crate) rules: RwLock<Arc<Vec<Rule>>>,
    pub(crate) limits: RwLock<Arc<Limits>>,
    /// Another one after each change of a user or a rule.
    stamp: AtomicU64,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Users").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// A user as it is listed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedUser {
    pub name: Arc<str>,
    /// May do everything, and cannot be changed: the node's settings name it.
    pub of_settings: bool,
    pub loopback_only: bool,
    /// By virtual host.
    pub permissions: BTreeMap<Arc<str>, Permissions>,
    pub tags: Tags,
}

#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum UserError {
    #[error("a user has a name of 1 to {USER_NAME_BYTES_MAX} bytes, other than {OPERATOR}")]
    Name,
    #[error("user {0} is there already")]
    Exists(String),
    #[error("there is no user {0}")]
    NotFound(String),
    #[error(
        "user {0} is one of the node's settings (amqp-user or admin-user), and is changed there"
    )]
    OfSettings(String),
    #[error("user {user} has no credential for {}", .hash.mechanism())]
    NoCredential { user: String, hash: Hash },
    #[error("a user has at most 32 tags of 1 to 255 bytes")]
    Tags,
    #[error("there would be more than {ACCESS_RULES_MAX} rules")]
    TooManyRules,
    #[error("there are {AMQP_USERS_MAX} users already")]
    TooMany,
    #[error("there is no vhost {0}")]
    NoSuchVirtualHost(String),
    #[error("user {user} has no permissions in vhost {virtual_host}")]
    NoPermissions { user: String, virtual_host: String },
    #[error(transparent)]
    Password(#[from] PasswordError),
    #[error(transparent)]
    Pattern(#[from] PatternError),
    #[error("it could not be stored: {0}")]
    Storage(#[from] StoreError),
    /// What is kept of the user.
    #[error("{0}")]
    Unreadable(String),
}

impl From<OpenError> for UserError {
    fn from(error: OpenError) -> Self {
        Self::Unreadable(error.to_string())
    }
}

impl Users {
    /// Reads what is kept, takes away what is said of virtual hosts that are gone, and follows what any node
    /// changes from then on. `virtual_host_exists` says what this node knows by now.
    pub async fn open(
        broker: Broker,
        settings: Vec<SettingsUser>,
        virtual_host_exists: impl Fn(&str) -> bool + Send + Sync + 'static,
    ) -> Result<Self, OpenError> {
        let guest = Account::guest()
            .map_err(|error| store::inconsistent(documents::join(&[GUEST]), &error.into()))?;
        let documents = Mutex::new(broker.watch_documents(&SPACES));
        let more = broker.watch_documents(&SPACES);
        let users = Self(Arc::new(Inner {
            broker,
            settings,
            virtual_host_exists: Box::new(virtual_host_exists),
            accounts: RwLock::default(),
            nobody: guest.secret,
            queue: LoginQueue::default(),
            login_ports: OnceLock::new(),
            proofs: Proofs::default(),
            failures: Failures::default(),
            changed: watch::Sender::new(()),
            documents,
            super_users: OnceLock::new(),
            kept_apart: OnceLock::new(),
            certificates: OnceLock::new(),
            tokens: OnceLock::new(),
            audit: OnceLock::new(),
            rules: RwLock::default(),
            limits: RwLock::default(),
            stamp: AtomicU64::new(1),
        }));
        users.0.documents.lock().take();
        users.read_anew()?;
        users.read_rules()?;
        users.read_limits()?;
        for name in users.with_missing_virtual_hosts() {
            users.forget_missing_virtual_hosts(&name).await?;
        }
        let following = following::follow(Arc::downgrade(&users.0), more);
        users.0.broker.vital(Task::AmqpUsers, following);
        Ok(users)
    }

    fn with_missing_virtual_hosts(&self) -> Vec<Arc<str>> {
        let missing = |name: &Arc<str>| !(self.0.virtual_host_exists)(name);
        let accounts = self.0.accounts.read();
        let stale = accounts.values().filter(|account| account.permissions.keys().any(missing));
        stale.map(|account| Arc::clone(&account.name)).collect()
    }

    async fn forget_missing_virtual_hosts(&self, name: &str) -> Result<(), OpenError> {
        loop {
            let Some(mut account) = self.current(name)? else { return Ok(()) };
            account.permissions.retain(|name, _| (self.0.virtual_host_exists)(name));
            match store::write(&self.0.broker, &account).await {
                Err(error) if error.is_conflict() => {}
                written => {
                    written?;
                    return self.refresh(name);
                }
            }
        }
    }

    /// Becomes ready when a user has changed.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.0.changed.subscribe()
    }

    // ---------------------------------------------------------------------------- asking

    /// Whether there is anybody who logs in from elsewhere: the default user does not.
    pub fn has_any(&self) -> bool {
        let is_made = |account: &Arc<Account>| &*account.name != GUEST;
        !self.0.settings.is_empty() || self.0.accounts.read().values().any(is_made)
    }

    pub fn exists(&self, name: &str) -> bool {
        self.of_settings(name).is_some() || self.0.accounts.read().contains_key(name)
    }

    /// What a user may do in a virtual host; `None`: not even open it.
    pub(crate) fn grant(&self, name: &str, virtual_host: &str) -> Option<Grant> {
        if self.of_settings(name).is_some() {
            return Some(Grant::EVERYTHING);
        }
        self.account(name)?.permissions.get(virtual_host)?.grant()
    }

    /// The same of all of them.
    pub(crate) fn grants(&self, name: &str) -> BTreeMap<Arc<str>, Grant> {
        let Some(account) = self.account(name) else { return BTreeMap::new() };
        let granted = account.permissions.iter();
        granted.filter_map(|(host, granted)| Some((Arc::clone(host), granted.grant()?))).collect()
    }

    pub(crate) fn account(&self, name: &str) -> Option<Arc<Account>> {
        self.0.accounts.read().get(name).cloned()
    }

    /// The same as the documents have it now.
    pub(crate) fn current_account(&self, name: &str) -> Option<Arc<Account>> {
        // What cannot be read stays as it was.
        let _ = self.refresh(name);
        self.account(name)
    }

    pub(crate) fn of_settings(&self, name: &str) -> Option<&SettingsUser> {
        self.0.settings.iter().find(|user| user.name == name)
    }

    /// Names further users who may do everything; once, before anybody logs in.
    pub fn name_super_users(&self, names: Vec<String>) {
        let named = self.0.super_users.set(names);
        debug_assert!(named.is_ok(), "they were named before");
    }

    /// Has rules of Kafka's count for Kafka alone and RabbitMQ's permissions for AMQP alone; once, before anybody logs
    /// in.
    pub fn keep_protocols_apart(&self) {
        let kept = self.0.kept_apart.set(());
        debug_assert!(kept.is_ok(), "they were kept apart before");
    }

    pub(crate) fn counts_across_protocols(&self) -> bool {
        self.0.kept_apart.get().is_none()
    }

    pub(crate) fn is_super(&self, name: &str) -> bool {
        let named = self.0.super_users.get().is_some_and(|all| all.iter().any(|it| it == name));
        named || self.of_settings(name).is_some()
    }

    pub(crate) fn is_loopback_only(&self, name: &str) -> bool {
        name == GUEST && self.of_settings(name).is_none()
    }

    pub(crate) fn broker(&self) -> &Broker {
        &self.0.broker
    }

    pub(crate) fn secret_of_nobody(&self) -> &Arc<Secret> {
        &self.0.nobody
    }

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
                tags: account.tags.clone(),
            })
            .collect();
        listed.extend(self.0.settings.iter().map(|user| ListedUser {
            name: Arc::from(&*user.name),
            of_settings: true,
            loopback_only: false,
            permissions: BTreeMap::new(),
            tags: Tags::administrator(),
        }));
        listed.sort_by(|a, b| a.name.cmp(&b.name));
        listed
    }

    // -------------------------------------------------------------------------- changing

    /// Makes a user, who may do nothing yet.
    pub async fn add(&self, name: &str, verifiers: impl Into<Verifiers>) -> Result<(), UserError> {
        if name.is_empty() || name.len() > USER_NAME_BYTES_MAX || name == OPERATOR {
            return Err(UserError::Name);
        }
        self.refuse_settings(name)?;
        let secret = Arc::new(Secret::new(&verifiers.into())?);
        loop {
            let version = match store::one(&self.0.broker, name)? {
                None if self.account_by_default(name).is_none() => 0,
                Some(Known::Gone(version)) => version,
                None | Some(Known::User(_)) => return Err(UserError::Exists(name.to_owned())),
            };
            // Those that are being added at this moment are not counted: the bound is on memory,
            // and a few more are no harm.
            if self.0.accounts.read().len() >= AMQP_USERS_MAX {
                return Err(UserError::TooMany);
            }
            let (secret, permissions) = (Arc::clone(&secret), BTreeMap::new());
            let (kept, tags) = (Arc::from(name), Tags::NONE);
            let account = Account { name: kept, version, secret, permissions, tags };
            if self.take(name, store::write(&self.0.broker, &account).await)? {
                self.warn_of_log_ins();
                return Ok(());
            }
        }
    }

    /// Connections that are open stay so.
    pub async fn set_password(
        &self,
        name: &str,
        verifiers: impl Into<Verifiers>,
    ) -> Result<(), UserError> {
        let secret = Arc::new(Secret::new(&verifiers.into())?);
        self.change(name, |account| {
            account.secret = Arc::clone(&secret);
            Ok(())
        })
        .await
    }

    /// Gives a user these tags, and no others.
    pub async fn set_tags(&self, name: &str, tags: Tags) -> Result<(), UserError> {
        self.change(name, |account| {
            account.tags = tags.clone();
            Ok(())
        })
        .await
    }

    /// What a user's password is checked by; `None`: there is no such user, or none with a document.
    pub fn verifiers(&self, name: &str) -> Option<Verifiers> {
        Some(self.account(name)?.secret.verifiers())
    }

    /// Gives a user these permissions in a virtual host, and no others.
    pub async fn allow(
        &self,
        name: &str,
        virtual_host: &str,
        set: Permissions,
    ) -> Result<(), UserError> {
        set.compile()?;
        if !(self.0.virtual_host_exists)(virtual_host) {
            self.catch_up().await?;
        }
        self.change(name, |account| {
            if !(self.0.virtual_host_exists)(virtual_host) {
                return Err(UserError::NoSuchVirtualHost(virtual_host.to_owned()));
            }
            account.permissions.insert(Arc::from(virtual_host), Granted::new(set.clone()));
            Ok(())
        })
        .await
    }

    /// Takes a virtual host from a user, whose connections to it are closed.
    pub async fn deny(&self, name: &str, virtual_host: &str) -> Result<(), UserError> {
        self.change(name, |account| match account.permissions.remove(virtual_host) {
            Some(_) => Ok(()),
            None => {
                let (user, virtual_host) = (name.to_owned(), virtual_host.to_owned());
                Err(UserError::NoPermissions { user, virtual_host })
            }
        })
        .await
    }

    /// Deletes a user, whose connections are closed.
    pub async fn delete(&self, name: &str) -> Result<(), UserError> {
        self.refuse_settings(name)?;
        loop {
            let account = self.known(name).await?.ok_or_else(|| not_found(name))?;
            let deleted = if name == GUEST {
                // Otherwise it would be back after a restart.
                store::write_gone(&self.0.broker, &account).await
            } else {
                store::delete(&self.0.broker, &account).await
            };
            if self.take(name, deleted)? {
                return self.forget_limits(LimitOf::User(name)).await;
            }
        }
    }

    /// A virtual host is gone, and with it what anybody may do there.
    pub async fn forget_virtual_host(&self, virtual_host: &str) -> Result<(), UserError> {
        let accounts: Vec<Arc<Account>> = self.0.accounts.read().values().cloned().collect();
        let affected =
            accounts.iter().filter(|account| account.permissions.contains_key(virtual_host));
        let denied = affected.map(|account| async {
            match self.deny(&account.name, virtual_host).await {
                // Somebody else was faster.
                Err(UserError::NotFound(_) | UserError::NoPermissions { .. }) => Ok(()),
                denied => denied,
            }
        });
        futures_util::future::try_join_all(denied).await?;
        self.forget_limits(LimitOf::VirtualHost(virtual_host)).await
    }

    fn refuse_settings(&self, name: &str) -> Result<(), UserError> {
        match self.of_settings(name) {
            Some(_) => Err(UserError::OfSettings(name.to_owned())),
            None => Ok(()),
        }
    }

    pub(crate) async fn change(
        &self,
        name: &str,
        change: impl Fn(&mut Account) -> Result<(), UserError>,
    ) -> Result<(), UserError> {
        self.refuse_settings(name)?;
        loop {
            let mut account = self.known(name).await?.ok_or_else(|| not_found(name))?;
            change(&mut account)?;
            if self.take(name, store::write(&self.0.broker, &account).await)? {
                return Ok(());
            }
        }
    }

    /// Takes what became of a change into memory. `false`: somebody else has changed the user
    /// meanwhile, and it is to be tried again with what is there now.
    fn take(&self, name: &str, written: Result<(), StoreError>) -> Result<bool, UserError> {
        match written {
            Err(error) if error.is_conflict() => return Ok(false),
            written => written?,
        }
        self.refresh(name)?;
        self.told_of_change();
        Ok(true)
    }

    /// Sessions look at what they hold.
    pub(crate) fn told_of_change(&self) {
        self.0.stamp.fetch_add(1, Ordering::AcqRel);
        self.0.changed.send_replace(());
    }

    /// The same for as long as no user and no rule changes.
    pub(crate) fn stamp(&self) -> u64 {
        self.0.stamp.load(Ordering::Acquire)
    }
}

fn not_found(name: &str) -> UserError {
    UserError::NotFound(name.to_owned())
}
