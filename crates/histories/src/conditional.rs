//! Conditional writes: each names the version that it replaces, so that successful ones form a chain without forks.

use std::collections::BTreeMap;

use crate::described;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The version that the write names.
    pub replaces: String,
    pub node: usize,
    pub at: u64,
    pub made: WriteOutcome,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// Accepted, with the resulting version.
    Yes(String),
    /// Rejected: another write came first.
    No,
    /// No reply.
    Perhaps,
}

/// `end`: the version that was read after all writes.
pub fn check(history: &[Write], end: Option<&str>) -> Vec<String> {
    let mut replaced: BTreeMap<&str, &Write> = BTreeMap::new();
    let (mut forks, mut undone) = (Vec::new(), Vec::new());
    for write in history.iter().filter(|it| matches!(it.made, WriteOutcome::Yes(_))) {
        if let Some(first) = replaced.insert(&write.replaces, write) {
            forks.push(format!(
                "version {} was replaced at node {} at {} ms and at node {} at {} ms",
                write.replaces,
                first.node + 1,
                first.at,
                write.node + 1,
                write.at
            ));
        }
    }
    if let Some(write) = end.and_then(|end| replaced.get(end)) {
        undone.push(format!(
            "version {} is the last, and was replaced at node {} at {} ms",
            write.replaces,
            write.node + 1,
            write.at
        ));
    }
    let mut all = described("conditional write, two of one version", forks);
    all.extend(described("conditional write, lost", undone));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(replaces: &str, made: WriteOutcome) -> Write {
        Write { replaces: replaces.to_owned(), node: 0, at: 1, made }
    }

    fn yes(version: &str) -> WriteOutcome {
        WriteOutcome::Yes(version.to_owned())
    }

    #[test]
    fn two_writes_of_one_version_are_found() {
        let sound =
            [write("a", yes("b")), write("a", WriteOutcome::No), write("b", WriteOutcome::Perhaps)];
        assert!(check(&sound, Some("c")).is_empty());
        let fork = [write("a", yes("b")), write("a", yes("c"))];
        assert!(check(&fork, Some("c"))[0].contains("version a was replaced"));
    }

    #[test]
    fn write_that_is_undone_in_the_end_is_found() {
        let history = [write("a", yes("b")), write("b", yes("c"))];
        assert!(check(&history, Some("b"))[0].contains("version b is the last"));
        assert!(check(&history, Some("c")).is_empty());
    }
}
