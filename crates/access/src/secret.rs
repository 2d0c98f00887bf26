//! What is kept of a user's password: a verifier for each way to log in.
//!
//! One that says its password (PLAIN) is checked by argon2id, which costs a guesser the most. One that proves it
//! (SCRAM) needs a verifier of its mechanism. A user who has no hash, because only SCRAM's verifiers of it were ever set,
//! says its password all the same: it is checked against one of these.

use base::limits::AMQP_PASSWORD_BYTES_MAX;
use parking_lot::Mutex;
use scram::{Hash, ITERATIONS_MADE, Verifier};
use serde::{Deserialize, Serialize};
use world::{Entropy, OsEntropy};

use crate::rabbitmq_hash::RabbitMqHash;

use crate::password::{
    Digest, GUEST_HASH, GUEST_PASSWORD, PasswordError, check_hash, check_password, digest,
    hash_password, same, verifies,
};

const SALT_BYTES: usize = 16;

/// What is sent and kept of a password.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Verifiers {
    /// By [`hash_password`].
    pub password_hash: Option<String>,
    /// As RabbitMQ has it ([`crate::rabbitmq_hash`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rabbitmq: Option<RabbitMqHash>,
    /// As [`Verifier`] writes them, one for a mechanism at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scram: Vec<String>,
}

impl Verifiers {
    /// All of them. Takes a tenth of a second, by design.
    pub fn of_password(password: &str) -> Result<Self, PasswordError> {
        let password_hash = Some(hash_password(password)?);
        let scram = Hash::ALL.into_iter().map(|hash| {
            let made = Verifier::of_password(hash, password, &new_salt(), ITERATIONS_MADE);
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

/// Only a hash.
impl From<String> for Verifiers {
    fn from(hash: String) -> Self {
        Self { password_hash: Some(hash), rabbitmq: None, scram: Vec::new() }
    }
}

/// A user's password, as far as it is known.
pub(crate) struct Secret {
    /// Checked: it can be verified at a bounded cost.
    hash: Option<String>,
    rabbitmq: Option<RabbitMqHash>,
    /// One for a mechanism at most, the one that was set last at the front.
    scram: Vec<Verifier>,
    /// Digest of the last password that was right.
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
    pub(crate) fn new(verifiers: &Verifiers) -> Result<Self, PasswordError> {
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

    pub(crate) fn verifiers(&self) -> Verifiers {
        let scram = self.scram.iter().map(Verifier::to_string).collect();
        Verifiers { password_hash: self.hash.clone(), rabbitmq: self.rabbitmq.clone(), scram }
    }

    /// With another verifier for its mechanism. The hash goes: it may be of the password before, which would go on to
    /// be taken.
    pub(crate) fn with(&self, verifier: Verifier) -> Self {
        let others = self.scram.iter().filter(|known| known.hash() != verifier.hash()).cloned();
        let scram = std::iter::once(verifier.clone()).chain(others).collect();
        Self { hash: None, rabbitmq: None, scram, right: Mutex::default() }
    }

    /// Without the verifier for a mechanism; `None`: nothing would be left.
    pub(crate) fn without(&self, hash: Hash) -> Option<Self> {
        let scram: Vec<_> = self.scram.iter().filter(|it| it.hash() != hash).cloned().collect();
        let left = self.hash.is_some() || self.rabbitmq.is_some() || !scram.is_empty();
        let (hash, rabbitmq) = (self.hash.clone(), self.rabbitmq.clone());
        left.then(|| Self { hash, rabbitmq, scram, right: Mutex::default() })
    }

    /// What a client's proof is checked against.
    pub(crate) fn verifier(&self, hash: Hash) -> Option<&Verifier> {
        self.scram.iter().find(|verifier| verifier.hash() == hash)
    }

    pub(crate) fn scram(&self) -> &[Verifier] {
        &self.scram
    }

    /// Whether nobody has changed the public password of the default user.
    pub(crate) fn is_guests(&self) -> bool {
        self.hash.as_deref() == Some(GUEST_HASH)
    }

    /// Whether it is the password that was right before; says nothing of any other.
    pub(crate) fn is_right_again(&self, password: &str) -> bool {
        if self.is_guests() {
            return same(GUEST_PASSWORD.as_bytes(), password.as_bytes());
        }
        let Some(right) = *self.right.lock() else { return false };
        digest(password).is_some_and(|digest| same(&right, &digest))
    }

    /// Whether it is the password. Takes its time: not for a thread that serves others.
    pub(crate) fn is_right(&self, password: &str) -> bool {
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

    fn of_hash(password: &str) -> Secret {
        Secret::new(&hash_password(password).expect("a hash").into()).expect("is one")
    }

    #[test]
    fn a_password_is_right_again_once_it_was_right() {
        let secret = of_hash("se:cret");
        assert!(!secret.is_right_again("se:cret"), "nobody has said it yet");
        assert!(!secret.is_right("secret") && !secret.is_right(""));
        assert!(secret.is_right("se:cret"));
        assert!(secret.is_right_again("se:cret") && !secret.is_right_again("secret"));
    }

    #[test]
    fn one_password_has_a_verifier_for_each_way_to_log_in() {
        let verifiers = Verifiers::of_password("secret").expect("made");
        let secret = Secret::new(&verifiers).expect("of use");
        assert_eq!(secret.verifiers(), verifiers);
        assert!(secret.is_right("secret"));
        for hash in Hash::ALL {
            assert!(secret.verifier(hash).expect("is there").is_of("secret"));
        }
        assert!(of_hash("secret").verifier(Hash::Sha256).is_none());
    }

    #[test]
    fn without_a_hash_a_password_is_checked_against_what_scram_has() {
        let Verifiers { scram, .. } = Verifiers::of_password("secret").expect("made");
        let secret =
            Secret::new(&Verifiers { password_hash: None, rabbitmq: None, scram }).expect("of use");
        assert!(secret.is_right("secret") && !secret.is_right("other") && !secret.is_right(""));
    }

    #[test]
    fn what_is_no_verifier_is_refused() {
        let of = |scram: &[&str]| {
            let scram = scram.iter().map(|text| text.to_string()).collect();
            Secret::new(&Verifiers { password_hash: None, rabbitmq: None, scram })
                .map(drop)
                .expect_err("refused")
        };
        assert_eq!(of(&[]), PasswordError::Nothing);
        assert!(matches!(of(&["SCRAM-SHA-1$4096:x$y:z"]), PasswordError::Scram(_)));
        let Verifiers { scram, .. } = Verifiers::of_password("x").expect("made");
        assert_eq!(of(&[&scram[0], &scram[0]]), PasswordError::Twice(Hash::Sha256));
    }
}
