//! Names of several parts, such as a virtual host and a queue of it.

/// The name that these parts make. `/` separates them: within a part it is `%2F`, and `%` is `%25`.
pub fn join(parts: &[&str]) -> String {
    let escaped = parts.iter().map(|part| part.replace('%', "%25").replace('/', "%2F"));
    escaped.collect::<Vec<_>>().join("/")
}

/// The parts that [`join`] made a name of.
pub fn split(name: &str) -> Vec<String> {
    name.split('/').map(|part| part.replace("%2F", "/").replace("%25", "%")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_documents_name_is_taken_apart_as_it_was_put_together() {
        for expected in [["/", "a/b", "100%"], ["", "%2F", "/%"], ["%25", "x", ""]] {
            assert_eq!(split(&join(&expected)), expected);
        }
    }
}
