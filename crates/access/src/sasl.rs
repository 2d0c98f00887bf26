//! SASL's mechanisms that say a password, as bytes. What comes of them is [`Credentials`]'s.

use crate::login::Credentials;

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PlainError {
    #[error("response is not three parts")]
    Parts,
    #[error("it wants to act as somebody else")]
    OtherIdentity,
}

/// PLAIN (RFC 4616): an identity to act as, which is not used, a name and a password, with zeros
/// between. What is no UTF-8 is nobody's name or password, and is refused as such.
pub fn plain(response: &[u8]) -> Result<Credentials, PlainError> {
    let mut parts = response.split(|byte| *byte == 0);
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(_), Some(name), Some(password), None) => Ok(Credentials::from_bytes(name, password)),
        _ => Err(PlainError::Parts),
    }
}

/// The same, where nobody may say that it acts as somebody else.
pub fn plain_as_oneself(response: &[u8]) -> Result<Credentials, PlainError> {
    let credentials = plain(response)?;
    let identity = response.split(|byte| *byte == 0).next().unwrap_or_default();
    match identity.is_empty() || identity == credentials.name.as_bytes() {
        true => Ok(credentials),
        false => Err(PlainError::OtherIdentity),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_response_is_three_parts() {
        let credentials = plain(b"\0guest\0secret").expect("three parts");
        assert_eq!((&*credentials.name, &*credentials.password), ("guest", "secret"));
        for wrong in [&b""[..], b"guest", b"\0guest", b"\0a\0b\0c"] {
            assert_eq!(plain(wrong).err(), Some(PlainError::Parts));
        }
    }

    #[test]
    fn nobody_acts_as_somebody_else_where_that_is_looked_at() {
        assert!(plain_as_oneself(b"\0a\0x").is_ok() && plain_as_oneself(b"a\0a\0x").is_ok());
        assert_eq!(plain_as_oneself(b"b\0a\0x").err(), Some(PlainError::OtherIdentity));
    }
}
