//! Log-in by proof of a password (SCRAM), without revealing which users exist.
//!
//! An unknown user gets the same replies as a known one, at the same step and after the same work: a salt that never
//! changes for the name, and a verifier that no proof matches. The salt is derived from a secret of the cluster, so
//! that all nodes send the same one, also after a restart.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use aws_lc_rs::hmac;
use documents::WritePrecondition;
use documents::store::{put, read};
use parking_lot::Mutex;
use passwords::GUEST_PASSWORD;
use scram::{Challenge, ClientFirst, Hash, ITERATIONS_MADE, ScramError, Verifier};
use serde::{Deserialize, Serialize};
use tasks::Task;
use tokio::sync::OnceCell;

use crate::login::LoginError;
use crate::principal::Principal;
use crate::users::Users;

/// Document of the secret.
const SPACE: &str = "access";
const DOCUMENT: &str = "salts";
const SALT_BYTES: usize = 16;
/// Random bytes of a nonce.
const NONCE_BYTES: usize = 18;

#[derive(Serialize, Deserialize)]
struct SaltDocument {
    secret: [u8; 32],
}

#[derive(Debug, Default)]
pub(crate) struct Proofs {
    secret: OnceCell<[u8; 32]>,
    /// Verifiers derived from known passwords: those of the settings' users and of the default user.
    made: Mutex<BTreeMap<(Box<str>, Hash), Verifier>>,
}

/// A pending SCRAM exchange.
#[derive(Debug)]
pub struct Proof(Challenge);

impl Users {
    /// Handles the client-first message. Returns the reply.
    pub async fn challenge(
        &self,
        hash: Hash,
        message: &[u8],
        peer: IpAddr,
    ) -> Result<(Proof, String), LoginError> {
        let first = match ClientFirst::parse(message) {
            Ok(first) => first,
            Err(error) => return Err(self.refuse("", peer, LoginError::proof("", &error)).await),
        };
        let verifier = self.verifier(first.name(), hash).await;
        let (challenge, answer) = first.challenge(verifier, &self.nonce());
        Ok((Proof(challenge), answer))
    }

    /// Handles the client-final message. Returns the principal and the reply.
    pub async fn proved(
        &self,
        proof: Proof,
        message: &[u8],
        peer: IpAddr,
    ) -> Result<(Principal, String), LoginError> {
        let name = proof.0.name();
        let proved = match proof.0.finish(message) {
            // The user may have been deleted meanwhile.
            Ok(answer) if self.exists(name) => {
                self.admitted(name, peer).map(|principal| (principal, answer))
            }
            Ok(_) => Err(LoginError::proof(name, &ScramError::Proof)),
            Err(error) => Err(LoginError::proof(name, &error)),
        };
        match proved {
            Ok(proved) => Ok(proved),
            Err(error) => {
                // Replies to parallel guesses wait for each other.
                let _turn = self.0.queue.guess(peer, name).await;
                Err(self.refuse(name, peer, error).await)
            }
        }
    }

    fn nonce(&self) -> String {
        let mut bytes = [0; NONCE_BYTES];
        self.broker().entropy().fill(&mut bytes);
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    async fn verifier(&self, name: &str, hash: Hash) -> Verifier {
        let salt = salt(&self.salt_secret().await, name, hash);
        let password = match self.settings_user(name) {
            Some(user) => Some(user.password.clone()),
            None => match self.account(name) {
                Some(account) => match account.secret.verifier(hash) {
                    Some(verifier) => return verifier.clone(),
                    None => account.secret.is_guests().then(|| GUEST_PASSWORD.to_owned()),
                },
                None => None,
            },
        };
        match password {
            Some(password) => self.derived_verifier(name, password, hash, salt).await,
            None => Verifier::decoy(hash, &salt, ITERATIONS_MADE),
        }
    }

    /// Derived once and cached, because it is slow.
    async fn derived_verifier(
        &self,
        name: &str,
        password: String,
        hash: Hash,
        salt: [u8; SALT_BYTES],
    ) -> Verifier {
        let key = (Box::from(name), hash);
        if let Some(made) = self.0.proofs.made.lock().get(&key) {
            return made.clone();
        }
        let making = self.broker().workers().blocking(Task::AmqpPassword, move || {
            Verifier::from_password(hash, &password, &salt, ITERATIONS_MADE)
        });
        match making.await {
            Ok(Ok(made)) => {
                self.0.proofs.made.lock().insert(key, made.clone());
                made
            }
            _ => Verifier::decoy(hash, &salt, ITERATIONS_MADE),
        }
    }

    /// Secret of the cluster, created on first use. Without a leader of the catalog, a secret of this process is used
    /// and the cluster's is tried again later.
    async fn salt_secret(&self) -> [u8; 32] {
        let found = self.0.proofs.secret.get_or_try_init(|| async {
            loop {
                let found = read::<SaltDocument>(self.broker(), SPACE, DOCUMENT).map_err(drop)?;
                if let Some(found) = found {
                    return Ok(found.body.secret);
                }
                let mut secret = [0; 32];
                self.broker().entropy().fill(&mut secret);
                let (name, body) = (DOCUMENT.to_owned(), SaltDocument { secret });
                match put(self.broker(), SPACE, name, &body, WritePrecondition::Version(0)).await {
                    Err(error) if error.is_conflict() => {}
                    written => return written.map(|_| secret).map_err(drop),
                }
            }
        });
        match found.await {
            Ok(secret) => *secret,
            Err::<_, ()>(()) => *process_secret(),
        }
    }
}

fn process_secret() -> &'static [u8; 32] {
    use world::Entropy as _;
    static SECRET: std::sync::OnceLock<[u8; 32]> = std::sync::OnceLock::new();
    SECRET.get_or_init(|| {
        let mut secret = [0; 32];
        world::OsEntropy.fill(&mut secret);
        secret
    })
}

fn salt(secret: &[u8; 32], name: &str, hash: Hash) -> [u8; SALT_BYTES] {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    let mut all = hmac::Context::with_key(&key);
    // The zero byte separates: no mechanism's name has one.
    all.update(hash.mechanism().as_bytes());
    all.update(&[0]);
    all.update(name.as_bytes());
    let tag = all.sign();
    let mut salt = [0; SALT_BYTES];
    salt.copy_from_slice(&tag.as_ref()[..SALT_BYTES]);
    salt
}

impl LoginError {
    fn proof(user: &str, error: &ScramError) -> Self {
        Self::NotProved { user: user.to_owned(), reason: Arc::from(error.to_string()) }
    }
}
