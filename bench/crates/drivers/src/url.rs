//! Names and passwords in URLs.

/// Percent-encodes everything but letters and digits.
pub(crate) fn escaped(text: &str) -> String {
    let escape = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(escape).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn special_characters_are_percent_encoded() {
        assert_eq!(super::escaped("a1@/:é"), "a1%40%2F%3A%C3%A9");
    }
}
