//! Tokens signed by a third party: JSON Web Tokens of an OpenID Connect issuer.
//!
//! The bearer of a valid token is the principal that it names, until it expires. [`Tokens`] verifies a token:
//!
//! * The keys are the issuer's, read only from the location in the node's settings, not from a place that the
//!   token names.
//! * The algorithm must be one of the key's; the token cannot choose `none`, or HMAC with a public key as its secret.
//! * Issuer, audience and expiry must be present.
//! * Errors contain no part of the token.
//!
//! * [`options`]: trusted issuer, audiences, and location of the keys
//! * `keys`: an issuer's JWK set; `source`: reads it; `following`: schedules the reads
//! * [`verifying`]: verifies a token and returns its principal

mod following;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod keys;
pub mod limits;
pub mod options;
mod source;
pub mod verifying;

pub use options::{KeySource, OptionsError, TokenOptions};
pub use verifying::{TokenError, Tokens, VerifiedToken, looks_like_token};
