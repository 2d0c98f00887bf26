//! SCRAM salts and verifiers of users that have none stored.

use std::collections::BTreeMap;

use aws_lc_rs::hmac;
use broker::Broker;
use documents::WritePrecondition;
use documents::store::{put, read};
use parking_lot::Mutex;
use scram::{Hash, ITERATIONS_MADE, Verifier};
use serde::{Deserialize, Serialize};
use tasks::Task;
use tokio::sync::OnceCell;

/// Document of the secret.
const SPACE: &str = "access";
const DOCUMENT: &str = "salts";
const SALT_BYTES: usize = 16;

#[derive(Serialize, Deserialize)]
struct SaltDocument {
    secret: [u8; 32],
}

#[derive(Debug, Default)]
pub(crate) struct DerivedVerifiers {
    secret: OnceCell<[u8; 32]>,
    /// Verifiers derived from known passwords: those of the settings' users and of the default user.
    made: Mutex<BTreeMap<(Box<str>, Hash), Verifier>>,
}

impl DerivedVerifiers {
    /// Derived once and cached, because it is slow.
    pub(crate) async fn verifier(
        &self,
        broker: &Broker,
        name: &str,
        password: String,
        hash: Hash,
        salt: [u8; SALT_BYTES],
    ) -> Verifier {
        let key = (Box::from(name), hash);
        if let Some(made) = self.made.lock().get(&key) {
            return made.clone();
        }
        let making = broker.workers().blocking(Task::AmqpPassword, move || {
            Verifier::from_password(hash, &password, &salt, ITERATIONS_MADE)
        });
        match making.await {
            Ok(Ok(made)) => {
                self.made.lock().insert(key, made.clone());
                made
            }
            _ => Verifier::decoy(hash, &salt, ITERATIONS_MADE),
        }
    }

    /// The salt of a user's verifier, the same on all nodes.
    pub(crate) async fn salt(&self, broker: &Broker, name: &str, hash: Hash) -> [u8; SALT_BYTES] {
        salt(&self.salt_secret(broker).await, name, hash)
    }

    /// Secret of the cluster, created on first use. Without a leader of the catalog, a secret of this process is used
    /// and the cluster's is tried again later.
    async fn salt_secret(&self, broker: &Broker) -> [u8; 32] {
        let found = self.secret.get_or_try_init(|| async {
            loop {
                let found = read::<SaltDocument>(broker, SPACE, DOCUMENT).map_err(drop)?;
                if let Some(found) = found {
                    return Ok(found.body.secret);
                }
                let mut secret = [0; 32];
                broker.entropy().fill(&mut secret);
                let (name, body) = (DOCUMENT.to_owned(), SaltDocument { secret });
                match put(broker, SPACE, name, &body, WritePrecondition::Version(0)).await {
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
