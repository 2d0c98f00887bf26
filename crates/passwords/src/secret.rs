//! Stored secrets of a user's password: a verifier for each way to log in.
//!
//! A password that the client sends (PLAIN) is checked by argon2id, which is the most expensive to guess. A proof
//! (SCRAM) needs a verifier of its mechanism. For a user with SCRAM verifiers only, a sent password is checked
//! against one of these.

use base::limits::AMQP_PASSWORD_BYTES_MAX;
use parking_lot::Mutex;
use scram::{Hash, ITERATIONS_MADE, Verifier};
use serde::{Deserialize, Serialize};
use world::{Entropy, OsEntropy};

use crate::hash::{
    Digest, GUEST_HASH, GUEST_PASSWORD, PasswordError, check_hash, check_password, digest,
    hash_password, same, verifies,
};
use crate::rabbitmq_hash::RabbitMqHash;

const SALT_BYTES: usize = 16;

/// Hashes and verifiers of a password, as they are sent and stored.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Verifiers {
    /// From [`hash_password`].
    pub password_hash: Option<String>,
    /// RabbitMQ's hash ([`crate::rabbitmq_hash`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rabbitmq: Option<RabbitMqHash>,
    /// Text form of [`Verifier`], at most one for each mechanism.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scram: Vec<String>,
}

impl Verifiers {
    /// Derives all of them. Takes a tenth of a second, by design.
    pub fn from_password(password: &str) -> Result<Self, PasswordError> {
        let password_hash = Some(hash_password(password)?);
        let scram = Hash::ALL.into_iter().map(|hash| {
            let made = Verifier::from_password(hash, password, &new_salt(), ITERATIONS_MADE);
            Ok(made?.to_string())
        });
        let scram = scram.collect::<Result<_, PasswordError>>()?;
        Ok(Self { password_hash, rabbitmq: None, scram })
    }
}

fn new_salt() -> [u8; SALT_BYTES] {
    let mut salt = [0; SALT_BYTES];
    OsEntropy.fill(&mut salt);
    salt
}

/// The hash alone.
impl From<String> for Verifiers {
    fn from(hash: String) -> Self {
        Self { password_hash: Some(hash), rabbitmq: None, scram: Vec::new() }
    }
}

/// Stored secrets of a user, and a cache of the last right password.
pub struct Secret {
    /// Validated: its cost is bounded.
    hash: Option<String>,
    rabbitmq: Option<RabbitMqHash>,
    /// At most one for each mechanism; the last one that was set comes first.
    scram: Vec<Verifier>,
    /// Digest of the last right password.
    right: Mutex<Option<Digest>>,
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secret").finish_non_exhaustive()
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && self.rabbitmq == other.rabbitmq && self.scram == other.scram
    }
}

impl Secret {
    pub fn new(verifiers: &Verifiers) -> Result<Self, PasswordError> {
        let Verifiers { password_hash, rabbitmq, scram } = verifiers;
        if let Some(hash) = password_hash {
            check_hash(hash)?;
        }
        let mut read: Vec<Verifier> = Vec::new();
        for text in scram {
            let verifier: Verifier = text.parse()?;
            if read.iter().any(|known| known.hash() == verifier.hash()) {
                return Err(PasswordError::Twice(verifier.hash()));
            }
            read.push(verifier);
        }
        if let Some(hash) = rabbitmq {
            hash.check()?;
        }
        if password_hash.is_none() && rabbitmq.is_none() && read.is_empty() {
            return Err(PasswordError::Nothing);
        }
        let (hash, rabbitmq) = (password_hash.clone(), rabbitmq.clone());
        Ok(Self { hash, rabbitmq, scram: read, right: Mutex::default() })
    }

    pub fn verifiers(&self) -> Verifiers {
        let scram = self.scram.iter().map(Verifier::to_string).collect();
        Verifiers { password_hash: self.hash.clone(), rabbitmq: self.rabbitmq.clone(), scram }
    }

    /// Replaces the verifier of its mechanism. Drops the hash, which may belong to the previous password.
    pub fn with(&self, verifier: Verifier) -> Self {
        let others = self.scram.iter().filter(|known| known.hash() != verifier.hash()).cloned();
        let scram = std::iter::once(verifier.clone()).chain(others).collect();
        Self { hash: None, rabbitmq: None, scram, right: Mutex::default() }
    }

    /// Removes the verifier of a mechanism; `None`: nothing would be left.
    pub fn without(&self, hash: Hash) -> Option<Self> {
        let scram: Vec<_> = self.scram.iter().filter(|it| it.hash() != hash).cloned().collect();
        let left = self.hash.is_some() || self.rabbitmq.is_some() || !scram.is_empty();
        let (hash, rabbitmq) = (self.hash.clone(), self.rabbitmq.clone());
        left.then(|| Self { hash, rabbitmq, scram, right: Mutex::default() })
    }

    /// The verifier of a mechanism.
    pub fn verifier(&self, hash: Hash) -> Option<&Verifier> {
        self.scram.iter().find(|verifier| verifier.hash() == hash)
    }

    pub fn scram(&self) -> &[Verifier] {
        &self.scram
    }

    /// Whether it still is the default user's public password.
    pub fn is_guests(&self) -> bool {
        self.hash.as_deref() == Some(GUEST_HASH)
    }

    /// Whether the password is the last right one; false says nothing.
    pub fn is_right_again(&self, password: &str) -> bool {
        if self.is_guests() {
            return same(GUEST_PASSWORD.as_bytes(), password.as_bytes());
        }
        let Some(right) = *self.right.lock() else { return false };
        digest(password).is_some_and(|digest| same(&right, &digest))
    }

    /// Whether the password is right. Slow: not for a thread that serves other tasks.
    pub fn is_right(&self, password: &str) -> bool {
        let right = password.len() <= AMQP_PASSWORD_BYTES_MAX
            && match (&self.hash, self.scram.first(), &self.rabbitmq) {
                (Some(hash), ..) => verifies(hash, password),
                (None, Some(verifier), _) => {
                    check_password(password).is_ok() && verifier.is_of(password)
                }
                (None, None, Some(hash)) => {
                    check_password(password).is_ok() && hash.is_of(password)
                }
                (None, None, None) => false,
            };
        if right {
            *self.right.lock() = digest(password);
        }
        right
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash_only(password: &str) -> Secret {
        Secret::new(&hash_password(password).expect("a hash").into()).expect("is one")
    }

    #[test]
    fn password_is_cached_once_it_was_right() {
        let secret = hash_only("se:cret");
        assert!(!secret.is_right_again("se:cret"), "nobody has said it yet");
        assert!(!secret.is_right("secret") && !secret.is_right(""));
        assert!(secret.is_right("se:cret"));
        assert!(secret.is_right_again("se:cret") && !secret.is_right_again("secret"));
    }

    #[test]
    fn password_gets_a_hash_and_a_verifier_for_each_mechanism() {
        let verifiers = Verifiers::from_password("secret").expect("made");
        let secret = Secret::new(&verifiers).expect("of use");
        assert_eq!(secret.verifiers(), verifiers);
        assert!(secret.is_right("secret"));
        for hash in Hash::ALL {
            assert!(secret.verifier(hash).expect("is there").is_of("secret"));
        }
        assert!(hash_only("secret").verifier(Hash::Sha256).is_none());
    }

    #[test]
    fn password_without_a_hash_is_checked_against_a_scram_verifier() {
        let Verifiers { scram, .. } = Verifiers::from_password("secret").expect("made");
        let secret =
            Secret::new(&Verifiers { password_hash: None, rabbitmq: None, scram }).expect("of use");
        assert!(secret.is_right("secret") && !secret.is_right("other") && !secret.is_right(""));
    }

    #[test]
    fn missing_unknown_or_duplicate_verifier_is_rejected() {
        let of = |scram: &[&str]| {
            let scram = scram.iter().map(|text| text.to_string()).collect();
            Secret::new(&Verifiers { password_hash: None, rabbitmq: None, scram })
                .map(drop)
                .expect_err("refused")
        };
        assert_eq!(of(&[]), PasswordError::Nothing);
        assert!(matches!(of(&["SCRAM-SHA-1$4096:x$y:z"]), PasswordError::Scram(_)));
        let Verifiers { scram, .. } = Verifiers::from_password("x").expect("made");
        assert_eq!(of(&[&scram[0], &scram[0]]), PasswordError::Twice(Hash::Sha256));
    }
}
