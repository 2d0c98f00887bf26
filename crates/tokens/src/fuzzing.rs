//! Invariants of tokens and of documents with keys for any input: for fuzz targets, and for tests of their findings.

use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use serde_json::Map;
use world::ManualClock;

use crate::keys::Keys;
use crate::options::{KeySource, TokenOptions};
use crate::verifying::{Tokens, looks_like_token};

const KEYS: &[u8] = br#"{"keys":[
    {"kty":"EC","crv":"P-256","kid":"1","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"},
    {"kty":"OKP","crv":"Ed25519","kid":"2","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;

static TOKENS: LazyLock<Tokens> = LazyLock::new(|| {
    let keys = KeySource::File(PathBuf::new());
    let options = TokenOptions::new("issuer".to_owned(), vec!["us".to_owned()], keys);
    let tokens = Tokens::new(options, Arc::new(ManualClock::new(1_000_000)));
    tokens.set_keys(Keys::parse(KEYS).expect("keys"));
    tokens
});

/// A token. None verifies, since the private keys are unknown.
pub fn token(data: &[u8]) {
    let Ok(token) = std::str::from_utf8(data) else { return };
    let _ = looks_like_token(token);
    assert!(TOKENS.verify_by_known_keys(token).is_err(), "nobody has signed it");
}

/// Claims of a token with a valid signature.
pub fn claims(data: &[u8]) {
    let Ok(claims) = serde_json::from_slice::<Map<String, serde_json::Value>>(data) else { return };
    if let Ok(verified) = TOKENS.check_claims(&claims) {
        assert_eq!(claims["sub"].as_str(), Some(&*verified.name));
        assert!(verified.ends_ms > 1_000_000, "it has ended");
    }
}

/// A JWK set.
pub fn keys(data: &[u8]) {
    if let Ok(keys) = Keys::parse(data) {
        assert!(keys.len() > 0 && keys.len() <= crate::limits::TOKEN_KEYS_MAX);
        let hmac = keys.fitting(None, jsonwebtoken::Algorithm::HS256);
        assert_eq!(hmac.count(), 0, "a public key is no secret");
    }
}

/// Selects one of the three by the first byte.
pub fn any(data: &[u8]) {
    match data.split_first() {
        Some((b'k', rest)) => keys(rest),
        Some((b'c', rest)) => claims(rest),
        Some((_, rest)) => token(rest),
        None => {}
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn token_corpus_holds_the_invariants() {
        test_corpus::each("token", super::any);
    }
}
