//! Results of a family's scenarios, and the list of scenarios that may fail.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::failure::{Context, Failure, Outcome};

/// Results of one family.
#[derive(Debug, Default)]
pub(super) struct Results {
    family: String,
    pub(super) passed: BTreeSet<String>,
    /// Scenarios that passed only on the second run.
    pub(super) second: BTreeSet<String>,
    pub(super) failed: BTreeSet<String>,
}

impl Results {
    pub(super) fn of(family: &str) -> Results {
        Results { family: family.to_owned(), ..Results::default() }
    }

    /// Parses and prints one line of a suite, except the suite's own closing line: the chore prints one for all
    /// families.
    pub(super) fn take(&mut self, line: &str) {
        let mut words = line.split_whitespace();
        match (words.next(), words.next()) {
            (Some("ok"), Some(name)) => drop(self.passed.insert(name.to_owned())),
            (Some("FAIL"), Some(name)) => drop(self.failed.insert(name.to_owned())),
            (Some(_), Some("passed,")) => return,
            _ => {}
        }
        println!("{}: {line}", self.family);
    }
}

/// `tests/compat/allow.list`: scenarios that may fail, `FAMILY/NAME # why` a line. All others must pass.
#[derive(Debug, Default)]
pub(super) struct AllowList {
    scenarios: BTreeSet<String>,
}

impl AllowList {
    pub(super) fn read(path: &Path) -> Outcome<AllowList> {
        if !path.exists() {
            return Ok(AllowList::default());
        }
        let text =
            fs::read_to_string(path).context(|| format!("cannot read {}", path.display()))?;
        AllowList::parse(&text)
    }

    fn parse(text: &str) -> Outcome<AllowList> {
        let mut scenarios = BTreeSet::new();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            match line.split_once('#').map(|(name, why)| (name.trim(), why.trim())) {
                Some(("", _)) => {}
                Some((name, why)) if !why.is_empty() => drop(scenarios.insert(name.to_owned())),
                _ => {
                    return Err(Failure::new(format!("allow.list does not say why: {line}"))
                        .remedy("FAMILY/NAME # the reason"));
                }
            }
        }
        Ok(AllowList { scenarios })
    }

    /// Failures of these results that the list does not allow.
    pub(super) fn judge(&self, results: &Results) -> Vec<String> {
        let family = &results.family;
        let allowed = |name: &str| self.scenarios.contains(&format!("{family}/{name}"));
        for name in results.passed.iter().filter(|name| allowed(name)) {
            println!("{family}: passes now, take it off allow.list: {family}/{name}");
        }
        let failed = results.failed.iter().filter(|name| !allowed(name));
        failed.map(|name| format!("{family}/{name} fails")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results(family: &str, lines: &[&str]) -> Results {
        let mut results = Results::of(family);
        lines.iter().for_each(|line| results.take(line));
        results
    }

    #[test]
    fn result_lines_are_counted_and_the_closing_line_is_no_scenario() {
        let results =
            results("go", &["ok create 0.2s", "FAIL seek wanted 3, got 4", "1 passed, 1 failed"]);
        assert_eq!(results.passed, BTreeSet::from(["create".to_owned()]));
        assert_eq!(results.failed, BTreeSet::from(["seek".to_owned()]));
    }

    #[test]
    fn without_a_list_every_failure_counts() {
        let broken = AllowList::default().judge(&results("go", &["ok a", "FAIL b"]));
        assert_eq!(broken, ["go/b fails"]);
    }

    #[test]
    fn only_listed_scenarios_may_fail() {
        let list = "# gaps\n\ngo/a # slow\ngo/b # not built\n";
        let list = AllowList::parse(list).expect("reasons");
        let lines = ["ok a", "FAIL b", "FAIL new"];
        assert_eq!(list.judge(&results("go", &lines)), ["go/new fails"]);
        assert_eq!(list.judge(&results("node", &lines)), ["node/b fails", "node/new fails"]);
    }

    #[test]
    fn allowed_failure_needs_a_reason() {
        assert!(AllowList::parse("go/a\n").is_err());
        assert!(AllowList::parse("go/a #\n").is_err());
    }
}
