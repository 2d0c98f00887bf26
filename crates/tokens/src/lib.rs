//! Tokens that somebody else signed: JSON Web Tokens of an OpenID Connect issuer.
//!
//! Whoever has a good one is whom it names, until it ends. [`Tokens`] says whether one is good: the keys are the
//! issuer's, read from where the node's settings say and from nowhere that a token names; the algorithms are those of the
//! key, never one that the token chooses (`none`, or HMAC with a public key for its secret); and issuer, audience and end
//! must be there. What is wrong with a token is told without a word of it.
//!
//! * [`options`]: what is believed, and where the keys are
//! * `keys`: an issuer's keys, as a document has them; `source`: reading that; `following`: when it is read
//! * [`verifying`]: from a token to a name

mod following;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod keys;
pub mod options;
mod source;
pub mod verifying;

pub use options::{KeySource, OptionsError, TokenOptions};
pub use verifying::{TokenError, Tokens, Verified, is_like_one};
