//! Bytes and texts in Erlang's format: RabbitMQ's texts contain them, and people search for those.

use std::fmt::Write;

/// A binary in the format of `~p`.
pub fn binary(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok("") => "<<>>".to_owned(),
        Ok(text) if text.chars().all(|c| !c.is_control()) => {
            let encoding = if text.is_ascii() { "" } else { "/utf8" };
            format!("<<{}{encoding}>>", string(text))
        }
        _ => {
            let mut shown = String::from("<<");
            for (place, byte) in bytes.iter().enumerate() {
                let comma = if place == 0 { "" } else { "," };
                let _ = write!(shown, "{comma}{byte}");
            }
            shown + ">>"
        }
    }
}

/// A string in the format of `~p`.
pub fn string(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
