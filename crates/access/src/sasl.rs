//! SASL's mechanisms that say a password, as bytes. What comes of them is [`Credentials`]'s.

use crate::login::Credentials;

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PlainError {
    #[error("response is not three parts")]
    Parts,
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
}
