//! Names of several parts, such as a virtual host and one of its queues.

/// Joins parts with `/`. Within a part, `/` is written `%2F` and `%` is written `%25`.
pub fn join(parts: &[&str]) -> String {
    let escaped = parts.iter().map(|part| part.replace('%', "%25").replace('/', "%2F"));
    escaped.collect::<Vec<_>>().join("/")
}

/// Splits a name into the parts that [`join`] built it from.
pub fn split(name: &str) -> Vec<String> {
    name.split('/').map(|part| part.replace("%2F", "/").replace("%25", "%")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_splits_into_the_parts_it_was_joined_from() {
        for expected in [["/", "a/b", "100%"], ["", "%2F", "/%"], ["%25", "x", ""]] {
            assert_eq!(split(&join(&expected)), expected);
        }
    }
}
