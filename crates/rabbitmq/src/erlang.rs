//! Bytes and texts as Erlang shows them: RabbitMQ's texts have them, and people look for those.

use std::fmt::Write;

/// A binary as `~p` shows it.
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

/// A string as `~p` shows it.
pub fn string(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
