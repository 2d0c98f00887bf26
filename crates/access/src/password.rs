//! Passwords, of which only salted hashes are kept.
//!
//! The hash is argon2id by RustCrypto's `argon2`: of its kept crates (pbkdf2 and scrypt are the
//! others) it is the one that OWASP names first, and that costs a guesser memory and not only time.
//! Whoever sets a password sends its hash, so the password itself never reaches the node but at
//! log-in.
//!
//! Such a hash takes 20 ms by design, and a thousand clients that come back after a restart must
//! not wait for 20 s of it. So the last password that was right is remembered, as a digest that is
//! cheap, and worthless outside of this process: its salt is 244 random bits that never leave it.

use std::sync::OnceLock;

use argon2::password_hash::phc;
use argon2::{Algorithm, Argon2, Params, PasswordHasher, PasswordVerifier, Version};
use base::limits::{AMQP_PASSWORD_BYTES_MAX, AMQP_PASSWORD_HASH_KIB_MAX};
use scram::{Hash, VerifierError};
use world::{Entropy, OsEntropy};

/// What `guest` has until somebody changes it. That password is public, so its hash may be too.
pub(crate) const GUEST_PASSWORD: &str = "guest";
pub(crate) const GUEST_HASH: &str = "$argon2id$v=19$m=19456,t=2,p=1$cG9zdHJvYWQncyBndWVzdA$Iqp5YzaPtN/6wKcusq4T4b9g8a0FpaFgkjP9Npy4A3o";

/// Passes over the memory, at most: more is a way to keep the node busy.
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

/// The hash of a password under a salt of its own (PHC string: algorithm, costs, salt, hash).
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

/// A hash that can be verified at a bounded cost.
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

/// Whether the hash is of this password. Takes its time.
pub(crate) fn verifies(hash: &str, password: &str) -> bool {
    Argon2::default().verify_password(password.as_bytes(), hash).is_ok()
}

pub(crate) type Digest = [u8; 32];

/// Argon2id at its cheapest, for comparing what this process has seen with what it sees.
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

/// Whether two secrets are the same; takes the same time wherever they differ.
pub fn is_same(expected: &str, given: &str) -> bool {
    same(expected.as_bytes(), given.as_bytes())
}

/// Takes the same time wherever the two differ.
pub(crate) fn same(expected: &[u8], given: &[u8]) -> bool {
    let differ = expected.iter().zip(given).fold(0, |differ, (a, b)| differ | (a ^ b));
    expected.len() == given.len() && std::hint::black_box(differ) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_password_has_a_hash_of_its_own_each_time() {
        let [one, two] = [(); 2].map(|()| hash_password("x").expect("a hash"));
        assert_ne!(one, two);
        assert!(one.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{one}");
    }

    #[test]
    fn the_hash_of_guest_is_that_of_the_public_password() {
        let hash = phc::PasswordHash::new(GUEST_HASH).expect("a hash");
        Argon2::default().verify_password(GUEST_PASSWORD.as_bytes(), &hash).expect("is right");
    }

    #[test]
    fn what_is_no_hash_or_costs_too_much_is_refused() {
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
