//! Sizes in bytes, for settings and options.

use serde::{Deserialize, Deserializer};

use crate::settings::{SettingsError, invalid};

/// In a file a size may also be a plain number.
pub(crate) fn size<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a size is a number of bytes or a text such as \"128MiB\"")]
    enum Size {
        Number(u64),
        Text(String),
    }
    Ok(Some(match Size::deserialize(from)? {
        Size::Number(number) => number.to_string(),
        Size::Text(text) => text,
    }))
}

/// A size in bytes, plain or with a unit: 1048576, 1024KiB, 1MiB, 1m.
pub(crate) fn bytes(
    setting: &'static str,
    text: Option<String>,
    default: u64,
) -> Result<u64, SettingsError> {
    let Some(text) = text else { return Ok(default) };
    size_in_bytes(&text).map_err(|problem| invalid(setting, &text, problem))
}

pub(crate) fn size_in_bytes(text: &str) -> Result<u64, &'static str> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => Some(0),
        "k" | "kb" | "kib" => Some(10),
        "m" | "mb" | "mib" => Some(20),
        "g" | "gb" | "gib" => Some(30),
        "t" | "tb" | "tib" => Some(40),
        _ => None,
    };
    let parsed = shift.and_then(|shift| {
        digits.trim().replace('_', "").parse::<u64>().ok()?.checked_mul(1 << shift)
    });
    parsed.ok_or("is not a size, such as 134217728 or 128MiB")
}
