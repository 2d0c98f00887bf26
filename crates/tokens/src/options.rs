//! Settings of the token issuer that a node trusts.

use std::path::PathBuf;
use std::time::Duration;

use crate::limits::{
    TOKEN_KEY_FILE_READ_EVERY, TOKEN_KEYS_READ_AT_MOST_EVERY, TOKEN_KEYS_READ_EVERY,
};
use outbound::{Address, AddressError};

/// Default claim that names the principal.
pub const PRINCIPAL_CLAIM: &str = "sub";

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TokenOptions {
    /// Expected `iss` claim, compared exactly.
    pub issuer: String,
    /// Accepted `aud` claims; one match is enough.
    pub audiences: Vec<String>,
    pub keys: KeySource,
    /// Claim that names the principal.
    pub principal_claim: String,
    /// Interval between reads of the keys.
    pub read_every: Duration,
    /// Minimum interval between reads that are triggered by tokens of an unknown key.
    pub read_at_most_every: Duration,
}

/// Location of an issuer's keys (RFC 7517).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KeySource {
    File(PathBuf),
    Https {
        address: Address,
        /// PEM file of CA certificates that vouch for the host; `None`: the system's trust store.
        authorities: Option<PathBuf>,
    },
    /// Found through the issuer (OpenID Connect Discovery 1.0, section 4).
    Discovered {
        issuer: String,
        /// As above, for the issuer and for the host that its metadata names.
        authorities: Option<PathBuf>,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OptionsError {
    #[error("is neither an address that begins with https:// nor a file")]
    Scheme,
    #[error("is no address")]
    Address,
    #[error("has a name or a password in it")]
    UserInfo,
}

impl TokenOptions {
    pub fn new(issuer: String, audiences: Vec<String>, keys: KeySource) -> Self {
        let read_every = match keys {
            KeySource::File(_) => TOKEN_KEY_FILE_READ_EVERY,
            KeySource::Https { .. } | KeySource::Discovered { .. } => TOKEN_KEYS_READ_EVERY,
        };
        Self {
            issuer,
            audiences,
            keys,
            principal_claim: PRINCIPAL_CLAIM.to_owned(),
            read_every,
            read_at_most_every: TOKEN_KEYS_READ_AT_MOST_EVERY,
        }
    }
}

impl KeySource {
    /// Keys found through the issuer's metadata; the issuer's name is its address.
    pub fn discovered(issuer: &str, authorities: Option<PathBuf>) -> Result<Self, OptionsError> {
        match Self::parse(issuer, authorities.clone())? {
            Self::Https { .. } if !issuer.contains(['?', '#']) => {
                Ok(Self::Discovered { issuer: issuer.to_owned(), authorities })
            }
            Self::Https { .. } => Err(OptionsError::Address),
            _ => Err(OptionsError::Scheme),
        }
    }

    /// Parses an `https://` address or a file path. Plain HTTP is rejected: an attacker on the path could replace the
    /// keys.
    pub fn parse(text: &str, authorities: Option<PathBuf>) -> Result<Self, OptionsError> {
        let Some((scheme, _)) = text.split_once("://") else {
            return match text {
                "" => Err(OptionsError::Address),
                path => Ok(Self::File(PathBuf::from(path))),
            };
        };
        if !scheme.eq_ignore_ascii_case("https") {
            return Err(OptionsError::Scheme);
        }
        Ok(Self::Https { address: Address::parse(text)?, authorities })
    }
}

impl From<AddressError> for OptionsError {
    fn from(error: AddressError) -> Self {
        match error {
            AddressError::Scheme => Self::Scheme,
            AddressError::Address => Self::Address,
            AddressError::UserInfo => Self::UserInfo,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn https(address: &str) -> Result<KeySource, OptionsError> {
        let address = Address::parse(address).expect("valid");
        Ok(KeySource::Https { address, authorities: None })
    }

    #[test]
    fn key_source_is_a_file_or_an_https_address() {
        let of = |text: &str| KeySource::parse(text, None);
        assert_eq!(of("keys.json"), Ok(KeySource::File("keys.json".into())));
        assert_eq!(of("https://id.example.com"), https("https://id.example.com/"));
        assert_eq!(of("HTTPS://id:8443/keys?v=1"), https("https://id:8443/keys?v=1"));
        assert_eq!(of("http://id/keys"), Err(OptionsError::Scheme));
        assert_eq!(of("file:///keys"), Err(OptionsError::Scheme));
        assert_eq!(of("https://a:b@id/keys"), Err(OptionsError::UserInfo));
        assert_eq!(of("https://"), Err(OptionsError::Address));
        assert_eq!(of(""), Err(OptionsError::Address));
    }

    #[test]
    fn discovered_issuer_must_be_an_https_address() {
        let of = |issuer: &str| KeySource::discovered(issuer, None).map(drop);
        assert_eq!(of("https://id.example.com/realms/main"), Ok(()));
        assert_eq!(of("id.example.com"), Err(OptionsError::Scheme));
        assert_eq!(of("http://id.example.com"), Err(OptionsError::Scheme));
        assert_eq!(of("https://id.example.com/?realm=main"), Err(OptionsError::Address));
        assert_eq!(of("https://a:b@id.example.com"), Err(OptionsError::UserInfo));
    }
}
