//! From a client's credentials to a [`Principal`].

mod certificate;
mod fingerprint;
mod proof;
pub mod sasl;
mod token;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use passwords::same;
use tasks::Task;
use world::Instant;

use crate::login_throttle::QueueFull;
use crate::principal::Principal;
use crate::users::{Account, Users};
pub use fingerprint::CredentialFingerprint;
pub use proof::Proof;

/// A name and a password, as the client sent them.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    pub name: String,
    pub password: String,
}

impl Credentials {
    pub fn from_bytes(name: &[u8], password: &[u8]) -> Self {
        let [name, password] = [name, password].map(|b| String::from_utf8_lossy(b).into_owned());
        Self { name, password }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Reason why a log-in failed, for the node's log. The client receives no reason, which would reveal which users
/// exist.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LoginError {
    #[error("user '{user}' - invalid credentials")]
    InvalidCredentials { user: String },
    #[error("user '{user}' can only connect via localhost")]
    LoopbackOnly { user: String },
    #[error("user '{user}' did not prove its password: {reason}")]
    NotProved { user: String, reason: Arc<str> },
    #[error("user '{user}' - its certificate has ended")]
    Ended { user: String },
    #[error("{reason}")]
    Token { reason: Arc<str> },
    #[error("user '{user}' - too many log-ins of the same address wait to be checked")]
    Crowded { user: String },
}

impl Users {
    /// Logs in by a password that is cheap to check: of a user in the node's settings, or one that was right before.
    /// `None`: use [`Users::log_in`], which takes longer.
    pub fn log_in_at_once(&self, credentials: &Credentials, peer: IpAddr) -> Option<Principal> {
        let Credentials { name, password } = credentials;
        let is_right = match self.settings_user(name) {
            Some(user) => same(user.password.as_bytes(), password.as_bytes()),
            None => self.account(name)?.secret.is_right_again(password),
        };
        if !is_right {
            return None;
        }
        self.admitted(name, peer).ok()
    }

    /// Logs in by a password. Takes as long for an unknown user, and longer after each failure.
    #[tasks::boxed]
    pub async fn log_in(
        &self,
        credentials: Credentials,
        peer: IpAddr,
    ) -> Result<Principal, LoginError> {
        if let Some(known) = self.log_in_at_once(&credentials, peer) {
            return Ok(known);
        }
        // Held until the reply, so that parallel guesses are no faster.
        let turn = self.0.queue.guess(peer, &credentials.name).await;
        if let Some(known) = self.log_in_at_once(&credentials, peer) {
            return Ok(known);
        }
        let judged = match turn {
            Ok(_) => self.judge(&credentials, peer).await,
            Err(QueueFull) => Err(LoginError::Crowded { user: credentials.name.clone() }),
        };
        match judged {
            Ok(principal) => Ok(principal),
            Err(error) => Err(self.refuse(&credentials.name, peer, error).await),
        }
    }

    async fn judge(
        &self,
        credentials: &Credentials,
        peer: IpAddr,
    ) -> Result<Principal, LoginError> {
        let known = self.account(&credentials.name);
        if self.is_right(credentials, known.as_deref(), peer).await? {
            return self.logged_in(&credentials.name, true, peer);
        }
        // Another node may have just created the user or changed the password.
        let is_current = self.may_be_current().await;
        let now = self.current_account(&credentials.name);
        let version = |account: &Option<Arc<Account>>| account.as_ref().map(|it| it.version);
        let is_right = is_current
            && version(&now) != version(&known)
            && self.is_right(credentials, now.as_deref(), peer).await?;
        self.logged_in(&credentials.name, is_right, peer)
    }

    /// Passes a catalog barrier; concurrent failures share one.
    async fn may_be_current(&self) -> bool {
        let asked = Instant::now();
        let mut passed = self.0.queue.barrier().await;
        if passed.is_none_or(|begun| begun <= asked) {
            let begun = Instant::now();
            if self.catch_up().await.is_err() {
                return false;
            }
            *passed = Some(begun);
        }
        true
    }

    async fn is_right(
        &self,
        credentials: &Credentials,
        account: Option<&Account>,
        peer: IpAddr,
    ) -> Result<bool, LoginError> {
        let password = credentials.password.clone();
        let secret = account.map_or(self.decoy_secret(), |account| &account.secret);
        let secret = Arc::clone(secret);
        let crowded = |QueueFull| LoginError::Crowded { user: credentials.name.clone() };
        let _turn = self.0.queue.check(peer).await.map_err(crowded)?;
        // The same password may have been verified while this one waited.
        if self.log_in_at_once(credentials, peer).is_some() {
            return Ok(true);
        }
        let workers = self.broker().workers();
        let checked = workers.blocking(Task::AmqpPassword, move || secret.is_right(&password));
        let is_right = checked.await.unwrap_or(false);
        // Users of the settings were checked before, and have no other password.
        Ok(is_right && account.is_some() && self.settings_user(&credentials.name).is_none())
    }

    /// Logs in as a user that someone else vouches for: the node's settings name the user of clients that send no
    /// credentials. The user must exist.
    pub async fn log_in_vouched(&self, name: &str, peer: IpAddr) -> Result<Principal, LoginError> {
        if !self.exists(name) {
            let is_current = self.catch_up().await.is_ok();
            let exists = is_current && self.current_account(name).is_some();
            return self.logged_in(name, exists, peer);
        }
        self.logged_in(name, true, peer)
    }

    fn logged_in(&self, name: &str, is_right: bool, peer: IpAddr) -> Result<Principal, LoginError> {
        if !is_right {
            return Err(LoginError::InvalidCredentials { user: name.to_owned() });
        }
        self.admitted(name, peer)
    }

    /// Counts a failure, and delays its reply.
    pub async fn refuse(&self, name: &str, peer: IpAddr, error: LoginError) -> LoginError {
        tokio::time::sleep(self.0.failures.note(peer, name, &error.to_string())).await;
        error
    }

    /// Counts a failed log-in without a name.
    pub fn note_refused(&self, peer: IpAddr, reason: &str) {
        self.0.failures.note(peer, "", reason);
    }

    /// Failed log-ins since the node started.
    pub fn failed_logins(&self) -> u64 {
        self.0.failures.count()
    }

    /// The principal of a user whose credentials are verified.
    pub(crate) fn admitted(&self, name: &str, peer: IpAddr) -> Result<Principal, LoginError> {
        if self.is_loopback_only(name) && !peer.to_canonical().is_loopback() {
            return Err(LoginError::LoopbackOnly { user: name.to_owned() });
        }
        Ok(Principal::new(name, self))
    }
}
