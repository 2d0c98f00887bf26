//! Differences between two transcripts. `differences.list` has each known one word for word, with its reason. An
//! unlisted difference is a failure, and so is a listed one that no longer occurs.

use std::fmt;

use crate::failure::{Failure, Outcome};

/// Lines that differ at one place of the transcripts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Difference {
    /// `- ` and RabbitMQ's line, or `+ ` and Postroad's.
    lines: Vec<String>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.lines.join("\n"))
    }
}

/// Differences between two transcripts of the same scenario, in order.
pub(super) fn between(rabbitmq: &[String], postroad: &[String]) -> Vec<Difference> {
    // Length of the longest common subsequence from each pair of places on.
    let mut common = vec![vec![0_u32; postroad.len() + 1]; rabbitmq.len() + 1];
    for a in (0..rabbitmq.len()).rev() {
        for b in (0..postroad.len()).rev() {
            common[a][b] = match rabbitmq[a] == postroad[b] {
                true => common[a + 1][b + 1] + 1,
                false => common[a + 1][b].max(common[a][b + 1]),
            };
        }
    }
    let (mut a, mut b) = (0, 0);
    let mut differences = vec![];
    let mut lines = vec![];
    while a < rabbitmq.len() || b < postroad.len() {
        if a < rabbitmq.len() && b < postroad.len() && rabbitmq[a] == postroad[b] {
            if !lines.is_empty() {
                differences.push(Difference { lines: std::mem::take(&mut lines) });
            }
            (a, b) = (a + 1, b + 1);
        } else if b == postroad.len() || a < rabbitmq.len() && common[a + 1][b] >= common[a][b + 1]
        {
            lines.push(format!("- {}", rabbitmq[a]));
            a += 1;
        } else {
            lines.push(format!("+ {}", postroad[b]));
            b += 1;
        }
    }
    if !lines.is_empty() {
        differences.push(Difference { lines });
    }
    differences
}

/// Differences that are known.
#[derive(Debug, Default)]
pub(super) struct KnownDifferences {
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    scenario: String,
    difference: Difference,
    found: bool,
}

impl KnownDifferences {
    /// `# REASON` lines, `== SCENARIO`, and the lines of the difference; a blank line ends an entry.
    pub(super) fn parse(text: &str) -> Outcome<KnownDifferences> {
        let mut known = KnownDifferences::default();
        // Blocks are separated by blank lines.
        for block in text.split("\n\n") {
            let lines: Vec<&str> = block.lines().filter(|line| !line.is_empty()).collect();
            let Some(name) = lines.iter().find_map(|line| line.strip_prefix("== ")) else {
                if lines.iter().any(|line| !line.starts_with('#')) {
                    return Err(Failure::new(format!("a difference of no scenario: {block}")));
                }
                continue;
            };
            let has_reason = lines
                .iter()
                .any(|line| line.strip_prefix('#').is_some_and(|reason| !reason.trim().is_empty()));
            if !has_reason {
                return Err(Failure::new(format!("no reason is given for: {block}"))
                    .remedy("a line '# the reason' above it"));
            }
            let lines: Vec<String> = lines
                .into_iter()
                .filter(|line| line.starts_with("- ") || line.starts_with("+ "))
                .map(str::to_owned)
                .collect();
            let difference = Difference { lines };
            known.entries.push(Entry { scenario: name.to_owned(), difference, found: false });
        }
        Ok(known)
    }

    /// Whether this difference is listed; each entry counts once.
    pub(super) fn find(&mut self, scenario: &str, difference: &Difference) -> bool {
        let entry = self.entries.iter_mut().find(|entry| {
            !entry.found && entry.scenario == scenario && entry.difference == *difference
        });
        entry.map(|entry| entry.found = true).is_some()
    }

    /// Entries of a scenario whose difference did not occur.
    pub(super) fn gone(&self, scenario: &str) -> impl Iterator<Item = &Difference> {
        let of = self.entries.iter().filter(move |entry| entry.scenario == scenario);
        of.filter(|entry| !entry.found).map(|entry| &entry.difference)
    }

    /// Names of scenarios in the list that do not exist.
    pub(super) fn unknown_scenarios<'a>(&'a self, all: &[String]) -> Vec<&'a str> {
        let names = self.entries.iter().map(|entry| &entry.scenario[..]);
        names.filter(|name| !all.iter().any(|known| known == name)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn each_differing_place_is_one_difference() {
        let found = between(&lines("a b c d e"), &lines("a x c e f"));
        let shown: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["- b\n+ x", "- d", "+ f"]);
        assert!(between(&lines("a b"), &lines("a b")).is_empty());
    }

    #[test]
    fn listed_difference_is_found_once_and_missing_ones_are_reported() {
        let list = "# a title\n\n# why\n== s\n- b\n+ x\n\n# why\n== s\n+ gone\n";
        let mut known = KnownDifferences::parse(list).expect("has reasons");
        let difference = between(&lines("b"), &lines("x")).remove(0);
        assert!(!known.find("other", &difference));
        assert!(known.find("s", &difference));
        assert!(!known.find("s", &difference));
        assert_eq!(known.gone("s").map(ToString::to_string).collect::<Vec<_>>(), ["+ gone"]);
        assert_eq!(known.unknown_scenarios(&["t".to_owned()]), ["s", "s"]);
        assert!(KnownDifferences::parse("== s\n- b\n").is_err());
        assert!(KnownDifferences::parse("# why\n- b\n").is_err());
    }
}
