//! A token issuer for tests: its keys, and valid and invalid tokens signed by them. Only the cryptographic primitives
//! are shared with the verifying code.

#![expect(clippy::disallowed_types, reason = "of tests with the machine's own clock")]

use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256,
    RSA_PSS_SHA256, RsaEncoding, RsaKeyPair,
};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
pub use serde_json::{Value, json};

pub const ISSUER: &str = "https://id.example.com/realms/one";
pub const AUDIENCE: &str = "postroad";

/// A key of an issuer.
#[derive(Debug)]
pub struct Signer {
    id: &'static str,
    key: Key,
}

#[derive(Debug)]
enum Key {
    Rsa(Box<RsaKeyPair>),
    P256(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

pub fn now_secs() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs() as i64
}

/// Claims of a valid token for this name that expires in so many seconds.
pub fn claims(name: &str, ends_in: i64) -> Value {
    json!({"iss": ISSUER, "aud": AUDIENCE, "sub": name, "exp": now_secs() + ends_in})
}

/// The JWKS document with these keys.
pub fn document(keys: &[&Signer]) -> String {
    let keys: Vec<Value> = keys.iter().map(|key| key.public()).collect();
    json!({"keys": keys}).to_string()
}

fn part(value: &Value) -> String {
    BASE64.encode(value.to_string())
}

/// A token without a signature.
pub fn unsigned(header: &Value, claims: &Value) -> String {
    format!("{}.{}.", part(header), part(claims))
}

/// A token signed with a shared secret.
pub fn with_secret(secret: &[u8], header: &Value, claims: &Value) -> String {
    let said = format!("{}.{}", part(header), part(claims));
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), said.as_bytes());
    format!("{said}.{}", BASE64.encode(tag))
}

impl Signer {
    pub fn rsa(id: &'static str) -> Self {
        let key = RsaKeyPair::generate(KeySize::Rsa2048).expect("a key");
        Self { id, key: Key::Rsa(Box::new(key)) }
    }

    pub fn p256(id: &'static str) -> Self {
        let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("a key");
        Self { id, key: Key::P256(key) }
    }

    pub fn ed25519(id: &'static str) -> Self {
        Self { id, key: Key::Ed25519(Ed25519KeyPair::generate().expect("a key")) }
    }

    /// The public key as JWK.
    pub fn public(&self) -> Value {
        match &self.key {
            Key::Rsa(key) => {
                let public = key.public_key();
                let [n, e] = [public.modulus(), public.exponent()]
                    .map(|it| BASE64.encode(it.big_endian_without_leading_zero()));
                json!({"kty": "RSA", "kid": self.id, "use": "sig", "n": n, "e": e})
            }
            Key::P256(key) => {
                // The first byte marks an uncompressed point.
                let (x, y) = key.public_key().as_ref()[1..].split_at(32);
                let [x, y] = [x, y].map(|it| BASE64.encode(it));
                json!({"kty": "EC", "crv": "P-256", "kid": self.id, "x": x, "y": y})
            }
            Key::Ed25519(key) => {
                let x = BASE64.encode(key.public_key());
                json!({"kty": "OKP", "crv": "Ed25519", "kid": self.id, "x": x, "alg": "EdDSA"})
            }
        }
    }

    /// The public key as bytes, which a faulty verifier might use as a shared secret.
    pub fn public_bytes(&self) -> Vec<u8> {
        match &self.key {
            Key::Rsa(key) => key.public_key().as_ref().to_vec(),
            Key::P256(key) => key.public_key().as_ref().to_vec(),
            Key::Ed25519(key) => key.public_key().as_ref().to_vec(),
        }
    }

    /// The most common algorithm for this type of key.
    pub fn algorithm(&self) -> &'static str {
        match &self.key {
            Key::Rsa(_) => "RS256",
            Key::P256(_) => "ES256",
            Key::Ed25519(_) => "EdDSA",
        }
    }

    pub fn header(&self) -> Value {
        json!({"alg": self.algorithm(), "kid": self.id, "typ": "JWT"})
    }

    pub fn token(&self, claims: &Value) -> String {
        self.token_with(&self.header(), claims)
    }

    /// Signs a token with the given header, which may be wrong.
    pub fn token_with(&self, header: &Value, claims: &Value) -> String {
        let said = format!("{}.{}", part(header), part(claims));
        let signature = self.sign(header["alg"].as_str().unwrap_or_default(), said.as_bytes());
        format!("{said}.{}", BASE64.encode(signature))
    }

    fn sign(&self, algorithm: &str, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match &self.key {
            Key::Rsa(key) => {
                let padding: &'static dyn RsaEncoding = match algorithm {
                    "PS256" => &RSA_PSS_SHA256,
                    _ => &RSA_PKCS1_SHA256,
                };
                let mut signature = vec![0; key.public_modulus_len()];
                key.sign(padding, &random, message, &mut signature).expect("signs");
                signature
            }
            Key::P256(key) => key.sign(&random, message).expect("signs").as_ref().to_vec(),
            Key::Ed25519(key) => key.sign(message).as_ref().to_vec(),
        }
    }
}
