//! The product code of a source file.

/// The part of a file before its tests, which stand at the end.
pub(crate) fn before_tests(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default()
}
