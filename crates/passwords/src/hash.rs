//! Passwords, which are kept as salted hashes only.
//!
//! The hash is argon2id by RustCrypto's `argon2`: of its maintained crates (pbkdf2 and scrypt are the others) it is
//! OWASP's first choice, and costs a guesser memory as well as time. Clients that set a password send its hash, so
//! the node sees the password only at log-in.
//!
//! Such a hash takes 20 ms by design, and a thousand clients that reconnect after a restart must not wait 20 s for
//! it. So the last right password is cached as a cheap digest, which is worthless outside of this process: its salt
//! is 244 random bits that never leave it.

use std::sync::OnceLock;

use argon2::password_hash::phc;
use argon2::{Algorithm, Argon2, Params, PasswordHasher, PasswordVerifier, Version};
use base::limits::AMQP_PASSWORD_BYTES_MAX;
use scram::{Hash, VerifierError};
use world::{Entropy, OsEntropy};

use crate::limits::AMQP_PASSWORD_HASH_KIB_MAX;

/// Default password of `guest`. It is public, so its hash may be, too.
pub const GUEST_PASSWORD: &str = "guest";
pub const GUEST_HASH: &str = "$argon2id$v=19$m=19456,t=2,p=1$cG9zdHJvYWQncyBndWVzdA$Iqp5YzaPtN/6wKcusq4T4b9g8a0FpaFgkjP9Npy4A3o";

/// Passes over the memory, at most: more could be used to keep the node busy.
const PASSES_MAX: u32 = 16;
const LANES_MAX: u32 = 16;

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PasswordError {
    #[error("a password has at least one character")]
    Empty,
    #[error("a password has at most {AMQP_PASSWORD_BYTES_MAX} bytes")]
    TooLong,
    #[error("the hash of the password could not be made: {0}")]
    Hashing(String),
    #[error("that is no hash of a password by argon2id, in PHC's form: {0}")]
    Malformed(String),
    #[error("that is no verifier of SCRAM: {0}")]
    Scram(#[from] VerifierError),
    #[error("there are several verifiers for {}", .0.mechanism())]
    Twice(Hash),
    #[error("that is no hash of {0}: base64 of a salt of four bytes and the hash")]
    RabbitMq(&'static str),
    #[error("there is nothing to check a password with")]
    Nothing,
    #[error("the hash asks for too much memory or time to be checked at each log-in")]
    TooCostly,
}

/// Hashes a password with a salt of its own (PHC string: algorithm, costs, salt, hash).
pub fn hash_password(password: &str) -> Result<String, PasswordError> {
    check_password(password)?;
    let salt = OsEntropy.uuid();
    let hash = Argon2::default().hash_password_with_salt(password.as_bytes(), salt.as_bytes());
    hash.map(|hash| hash.to_string()).map_err(|error| PasswordError::Hashing(error.to_string()))
}

pub(crate) fn check_password(password: &str) -> Result<(), PasswordError> {
    match password.len() {
        0 => Err(PasswordError::Empty),
        len if len > AMQP_PASSWORD_BYTES_MAX => Err(PasswordError::TooLong),
        _ => Ok(()),
    }
}

/// Checks that a hash can be verified at a bounded cost.
pub(crate) fn check_hash(hash: &str) -> Result<(), PasswordError> {
    let malformed = |error: &dyn std::fmt::Display| PasswordError::Malformed(error.to_string());
    let read = phc::PasswordHash::new(hash).map_err(|error| malformed(&error))?;
    if Algorithm::try_from(read.algorithm.as_str()) != Ok(Algorithm::Argon2id) {
        return Err(malformed(&"it is of another algorithm"));
    }
    if read.salt.is_none() || read.hash.is_none() {
        return Err(malformed(&"salt or hash is missing"));
    }
    let costs = Params::try_from(&read).map_err(|error| malformed(&error))?;
    let too_costly = costs.m_cost() > AMQP_PASSWORD_HASH_KIB_MAX
        || costs.t_cost() > PASSES_MAX
        || costs.p_cost() > LANES_MAX;
    if too_costly { Err(PasswordError::TooCostly) } else { Ok(()) }
}

/// Whether the hash matches this password. Slow.
pub(crate) fn verifies(hash: &str, password: &str) -> bool {
    Argon2::default().verify_password(password.as_bytes(), hash).is_ok()
}

pub(crate) type Digest = [u8; 32];

/// Argon2id at its cheapest, to compare passwords within this process.
pub(crate) fn digest(password: &str) -> Option<Digest> {
    static SALT: OnceLock<[u8; 32]> = OnceLock::new();
    let salt = SALT.get_or_init(|| {
        let mut salt = [0; 32];
        OsEntropy.fill(&mut salt);
        salt
    });
    let cheapest = Params::new(Params::MIN_M_COST, 1, 1, Some(32)).ok()?;
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, cheapest);
    let mut digest = Digest::default();
    argon2.hash_password_into(password.as_bytes(), salt, &mut digest).ok()?;
    Some(digest)
}

/// Compares in constant time.
pub fn same(expected: &[u8], given: &[u8]) -> bool {
    let differ = expected.iter().zip(given).fold(0, |differ, (a, b)| differ | (a ^ b));
    expected.len() == given.len() && std::hint::black_box(differ) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_of_one_password_have_different_salts() {
        let [one, two] = [(); 2].map(|()| hash_password("x").expect("a hash"));
        assert_ne!(one, two);
        assert!(one.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{one}");
    }

    #[test]
    fn guest_hash_matches_the_public_password() {
        let hash = phc::PasswordHash::new(GUEST_HASH).expect("a hash");
        Argon2::default().verify_password(GUEST_PASSWORD.as_bytes(), &hash).expect("is right");
    }

    #[test]
    fn malformed_or_too_costly_hash_is_rejected() {
        let wrong = |hash: &str| check_hash(hash).expect_err("is refused");
        for malformed in [
            "",
            "secret",
            "$argon2id$v=19$m=19456,t=2,p=1",
            "$scrypt$ln=1,r=8,p=1$c2FsdHNhbHQ$aGFzaGhhc2hoYXNo",
        ] {
            assert!(matches!(wrong(malformed), PasswordError::Malformed(_)), "{malformed}");
        }
        let costly = GUEST_HASH.replace("m=19456", "m=4000000");
        assert_eq!(wrong(&costly), PasswordError::TooCostly);
        assert_eq!(wrong(&GUEST_HASH.replace("t=2", "t=999")), PasswordError::TooCostly);
        assert_eq!(hash_password(""), Err(PasswordError::Empty));
        assert_eq!(hash_password(&"x".repeat(2000)), Err(PasswordError::TooLong));
    }
}
