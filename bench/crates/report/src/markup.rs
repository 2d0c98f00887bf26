//! Escapes text from files for HTML. Names, settings and reasons are untrusted, so they reach the
//! page only through this module.

use std::fmt;

/// Displays the text with all characters escaped that could end an element or an attribute.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Text<'a>(pub(crate) &'a str);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        while let Some(at) = rest.find(['&', '<', '>', '"', '\'']) {
            f.write_str(&rest[..at])?;
            f.write_str(match rest.as_bytes()[at] {
                b'&' => "&amp;",
                b'<' => "&lt;",
                b'>' => "&gt;",
                b'"' => "&quot;",
                _ => "&#39;",
            })?;
            rest = &rest[at + 1..];
        }
        f.write_str(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_in_text_stays_text() {
        let hostile = r#"</td><script>alert("1" & '2')</script>é"#;
        let text = Text(hostile).to_string();
        assert!(!text.contains(['<', '>', '"', '\'']));
        assert!(text.ends_with("é") && text.contains("&amp;"));
    }
}
