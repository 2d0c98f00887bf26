//! Password hashes as RabbitMQ stores and exports them: base64 of a four-byte salt, followed by SHA-256 or SHA-512
//! over the salt and the password. They offer little protection against guessing, and exist so that users can be
//! imported.

use aws_lc_rs::digest::{Algorithm, SHA256, SHA512, digest};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};

use crate::hash::{PasswordError, same};

const SALT_BYTES: usize = 4;

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RabbitMqHash {
    /// In base64.
    pub hash: String,
    pub algorithm: RabbitMqHashing,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RabbitMqHashing {
    Sha256,
    Sha512,
}

impl RabbitMqHashing {
    /// Parses the name that definitions use, with or without the module's prefix.
    pub fn named(name: &str) -> Option<Self> {
        match name.strip_prefix("rabbit_password_hashing_").unwrap_or(name) {
            "sha256" => Some(Self::Sha256),
            "sha512" => Some(Self::Sha512),
            _ => None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "rabbit_password_hashing_sha256",
            Self::Sha512 => "rabbit_password_hashing_sha512",
        }
    }

    fn algorithm(self) -> &'static Algorithm {
        match self {
            Self::Sha256 => &SHA256,
            Self::Sha512 => &SHA512,
        }
    }
}

impl RabbitMqHash {
    /// A hash of unknown algorithm: determined by its length, else RabbitMQ's default.
    pub fn with_guessed_algorithm(hash: &str) -> Self {
        let by = |algorithm| Self { hash: hash.to_owned(), algorithm };
        let sha512 = by(RabbitMqHashing::Sha512);
        if sha512.check().is_ok() { sha512 } else { by(RabbitMqHashing::Sha256) }
    }

    fn parts(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        let mut salt = BASE64.decode(&self.hash).ok()?;
        let whole = SALT_BYTES + self.algorithm.algorithm().output_len();
        let is_whole = salt.len() == whole;
        is_whole.then(|| {
            let hash = salt.split_off(SALT_BYTES);
            (salt, hash)
        })
    }

    pub(crate) fn check(&self) -> Result<(), PasswordError> {
        let wrong = || PasswordError::RabbitMq(self.algorithm.name());
        self.parts().map(drop).ok_or_else(wrong)
    }

    pub(crate) fn is_of(&self, password: &str) -> bool {
        let Some((salt, hash)) = self.parts() else { return false };
        let salted = [&salt, password.as_bytes()].concat();
        same(&hash, digest(self.algorithm.algorithm(), &salted).as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_of_rabbitmqs_documentation_matches_its_password() {
        // "Credentials and Passwords": salt 908DC60A, password test12.
        let hash = "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR".to_owned();
        let known = RabbitMqHash { hash, algorithm: RabbitMqHashing::Sha256 };
        known.check().expect("is one");
        assert!(known.is_of("test12") && !known.is_of("test13") && !known.is_of(""));
        let other = RabbitMqHash { algorithm: RabbitMqHashing::Sha512, ..known.clone() };
        assert!(other.check().is_err() && !other.is_of("test12"));
        assert_eq!(RabbitMqHash::with_guessed_algorithm(&known.hash), known);
        let long = BASE64.encode([7; SALT_BYTES + 64]);
        assert_eq!(RabbitMqHash::with_guessed_algorithm(&long).algorithm, RabbitMqHashing::Sha512);
        for wrong in ["", "?", "kI3GCg=="] {
            assert!(RabbitMqHash { hash: wrong.to_owned(), ..known.clone() }.check().is_err());
        }
    }
}
