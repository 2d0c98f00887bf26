//! SASL mechanisms that send a password or a token, as bytes.

use std::fmt;

use super::Credentials;

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PlainError {
    #[error("response is not three parts")]
    Parts,
    #[error("it wants to act as another user")]
    OtherIdentity,
}

/// PLAIN (RFC 4616): an authorization identity, which is ignored, a name and a password, separated by zeros. Invalid
/// UTF-8 matches no name or password, and fails as such.
pub fn plain(response: &[u8]) -> Result<Credentials, PlainError> {
    let mut parts = response.split(|byte| *byte == 0);
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(_), Some(name), Some(password), None) => Ok(Credentials::from_bytes(name, password)),
        _ => Err(PlainError::Parts),
    }
}

/// As [`plain`], but rejects an authorization identity other than the name.
pub fn plain_as_oneself(response: &[u8]) -> Result<Credentials, PlainError> {
    let credentials = plain(response)?;
    let identity = response.split(|byte| *byte == 0).next().unwrap_or_default();
    match identity.is_empty() || identity == credentials.name.as_bytes() {
        true => Ok(credentials),
        false => Err(PlainError::OtherIdentity),
    }
}

/// A message of OAUTHBEARER.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Bearer<'a> {
    /// Authorization identity, if there is one; commas and equals signs are escaped as `=2C` and `=3D`.
    identity: Option<&'a str>,
    pub token: &'a str,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BearerError {
    #[error("the message is none of OAUTHBEARER")]
    Malformed,
    #[error("the message has no token")]
    NoToken,
}

/// Separates the parts of a message.
const SEPARATOR: char = '\u{1}';

/// OAUTHBEARER (RFC 7628, 3.1): a header, then key-value pairs, of which `auth` has the token. Other pairs, such as
/// the extensions of KIP-342, are ignored.
pub fn bearer(message: &[u8]) -> Result<Bearer<'_>, BearerError> {
    let text = std::str::from_utf8(message).map_err(|_| BearerError::Malformed)?;
    let (header, pairs) = text.split_once(SEPARATOR).ok_or(BearerError::Malformed)?;
    let mut fields = header.split(',');
    let identity = match (fields.next(), fields.next(), fields.next(), fields.next()) {
        (Some("n" | "y"), Some(identity), Some(""), None) => identity,
        _ => return Err(BearerError::Malformed),
    };
    let identity = match identity {
        "" => None,
        said => Some(said.strip_prefix("a=").ok_or(BearerError::Malformed)?),
    };
    // Each pair ends with a separator, and one more ends the list.
    let pairs = pairs.strip_suffix(SEPARATOR).ok_or(BearerError::Malformed)?;
    let mut said = None;
    for pair in pairs.strip_suffix(SEPARATOR).unwrap_or_default().split(SEPARATOR) {
        match pair.split_once('=') {
            Some(("auth", _)) if said.is_some() => return Err(BearerError::Malformed),
            Some(("auth", value)) => said = Some(value),
            Some(_) => {}
            None if pair.is_empty() => {}
            None => return Err(BearerError::Malformed),
        }
    }
    let (scheme, token) = said.and_then(|said| said.split_once(' ')).ok_or(BearerError::NoToken)?;
    match scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() {
        true => Ok(Bearer { identity, token }),
        false => Err(BearerError::NoToken),
    }
}

impl fmt::Debug for Bearer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bearer").field("identity", &self.identity).finish_non_exhaustive()
    }
}

impl Bearer<'_> {
    /// Whether the authorization identity, if any, is this name.
    pub fn is_as(&self, name: &str) -> bool {
        let written = || name.replace('=', "=3D").replace(',', "=2C");
        self.identity.is_none_or(|identity| identity == written())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oauthbearer_message_gives_its_token() {
        let token = |message: &str| bearer(message.as_bytes()).map(|it| it.token.to_owned());
        for good in [
            "n,,\u{1}auth=Bearer a.b.c\u{1}\u{1}",
            "y,,\u{1}auth=bearer a.b.c\u{1}\u{1}",
            "n,a=app,\u{1}host=h\u{1}port=1\u{1}auth=Bearer a.b.c\u{1}x=y\u{1}\u{1}",
        ] {
            assert_eq!(token(good).as_deref(), Ok("a.b.c"), "{good:?}");
        }
        for malformed in [
            "",
            "n,,",
            "n,,\u{1}",
            "p=x,,\u{1}auth=Bearer a\u{1}\u{1}",
            "n,app,\u{1}auth=Bearer a\u{1}\u{1}",
            "n\u{1}auth=Bearer a\u{1}\u{1}",
            "n,,\u{1}auth=Bearer a",
            "n,,\u{1}auth=Bearer a\u{1}auth=Bearer b\u{1}\u{1}",
            "n,,\u{1}auth\u{1}\u{1}",
        ] {
            assert_eq!(token(malformed), Err(BearerError::Malformed), "{malformed:?}");
        }
        for none in [
            "n,,\u{1}\u{1}",
            "n,,\u{1}host=h\u{1}\u{1}",
            "n,,\u{1}auth=Basic a\u{1}\u{1}",
            "n,,\u{1}auth=Bearer\u{1}\u{1}",
            "n,,\u{1}auth=Bearer \u{1}\u{1}",
        ] {
            assert_eq!(token(none), Err(BearerError::NoToken), "{none:?}");
        }
        assert_eq!(bearer(b"n,,\x01auth=Bearer \xff\x01\x01").err(), Some(BearerError::Malformed));
        let as_other = bearer(b"n,a=a=2Cb=3Dc,\x01auth=Bearer t\x01\x01").expect("is one");
        assert!(as_other.is_as("a,b=c") && !as_other.is_as("a"));
        assert!(bearer(b"n,,\x01auth=Bearer t\x01\x01").expect("is one").is_as("anybody"));
    }

    #[test]
    fn plain_response_has_three_parts() {
        let credentials = plain(b"\0guest\0secret").expect("three parts");
        assert_eq!((&*credentials.name, &*credentials.password), ("guest", "secret"));
        for wrong in [&b""[..], b"guest", b"\0guest", b"\0a\0b\0c"] {
            assert_eq!(plain(wrong).err(), Some(PlainError::Parts));
        }
    }

    #[test]
    fn foreign_authorization_identity_is_rejected_where_it_is_checked() {
        assert!(plain_as_oneself(b"\0a\0x").is_ok() && plain_as_oneself(b"a\0a\0x").is_ok());
        assert_eq!(plain_as_oneself(b"b\0a\0x").err(), Some(PlainError::OtherIdentity));
    }
}
