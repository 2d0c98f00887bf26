//! Verification of tokens.

use std::sync::Arc;

use crate::limits::{TOKEN_BYTES_MAX, TOKEN_LEEWAY};
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{DecodingKey, Validation, decode, decode_header};
use serde_json::{Map, Value};
use tokio::sync::watch;
use world::{Clock, World};

use crate::following::FollowedKeys;
use crate::keys::is_allowed;
use crate::options::TokenOptions;

/// The trusted tokens of one issuer. Clones share their state.
#[derive(Clone, Debug)]
pub struct Tokens(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    options: TokenOptions,
    keys: FollowedKeys,
    clock: Arc<dyn Clock>,
}

/// Principal of a valid token, and its expiry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VerifiedToken {
    pub name: String,
    /// In wall-clock time.
    pub ends_ms: i64,
}

/// Reason why a token is rejected, without any part of the token.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TokenError {
    #[error("it has more than {TOKEN_BYTES_MAX} bytes")]
    Large,
    #[error("it is no signed JSON Web Token of an algorithm that is known")]
    Malformed,
    #[error("its algorithm is none of those that are allowed")]
    Algorithm,
    #[error("its header says that something must be understood, and it is not")]
    Critical,
    #[error("its issuer has no such key")]
    Key,
    #[error("its signature is not of the issuer's key")]
    Signature,
    #[error("it is of another issuer")]
    Issuer,
    #[error("it is for others")]
    Audience,
    #[error("it does not say when it ends")]
    Endless,
    #[error("it has ended")]
    Ended,
    #[error("it is not good yet")]
    Early,
    #[error("it has no claim that names the user")]
    Nameless,
}

/// Whether a text looks like a signed token: three parts, the first of which begins like every JSON header.
pub fn looks_like_token(text: &str) -> bool {
    text.starts_with("eyJ") && text.bytes().filter(|byte| *byte == b'.').count() == 2
}

impl Tokens {
    /// Without keys until [`Tokens::follow`] runs.
    pub fn new(options: TokenOptions, clock: Arc<dyn Clock>) -> Self {
        let keys = FollowedKeys::new(&options);
        Self(Arc::new(Inner { options, keys, clock }))
    }

    /// Reads the issuer's keys periodically until the node stops.
    pub async fn follow(self, world: World, stopping: watch::Receiver<bool>) {
        self.0.keys.follow(&self.0.options, &world, stopping).await;
    }

    /// Verifies a token. An unknown key triggers a read of the keys, which may take a while.
    pub async fn verify(&self, token: &str) -> Result<VerifiedToken, TokenError> {
        match self.verify_by_known_keys(token) {
            Err(TokenError::Key) if self.0.keys.refresh().await => self.verify_by_known_keys(token),
            verified => verified,
        }
    }

    /// Installs keys, for tests and fuzz targets.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn set_keys(&self, keys: crate::keys::Keys) {
        self.0.keys.set_keys(keys);
    }

    pub(crate) fn verify_by_known_keys(&self, token: &str) -> Result<VerifiedToken, TokenError> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(TokenError::Large);
        }
        if token.bytes().filter(|byte| *byte == b'.').count() != 2 {
            return Err(TokenError::Malformed);
        }
        // Unknown algorithms, such as `none`, fail to decode here.
        let header = decode_header(token).map_err(|_| TokenError::Malformed)?;
        if !is_allowed(header.alg) {
            return Err(TokenError::Algorithm);
        }
        if header.crit.is_some() {
            return Err(TokenError::Critical);
        }
        let mut validation = Validation::new(header.alg);
        // Expiry and audience are checked below, by the node's own clock.
        validation.validate_exp = false;
        validation.validate_aud = false;
        validation.required_spec_claims.clear();
        let keys = self.0.keys.current();
        let mut refused = TokenError::Key;
        for key in keys.fitting(header.kid.as_deref(), header.alg) {
            match claims(token, key, &validation) {
                Ok(claims) => return self.check_claims(&claims),
                Err(error) => refused = error,
            }
        }
        Err(refused)
    }

    pub(crate) fn check_claims(
        &self,
        claims: &Map<String, Value>,
    ) -> Result<VerifiedToken, TokenError> {
        let options = &self.0.options;
        let text = |claim: &str| claims.get(claim).and_then(Value::as_str);
        if text("iss") != Some(&options.issuer) {
            return Err(TokenError::Issuer);
        }
        let is_ours = |value: &Value| {
            value.as_str().is_some_and(|it| options.audiences.iter().any(|known| known == it))
        };
        let is_for_us = match claims.get("aud") {
            Some(Value::Array(all)) => all.iter().any(is_ours),
            Some(one) => is_ours(one),
            None => false,
        };
        if !is_for_us {
            return Err(TokenError::Audience);
        }
        let (now_ms, leeway_ms) = (self.0.clock.now_ms(), TOKEN_LEEWAY.as_millis() as i64);
        let ends_ms = claims.get("exp").and_then(time_ms).ok_or(TokenError::Endless)?;
        if ends_ms.saturating_add(leeway_ms) <= now_ms {
            return Err(TokenError::Ended);
        }
        let begins_ms = match claims.get("nbf") {
            Some(begins) => time_ms(begins).ok_or(TokenError::Early)?,
            None => i64::MIN,
        };
        if begins_ms.saturating_sub(leeway_ms) > now_ms {
            return Err(TokenError::Early);
        }
        let name = text(&options.principal_claim).ok_or(TokenError::Nameless)?;
        // Within the leeway an expired token is still valid; its end is extended by it.
        let ends_ms = if ends_ms > now_ms { ends_ms } else { ends_ms + leeway_ms };
        Ok(VerifiedToken { name: name.to_owned(), ends_ms })
    }
}

fn claims(
    token: &str,
    key: &DecodingKey,
    validation: &Validation,
) -> Result<Map<String, Value>, TokenError> {
    let decoded = decode::<Map<String, Value>>(token, key, validation);
    decoded.map(|decoded| decoded.claims).map_err(|error| match error.kind() {
        ErrorKind::InvalidSignature => TokenError::Signature,
        _ => TokenError::Malformed,
    })
}

/// A time claim: seconds since the epoch, possibly with a fraction (RFC 7519, 2).
fn time_ms(value: &Value) -> Option<i64> {
    /// The year 9999: later times are rejected.
    const SECS_MAX: f64 = 253_402_300_799.0;
    let secs = value.as_f64().filter(|secs| (0.0..=SECS_MAX).contains(secs))?;
    Some((secs * 1_000.0) as i64)
}
