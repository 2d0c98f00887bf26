//! The verifier of a password: it checks a client's proof, and proves to the client that the server has it.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use aws_lc_rs::{constant_time, digest, hmac, pbkdf2};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use thiserror::Error;

/// Kafka's clients reject fewer iterations.
pub const ITERATIONS_MIN: u32 = 4_096;
/// More iterations could be used to keep clients busy.
pub const ITERATIONS_MAX: u32 = 16_384;
/// Iterations of verifiers that are derived here.
pub const ITERATIONS_MADE: u32 = 16_384;
const SALT_BYTES: std::ops::RangeInclusive<usize> = 8..=256;

/// Hash function of a mechanism.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Hash {
    Sha256,
    Sha512,
}

impl Hash {
    pub const ALL: [Self; 2] = [Self::Sha256, Self::Sha512];

    /// The mechanism's name.
    pub const fn mechanism(self) -> &'static str {
        match self {
            Self::Sha256 => "SCRAM-SHA-256",
            Self::Sha512 => "SCRAM-SHA-512",
        }
    }

    pub fn from_mechanism(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|hash| hash.mechanism() == name)
    }

    /// Length of the hash and of its keys.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha512 => 64,
        }
    }

    pub(crate) fn digest(self, bytes: &[u8]) -> Vec<u8> {
        let algorithm = match self {
            Self::Sha256 => &digest::SHA256,
            Self::Sha512 => &digest::SHA512,
        };
        digest::digest(algorithm, bytes).as_ref().to_vec()
    }

    pub(crate) fn hmac(self, key: &[u8], bytes: &[u8]) -> Vec<u8> {
        let algorithm = match self {
            Self::Sha256 => hmac::HMAC_SHA256,
            Self::Sha512 => hmac::HMAC_SHA512,
        };
        hmac::sign(&hmac::Key::new(algorithm, key), bytes).as_ref().to_vec()
    }

    pub(crate) fn salted(self, password: &str, salt: &[u8], iterations: u32) -> Vec<u8> {
        let algorithm = match self {
            Self::Sha256 => pbkdf2::PBKDF2_HMAC_SHA256,
            Self::Sha512 => pbkdf2::PBKDF2_HMAC_SHA512,
        };
        let mut salted = vec![0; self.bytes()];
        let iterations = NonZeroU32::new(iterations).unwrap_or(NonZeroU32::MIN);
        pbkdf2::derive(algorithm, iterations, salt, password.as_bytes(), &mut salted);
        salted
    }
}

/// Reason why a text is not a valid verifier.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum VerifierError {
    #[error("it is not of the form MECHANISM$ITERATIONS:SALT$STOREDKEY:SERVERKEY")]
    Form,
    #[error("there is no mechanism {0:?} here")]
    Mechanism(String),
    #[error("{0} iterations are not between {ITERATIONS_MIN} and {ITERATIONS_MAX}")]
    Iterations(u32),
    #[error("a salt has {min} to {max} bytes", min = SALT_BYTES.start(), max = SALT_BYTES.end())]
    Salt,
    #[error("a key is not as long as the hash")]
    Key,
}

/// Verifier of a password for one mechanism. Its text form is PostgreSQL's.
#[derive(Clone, PartialEq, Eq)]
pub struct Verifier {
    hash: Hash,
    iterations: u32,
    salt: Box<[u8]>,
    stored_key: Box<[u8]>,
    server_key: Box<[u8]>,
}

impl Verifier {
    /// Derives the keys from a password. Takes some milliseconds, a cost that a guesser pays, too.
    pub fn from_password(
        hash: Hash,
        password: &str,
        salt: &[u8],
        iterations: u32,
    ) -> Result<Self, VerifierError> {
        check(salt, iterations)?;
        Self::from_salted_password(hash, &hash.salted(password, salt, iterations), salt, iterations)
    }

    /// Derives the two keys from a password that the client has salted. The salted password is not kept.
    pub fn from_salted_password(
        hash: Hash,
        salted: &[u8],
        salt: &[u8],
        iterations: u32,
    ) -> Result<Self, VerifierError> {
        check(salt, iterations)?;
        if salted.len() != hash.bytes() {
            return Err(VerifierError::Key);
        }
        let client_key = hash.hmac(salted, CLIENT_KEY);
        Ok(Self {
            hash,
            iterations,
            salt: salt.into(),
            stored_key: hash.digest(&client_key).into(),
            server_key: hash.hmac(salted, SERVER_KEY).into(),
        })
    }

    /// Decoy for an unknown user: no proof matches it, and its challenge looks like any other.
    pub fn decoy(hash: Hash, salt: &[u8], iterations: u32) -> Self {
        let none = vec![0; hash.bytes()];
        Self {
            hash,
            iterations,
            salt: salt.into(),
            stored_key: none.clone().into(),
            server_key: none.into(),
        }
    }

    pub fn hash(&self) -> Hash {
        self.hash
    }

    pub fn iterations(&self) -> u32 {
        self.iterations
    }

    pub fn salt(&self) -> &[u8] {
        &self.salt
    }

    pub(crate) fn stored_key(&self) -> &[u8] {
        &self.stored_key
    }

    pub(crate) fn server_key(&self) -> &[u8] {
        &self.server_key
    }

    /// Compares a password. Takes as long as [`Verifier::from_password`].
    pub fn is_of(&self, password: &str) -> bool {
        let salted = self.hash.salted(password, &self.salt, self.iterations);
        let stored = self.hash.digest(&self.hash.hmac(&salted, CLIENT_KEY));
        constant_time::verify_slices_are_equal(&stored, &self.stored_key).is_ok()
    }
}

pub(crate) const CLIENT_KEY: &[u8] = b"Client Key";
pub(crate) const SERVER_KEY: &[u8] = b"Server Key";

fn check(salt: &[u8], iterations: u32) -> Result<(), VerifierError> {
    if !(ITERATIONS_MIN..=ITERATIONS_MAX).contains(&iterations) {
        return Err(VerifierError::Iterations(iterations));
    }
    if SALT_BYTES.contains(&salt.len()) { Ok(()) } else { Err(VerifierError::Salt) }
}

/// Without the keys, which would help a guesser.
impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier")
            .field("hash", &self.hash)
            .field("iterations", &self.iterations)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mechanism, iterations) = (self.hash.mechanism(), self.iterations);
        let [salt, stored, server] =
            [&self.salt, &self.stored_key, &self.server_key].map(|bytes| STANDARD.encode(bytes));
        write!(f, "{mechanism}${iterations}:{salt}${stored}:{server}")
    }
}

impl FromStr for Verifier {
    type Err = VerifierError;

    fn from_str(text: &str) -> Result<Self, VerifierError> {
        let mut parts = text.split('$');
        let (Some(mechanism), Some(costs), Some(keys), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(VerifierError::Form);
        };
        let hash = Hash::from_mechanism(mechanism)
            .ok_or_else(|| VerifierError::Mechanism(mechanism.to_owned()))?;
        let pair = |text: &str| {
            let (one, two) = text.split_once(':').ok_or(VerifierError::Form)?;
            Ok::<_, VerifierError>((one.to_owned(), two.to_owned()))
        };
        let bytes = |text: &str| STANDARD.decode(text).map_err(|_| VerifierError::Form);
        let ((iterations, salt), (stored, server)) = (pair(costs)?, pair(keys)?);
        let iterations = iterations.parse().map_err(|_| VerifierError::Form)?;
        let (salt, stored, server) = (bytes(&salt)?, bytes(&stored)?, bytes(&server)?);
        check(&salt, iterations)?;
        if stored.len() != hash.bytes() || server.len() != hash.bytes() {
            return Err(VerifierError::Key);
        }
        Ok(Self {
            hash,
            iterations,
            salt: salt.into(),
            stored_key: stored.into(),
            server_key: server.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn verifier_round_trips_as_text_and_accepts_only_its_password() {
        for hash in Hash::ALL {
            let verifier = Verifier::from_password(hash, "pencil", &[7; 16], 4_096).expect("made");
            let text = verifier.to_string();
            assert!(text.starts_with(&format!("{}$4096:", hash.mechanism())), "{text}");
            assert_eq!(text.parse(), Ok(verifier.clone()));
            assert!(verifier.is_of("pencil") && !verifier.is_of("Pencil") && !verifier.is_of(""));
            assert!(!format!("{verifier:?}").contains("key"));
        }
    }

    #[test]
    fn password_salted_by_the_client_gives_the_same_verifier() {
        let salt = [9; 16];
        let salted = Hash::Sha512.salted("x", &salt, 8_192);
        let made = Verifier::from_salted_password(Hash::Sha512, &salted, &salt, 8_192);
        assert_eq!(made, Verifier::from_password(Hash::Sha512, "x", &salt, 8_192));
    }

    #[test]
    fn verifier_with_too_few_or_too_many_iterations_or_a_short_salt_is_rejected() {
        let of = |salt: &[u8], iterations| {
            Verifier::from_password(Hash::Sha256, "x", salt, iterations).expect_err("is refused")
        };
        assert_eq!(of(&[0; 16], 4_095), VerifierError::Iterations(4_095));
        assert_eq!(of(&[0; 16], 16_385), VerifierError::Iterations(16_385));
        assert_eq!(of(&[0; 7], 4_096), VerifierError::Salt);
        let short = Verifier::from_salted_password(Hash::Sha256, &[0; 31], &[0; 16], 4_096);
        assert_eq!(short, Err(VerifierError::Key));
        for malformed in ["", "$", "SCRAM-SHA-256$4096:AA==$AA==", "SCRAM-SHA-256$x:y$z:w"] {
            assert_eq!(malformed.parse::<Verifier>(), Err(VerifierError::Form), "{malformed}");
        }
    }

    proptest! {
        #[test]
        fn parsing_arbitrary_text_does_not_panic(text: String) {
            let _ = text.parse::<Verifier>();
        }
    }
}
