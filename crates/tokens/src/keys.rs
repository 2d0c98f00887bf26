//! An issuer's public keys, as a JWK set has them (RFC 7517).
//!
//! A key is valid for the algorithm that it names, or for those of its kind. The algorithm of a token must be one of
//! its key's, so that a public key is never used as an HMAC secret. Keys of other kinds are skipped, as the RFC
//! requires.

use crate::limits::{TOKEN_KEYS_LIMITS, TOKEN_KEYS_MAX};
use base::json::{self, JsonTooLarge};
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;

const RSA: [Algorithm; 6] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
];

/// Algorithms that may sign tokens: those with public keys only.
pub(crate) fn is_allowed(algorithm: Algorithm) -> bool {
    RSA.contains(&algorithm)
        || matches!(algorithm, Algorithm::ES256 | Algorithm::ES384 | Algorithm::EdDSA)
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Keys(Vec<Key>);

#[derive(Clone, Debug)]
struct Key {
    id: Option<String>,
    algorithms: Vec<Algorithm>,
    key: DecodingKey,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum KeysError {
    #[error("it is no set of keys: {0}")]
    Malformed(#[from] serde_json::Error),
    #[error(transparent)]
    TooLarge(#[from] JsonTooLarge),
    #[error("it has more than {TOKEN_KEYS_MAX} keys")]
    Many,
    #[error("it has no key that tokens could be signed with (RSA, P-256, P-384, Ed25519)")]
    None,
}

#[derive(Deserialize)]
struct Document {
    keys: Vec<serde_json::Value>,
}

impl Keys {
    pub(crate) fn parse(document: &[u8]) -> Result<Self, KeysError> {
        json::examine(document, &TOKEN_KEYS_LIMITS)?;
        let Document { keys } = serde_json::from_slice(document)?;
        if keys.len() > TOKEN_KEYS_MAX {
            return Err(KeysError::Many);
        }
        let read = |key| Key::of(&serde_json::from_value(key).ok()?);
        let keys: Vec<Key> = keys.into_iter().filter_map(read).collect();
        if keys.is_empty() { Err(KeysError::None) } else { Ok(Self(keys)) }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Keys that may verify a token of this algorithm: the key with this id, or any key if the token names none.
    pub(crate) fn fitting(
        &self,
        id: Option<&str>,
        algorithm: Algorithm,
    ) -> impl Iterator<Item = &DecodingKey> {
        let fits = move |key: &&Key| {
            let is_named = id.is_none() || key.id.as_deref() == id;
            is_named && key.algorithms.contains(&algorithm)
        };
        self.0.iter().filter(fits).map(|key| &key.key)
    }
}

impl Key {
    /// `None`: the key is not usable for signatures.
    fn of(jwk: &Jwk) -> Option<Self> {
        let common = &jwk.common;
        let is_for_signatures =
            matches!(common.public_key_use, None | Some(PublicKeyUse::Signature));
        let verifies =
            |operations: &Vec<KeyOperations>| operations.contains(&KeyOperations::Verify);
        if !is_for_signatures || !common.key_operations.as_ref().is_none_or(verifies) {
            return None;
        }
        let mut algorithms = match &jwk.algorithm {
            AlgorithmParameters::RSA(_) => RSA.to_vec(),
            AlgorithmParameters::EllipticCurve(key) => match key.curve {
                EllipticCurve::P256 => vec![Algorithm::ES256],
                EllipticCurve::P384 => vec![Algorithm::ES384],
                _ => return None,
            },
            AlgorithmParameters::OctetKeyPair(key) => match key.curve {
                EllipticCurve::Ed25519 => vec![Algorithm::EdDSA],
                _ => return None,
            },
            _ => return None,
        };
        if let Some(only) = common.key_algorithm {
            let only = Algorithm::try_from(only).ok()?;
            algorithms.retain(|algorithm| *algorithm == only);
        }
        let key = DecodingKey::from_jwk(jwk).ok()?;
        (!algorithms.is_empty()).then(|| Self { id: common.key_id.clone(), algorithms, key })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EC: &str = r#""kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0""#;
    const OKP: &str =
        r#""kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo""#;
    const RSA_KEY: &str = r#""kty":"RSA","n":"0vx7","e":"AQAB""#;

    fn keys(keys: &[&str]) -> Result<Keys, KeysError> {
        let keys: Vec<String> = keys.iter().map(|key| format!("{{{key}}}")).collect();
        Keys::parse(format!("{{\"keys\":[{}]}}", keys.join(",")).as_bytes())
    }

    fn algorithms(key: &str) -> Vec<Algorithm> {
        keys(&[key]).map(|keys| keys.0[0].algorithms.clone()).unwrap_or_default()
    }

    #[test]
    fn key_allows_the_algorithm_it_names_or_those_of_its_kind() {
        assert_eq!(algorithms(EC), [Algorithm::ES256]);
        assert_eq!(algorithms(OKP), [Algorithm::EdDSA]);
        assert_eq!(algorithms(RSA_KEY), RSA);
        assert_eq!(algorithms(&format!(r#"{RSA_KEY},"alg":"PS256""#)), [Algorithm::PS256]);
        assert_eq!(algorithms(&format!(r#"{RSA_KEY},"use":"sig""#)), RSA);
        assert_eq!(algorithms(&format!(r#"{RSA_KEY},"key_ops":["verify"]"#)), RSA);
        for other in [
            &format!(r#"{RSA_KEY},"use":"enc""#)[..],
            &format!(r#"{RSA_KEY},"alg":"RSA-OAEP""#),
            &format!(r#"{RSA_KEY},"alg":"HS256""#),
            &format!(r#"{RSA_KEY},"key_ops":["encrypt"]"#),
            r#""kty":"oct","k":"c2VjcmV0","alg":"HS256""#,
            r#""kty":"new""#,
            r#""x":1"#,
        ] {
            assert!(algorithms(other).is_empty(), "{other}");
        }
    }

    #[test]
    fn key_id_selects_the_key_and_no_id_tries_all() {
        let [one, two] = [1, 2].map(|id| format!(r#"{EC},"kid":"{id}""#));
        let keys = keys(&[&one, &two, OKP]).expect("keys");
        assert_eq!(keys.len(), 3);
        let found = |id, algorithm| keys.fitting(id, algorithm).count();
        assert_eq!(found(Some("1"), Algorithm::ES256), 1);
        assert_eq!(found(Some("3"), Algorithm::ES256), 0);
        assert_eq!(found(Some("1"), Algorithm::RS256), 0);
        assert_eq!((found(None, Algorithm::ES256), found(None, Algorithm::EdDSA)), (2, 1));
        assert_eq!((found(None, Algorithm::HS256), found(None, Algorithm::RS256)), (0, 0));
    }

    #[test]
    fn key_set_without_keys_or_with_too_many_is_rejected() {
        for wrong in ["", "[]", "{}", "{\"keys\":1}", "<html>"] {
            assert!(matches!(Keys::parse(wrong.as_bytes()), Err(KeysError::Malformed(_))));
        }
        assert!(matches!(keys(&[]), Err(KeysError::None)));
        let many = format!("{{\"keys\":[{}]}}", vec!["{}"; 300_000].join(","));
        assert!(matches!(Keys::parse(many.as_bytes()), Err(KeysError::TooLarge(_))));
        assert!(matches!(keys(&vec![EC; TOKEN_KEYS_MAX + 1]), Err(KeysError::Many)));
        assert_eq!(keys(&vec![EC; TOKEN_KEYS_MAX]).expect("keys").len(), TOKEN_KEYS_MAX);
    }
}
