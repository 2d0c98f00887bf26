//! Settings that are sizes in bytes.

use cli::size::size_in_bytes;
use serde::{Deserialize, Deserializer};

use super::{SettingsError, invalid};

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
