//! Users, and changes of them.
//!
//! The documents are authoritative, and memory follows them. A change is validated against the document, written on
//! condition that the document has not changed since, and then read into memory. Changes of other nodes arrive
//! through a watch of the documents. So concurrent changes of one user are all applied, without a lock, which would
//! be local to a node. Sessions cache their rights, and reload them when [`Users::changes`] fires.
//!
//! Two kinds of users exist without a document. Those of the node's settings may do everything, and can be changed in
//! the settings only. `guest`, RabbitMQ's default user, exists while the settings name no user and no document
//! deletes it. It can do everything in `/`, and connects from this machine only, whatever is changed about it.

mod account;
mod following;
mod login_notice;
mod rules;
mod scram_credentials;
mod store;
pub mod user_limits;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use access_rules::acl::Rule;
use access_rules::{OPERATOR, Permissions};
use broker::{Broker, DocumentWatch};
use documents::{Change, StoreError};
use parking_lot::{Mutex, RwLock};
use passwords::{Secret, Verifiers};
use tasks::Task;
use tokens::Tokens;
use tokio::sync::watch;

use crate::audit::Audit;
use crate::certificate::CertificateMapping;
use crate::derived_verifiers::DerivedVerifiers;
use crate::error::{OpenError, UserError};
use crate::limits::AMQP_USERS_MAX;
use crate::login_ports::LoginPorts;
use crate::login_throttle::{Failures, LoginQueue};
use crate::permissions::{Grant, check_permissions};
use crate::tags::Tags;
use crate::user_name::{GUEST, USER_NAME_BYTES_MAX};
pub(crate) use account::Account;
use account::CompiledPermissions;
pub use scram_credentials::ScramCredential;
use store::UserDocumentState;
use user_limits::{LimitTarget, Limits};

/// Document spaces that memory follows.
const SPACES: [&str; 3] = [store::SPACE, rules::SPACE, user_limits::SPACE];

/// A user of the node's settings: may log in from anywhere and do everything.
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
    /// Decoy that is checked where there is no such user.
    nobody: Arc<Secret>,
    pub(crate) queue: LoginQueue,
    pub(crate) login_ports: OnceLock<LoginPorts>,
    pub(crate) derived: DerivedVerifiers,
    pub(crate) failures: Failures,
    /// Notifies sessions that a user changed.
    pub(crate) changed: watch::Sender<()>,
    /// Pending changes of documents.
    pub(crate) documents: Mutex<DocumentWatch>,
    super_users: OnceLock<Vec<String>>,
    kept_apart: OnceLock<()>,
    pub(crate) certificates: OnceLock<CertificateMapping>,
    pub(crate) tokens: OnceLock<Tokens>,
    pub(crate) audit: OnceLock<Audit>,
    pub(crate) rules: RwLock<Arc<Vec<Rule>>>,
    pub(crate) limits: RwLock<Arc<Limits>>,
    /// Changes with each change of a user or a rule.
    stamp: AtomicU64,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Users").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// A user in the list of users.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedUser {
    pub name: Arc<str>,
    /// May do everything, and cannot be changed: the node's settings name it.
    pub of_settings: bool,
    pub loopback_only: bool,
    /// Keyed by virtual host.
    pub permissions: BTreeMap<Arc<str>, Permissions>,
    pub tags: Tags,
}

impl Users {
    /// Reads all users, removes permissions in virtual hosts that no longer exist, and follows changes of all nodes.
    /// `virtual_host_exists` reflects this node's current knowledge.
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
            derived: DerivedVerifiers::default(),
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
        users.read_accounts()?;
        users.read_rules()?;
        users.read_limits()?;
        for name in users.users_with_missing_virtual_hosts() {
            users.forget_missing_virtual_hosts(&name).await?;
        }
        let following = following::follow(Arc::downgrade(&users.0), more);
        users.0.broker.vital(Task::AmqpUsers, following);
        let follower = Arc::downgrade(&users.0);
        users.0.broker.follow_catalog(follower, |users| Users(users).take_changes());
        Ok(users)
    }

    fn users_with_missing_virtual_hosts(&self) -> Vec<Arc<str>> {
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

    /// Fires when a user has changed.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.0.changed.subscribe()
    }

    // ---------------------------------------------------------------------------- queries

    /// Whether there is a user besides the default one, which cannot log in from elsewhere.
    pub fn has_any(&self) -> bool {
        let is_made = |account: &Arc<Account>| &*account.name != GUEST;
        !self.0.settings.is_empty() || self.0.accounts.read().values().any(is_made)
    }

    pub fn exists(&self, name: &str) -> bool {
        self.settings_user(name).is_some() || self.0.accounts.read().contains_key(name)
    }

    /// A user's permissions in a virtual host; `None`: it may not open it.
    pub(crate) fn grant(&self, name: &str, virtual_host: &str) -> Option<Grant> {
        if self.settings_user(name).is_some() {
            return Some(Grant::EVERYTHING);
        }
        self.account(name)?.permissions.get(virtual_host)?.grant()
    }

    /// A user's permissions in all virtual hosts.
    pub(crate) fn grants(&self, name: &str) -> BTreeMap<Arc<str>, Grant> {
        let Some(account) = self.account(name) else { return BTreeMap::new() };
        let granted = account.permissions.iter();
        granted.filter_map(|(host, granted)| Some((Arc::clone(host), granted.grant()?))).collect()
    }

    pub(crate) fn account(&self, name: &str) -> Option<Arc<Account>> {
        self.0.accounts.read().get(name).cloned()
    }

    /// The user, reread from its document.
    pub(crate) fn current_account(&self, name: &str) -> Option<Arc<Account>> {
        // On an error the known state is kept.
        let _ = self.refresh(name);
        self.account(name)
    }

    pub(crate) fn settings_user(&self, name: &str) -> Option<&SettingsUser> {
        self.0.settings.iter().find(|user| user.name == name)
    }

    /// Names further users that may do everything; called once, before clients log in.
    pub fn name_super_users(&self, names: Vec<String>) {
        let named = self.0.super_users.set(names);
        debug_assert!(named.is_ok(), "they were named before");
    }

    /// Makes permissions count for AMQP alone, and rules for everything else; called once, before clients log in.
    pub fn keep_protocols_apart(&self) {
        let kept = self.0.kept_apart.set(());
        debug_assert!(kept.is_ok(), "they were kept apart before");
    }

    pub(crate) fn counts_across_protocols(&self) -> bool {
        self.0.kept_apart.get().is_none()
    }

    pub(crate) fn is_super(&self, name: &str) -> bool {
        let named = self.0.super_users.get().is_some_and(|all| all.iter().any(|it| it == name));
        named || self.settings_user(name).is_some()
    }

    pub(crate) fn is_loopback_only(&self, name: &str) -> bool {
        name == GUEST && self.settings_user(name).is_none()
    }

    pub(crate) fn broker(&self) -> &Broker {
        &self.0.broker
    }

    /// Enables the audit; called once, before clients log in.
    pub fn set_audit(&self, audit: Audit) {
        self.0.failures.set_audit(audit.clone());
        let set = self.0.audit.set(audit);
        debug_assert!(set.is_ok(), "it was set before");
    }

    /// The audit that records the actions of users.
    pub fn audit(&self) -> Audit {
        self.0.audit.get().cloned().unwrap_or_default()
    }

    /// Wall-clock time.
    pub(crate) fn now_ms(&self) -> i64 {
        self.broker().clock().now_ms()
    }

    pub(crate) fn decoy_secret(&self) -> &Arc<Secret> {
        &self.0.nobody
    }

    /// Sorted by name.
    pub fn list(&self) -> Vec<ListedUser> {
        let accounts: Vec<Arc<Account>> = self.0.accounts.read().values().cloned().collect();
        let of_settings = |name: &str| self.settings_user(name).is_some();
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

    // -------------------------------------------------------------------------- changes

    /// Creates a user without any rights.
    pub async fn add(&self, name: &str, verifiers: impl Into<Verifiers>) -> Result<(), UserError> {
        if name.is_empty() || name.len() > USER_NAME_BYTES_MAX || name == OPERATOR {
            return Err(UserError::Name);
        }
        self.refuse_settings(name)?;
        let secret = Arc::new(Secret::new(&verifiers.into())?);
        loop {
            let version = match store::one(&self.0.broker, name)? {
                None if self.account_by_default(name).is_none() => 0,
                Some(UserDocumentState::Gone(version)) => version,
                None | Some(UserDocumentState::User(_)) => {
                    return Err(UserError::Exists(name.to_owned()));
                }
            };
            // Concurrent additions are not counted: the bound protects memory, and a few more do no harm.
            if self.0.accounts.read().len() >= AMQP_USERS_MAX {
                return Err(UserError::TooMany);
            }
            let (secret, permissions) = (Arc::clone(&secret), BTreeMap::new());
            let (kept, tags) = (Arc::from(name), Tags::NONE);
            let account = Account { name: kept, version, secret, permissions, tags };
            if self.take(name, store::write(&self.0.broker, &account).await)? {
                self.log_login_notice();
                return Ok(());
            }
        }
    }

    /// Open connections stay open.
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

    /// Replaces a user's tags.
    pub async fn set_tags(&self, name: &str, tags: Tags) -> Result<(), UserError> {
        self.change(name, |account| {
            account.tags = tags.clone();
            Ok(())
        })
        .await
    }

    /// A user's stored verifiers; `None`: there is no such user, or it has no document.
    pub fn verifiers(&self, name: &str) -> Option<Verifiers> {
        Some(self.account(name)?.secret.verifiers())
    }

    /// Replaces a user's permissions in a virtual host.
    pub async fn allow(
        &self,
        name: &str,
        virtual_host: &str,
        set: Permissions,
    ) -> Result<(), UserError> {
        check_permissions(&set)?;
        if !(self.0.virtual_host_exists)(virtual_host) {
            self.catch_up().await?;
        }
        self.change(name, |account| {
            if !(self.0.virtual_host_exists)(virtual_host) {
                return Err(UserError::NoSuchVirtualHost(virtual_host.to_owned()));
            }
            account
                .permissions
                .insert(Arc::from(virtual_host), CompiledPermissions::new(set.clone()));
            Ok(())
        })
        .await
    }

    /// Removes a user's access to a virtual host; its connections there are closed.
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

    /// Deletes a user and the rules about it in one entry of the log; its connections are closed. A later user of
    /// this name has no rights.
    pub async fn delete(&self, name: &str) -> Result<(), UserError> {
        self.refuse_settings(name)?;
        loop {
            // A rule that another node has just added is deleted, too.
            self.catch_up().await?;
            let account = self.known(name).await?.ok_or_else(|| not_found(name))?;
            let mut deletion = Change::new();
            if name == GUEST {
                // Otherwise it would be back after a restart.
                store::write_gone(&mut deletion, &account)?;
            } else {
                store::delete(&mut deletion, &account);
            }
            rules::forget_user(&mut deletion, &self.0.broker, name)?;
            let deleted = deletion.make(&self.0.broker).await;
            if deleted.is_ok() {
                self.read_rules()?;
            }
            if self.take(name, deleted)? {
                return self.forget_limits(LimitTarget::User(name)).await;
            }
        }
    }

    /// Removes all permissions and limits of a deleted virtual host.
    pub async fn forget_virtual_host(&self, virtual_host: &str) -> Result<(), UserError> {
        let accounts: Vec<Arc<Account>> = self.0.accounts.read().values().cloned().collect();
        let affected =
            accounts.iter().filter(|account| account.permissions.contains_key(virtual_host));
        let denied = affected.map(|account| async {
            match self.deny(&account.name, virtual_host).await {
                // A concurrent request was faster.
                Err(UserError::NotFound(_) | UserError::NoPermissions { .. }) => Ok(()),
                denied => denied,
            }
        });
        futures_util::future::try_join_all(denied).await?;
        self.forget_limits(LimitTarget::VirtualHost(virtual_host)).await
    }

    fn refuse_settings(&self, name: &str) -> Result<(), UserError> {
        match self.settings_user(name) {
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

    /// Reads a written change into memory. `false`: a concurrent change came first, and the caller retries on the
    /// current state.
    fn take(&self, name: &str, written: Result<(), StoreError>) -> Result<bool, UserError> {
        match written {
            Err(error) if error.is_conflict() => return Ok(false),
            written => written?,
        }
        self.refresh(name)?;
        self.notify_changed();
        Ok(true)
    }

    /// Makes sessions reload their rights.
    pub(crate) fn notify_changed(&self) {
        self.0.stamp.fetch_add(1, Ordering::AcqRel);
        self.0.changed.send_replace(());
    }

    /// Unchanged as long as all users and rules are.
    pub(crate) fn stamp(&self) -> u64 {
        self.0.stamp.load(Ordering::Acquire)
    }
}

fn not_found(name: &str) -> UserError {
    UserError::NotFound(name.to_owned())
}
