//! Attributes of messages: `a=value`, separated by commas.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use thiserror::Error;

/// Limit of a message; clients send a few hundred bytes.
pub(crate) const MESSAGE_BYTES_MAX: usize = 4 << 10;

/// A malformed SCRAM message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("{0}")]
pub struct MalformedMessage(pub(crate) &'static str);

/// Decodes a message as text.
pub(crate) fn text(message: &[u8]) -> Result<&str, MalformedMessage> {
    if message.len() > MESSAGE_BYTES_MAX {
        return Err(MalformedMessage("the message is too long"));
    }
    std::str::from_utf8(message).map_err(|_| MalformedMessage("the message is no text"))
}

/// Reads the next attribute; returns its value and the rest.
pub(crate) fn attribute<'a>(
    message: &'a str,
    name: &'static str,
    missing: &'static str,
) -> Result<(&'a str, &'a str), MalformedMessage> {
    let rest = message.strip_prefix(name).ok_or(MalformedMessage(missing))?;
    Ok(rest.split_once(',').unwrap_or((rest, "")))
}

/// Decodes a name, in which `=2C` is a comma and `=3D` an equals sign.
pub(crate) fn decode_name(encoded: &str) -> Result<String, MalformedMessage> {
    let mut name = String::with_capacity(encoded.len());
    let mut parts = encoded.split('=');
    name.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let (sign, rest) = match (part.strip_prefix("2C"), part.strip_prefix("3D")) {
            (Some(rest), _) => (',', rest),
            (_, Some(rest)) => ('=', rest),
            _ => return Err(MalformedMessage("the name has an equals sign that begins nothing")),
        };
        name.push(sign);
        name.push_str(rest);
    }
    Ok(name)
}

pub(crate) fn encode_name(name: &str) -> String {
    name.replace('=', "=3D").replace(',', "=2C")
}

pub(crate) fn is_nonce(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| matches!(byte, 0x21..=0x7e) && byte != b',')
}

pub(crate) fn decode_bytes(text: &str, what: &'static str) -> Result<Vec<u8>, MalformedMessage> {
    STANDARD.decode(text).map_err(|_| MalformedMessage(what))
}

pub(crate) fn encode_bytes(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

pub(crate) fn xor(one: &[u8], other: &[u8]) -> Vec<u8> {
    one.iter().zip(other).map(|(a, b)| a ^ b).collect()
}
