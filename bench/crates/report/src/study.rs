//! Organizes runs: their comparability and their ranking.
//!
//! A *case* is a unit of comparison: one test, with the parameters that were varied on purpose, on
//! one host. A *row* of it is one system at one tier, with all its repeated runs. A *chapter* holds
//! the cases that differ by one number (`omb/topics-10`, `omb/topics-100`). Nothing is ever ranked
//! across tiers.

use std::collections::{BTreeMap, BTreeSet};

use driver::Tier;
use results::{Better, Host, Run, Verdict};

use crate::family;
use crate::figures;
use crate::statistics::Spread;

#[derive(Debug)]
pub(crate) struct Study<'a> {
    pub(crate) chapters: Vec<Chapter<'a>>,
    /// In order of name; the index is the system's colour.
    pub(crate) systems: Vec<System>,
    pub(crate) hosts: Vec<&'a Host>,
    pub(crate) suites: BTreeSet<&'a str>,
    /// Runs that took place.
    pub(crate) runs: Vec<&'a Run>,
}

/// One version of a system, at any tier.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct System {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) title: String,
    /// Short and unique.
    pub(crate) label: String,
}

#[derive(Debug)]
pub(crate) struct Chapter<'a> {
    /// `omb/topics-N`, or the test's name for a single case.
    pub(crate) name: String,
    /// Meaning of the number, if there is one.
    pub(crate) axis: Option<String>,
    pub(crate) cases: Vec<Case<'a>>,
}

#[derive(Debug)]
pub(crate) struct Case<'a> {
    pub(crate) number: usize,
    pub(crate) test: &'a str,
    pub(crate) form: &'a str,
    pub(crate) closed_loop: bool,
    pub(crate) host: usize,
    /// Parameters that were varied on purpose.
    pub(crate) axis: Vec<(String, String)>,
    /// Position among the cases of its chapter.
    pub(crate) position: Option<f64>,
    /// Parameters shared by all rows.
    pub(crate) parameters: Vec<(String, String)>,
    pub(crate) headline: Option<Headline>,
    /// By tier, the most durable first; within it the best first, and rows that do not count last.
    pub(crate) rows: Vec<Row<'a>>,
    pub(crate) unsupported: Vec<Unsupported<'a>>,
}

/// A system that lacks a feature that the test needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Unsupported<'a> {
    pub(crate) system: usize,
    pub(crate) tier: Tier,
    pub(crate) why: &'a str,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Headline {
    pub(crate) name: String,
    pub(crate) unit: String,
    pub(crate) better: Better,
}

#[derive(Debug)]
pub(crate) struct Row<'a> {
    pub(crate) system: usize,
    pub(crate) tier: Tier,
    /// Parameters that other rows of the case do not share.
    pub(crate) parameters: Vec<(String, String)>,
    pub(crate) runs: Vec<&'a Run>,
    pub(crate) standing: Standing,
    /// The headline over the runs that count, or over all runs if none does.
    pub(crate) figure: Option<Spread>,
    pub(crate) lead: Lead,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Standing {
    Counts { client_bound: bool },
    Failed(Vec<String>),
    Interrupted(String),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lead {
    /// Ahead of all others at its tier, by more than noise.
    Best,
    /// Ahead, but unproven: single runs have no noise estimate, or a client-bound system might be
    /// better than its bound.
    Unproven,
    /// Ahead, or behind by no more than noise.
    Tied,
    None,
}

type Settings = BTreeMap<String, String>;

impl<'a> Study<'a> {
    pub(crate) fn of(runs: &'a [Run]) -> Self {
        let systems = systems(runs);
        let mut hosts: Vec<&Host> = Vec::new();
        for run in runs {
            if !hosts.iter().any(|host| same_machine(host, &run.host)) {
                hosts.push(&run.host);
            }
        }
        let mut tests: BTreeMap<TestKey<'a>, Vec<&'a Run>> = BTreeMap::new();
        let (unsupported, runs): (Vec<&Run>, Vec<&Run>) =
            runs.iter().partition(|run| run.not_supported().is_some());
        for &run in &runs {
            let place = hosts.iter().position(|host| same_machine(host, &run.host));
            let key = TestKey {
                test: &run.test.name,
                form: &run.test.form,
                closed_loop: run.test.closed_loop,
                host: place.unwrap_or(0),
            };
            tests.entry(key).or_default().push(run);
        }
        let cases = tests.into_iter().flat_map(|(key, runs)| cases(&key, &runs, &systems));
        let with_unsupported = |case: Case<'a>| {
            let same = |run: &&&'a Run| {
                let host = hosts.get(case.host).is_some_and(|host| same_machine(host, &run.host));
                host && run.test.name == case.test && run.test.form == case.form
            };
            let unsupported = unsupported.iter().filter(same);
            Case { unsupported: self::unsupported(unsupported, &systems), ..case }
        };
        let chapters = chapters(cases.map(with_unsupported).collect());
        let suites = runs.iter().map(|run| run.suite.as_str()).collect();
        Self { chapters, systems, hosts, suites, runs }
    }

    pub(crate) fn cases(&self) -> impl Iterator<Item = &Case<'a>> {
        self.chapters.iter().flat_map(|chapter| &chapter.cases)
    }

    /// Tiers, the most durable first.
    pub(crate) fn tiers(&self) -> Vec<Tier> {
        let tiers: BTreeSet<Tier> = self.runs.iter().map(|run| run.system.tier).collect();
        tiers.into_iter().rev().collect()
    }

    /// Title of the case: its test and its distinguishing attributes.
    pub(crate) fn title(&self, case: &Case<'_>) -> String {
        let mut title = case.test.to_owned();
        for (name, value) in &case.axis {
            title += &format!(" · {name} {value}");
        }
        if case.form != "local" {
            title += &format!(" · {}", case.form);
        }
        if self.hosts.len() > 1 {
            title += &format!(" · host {}", case.host + 1);
        }
        title
    }
}

/// Lists each unsupported system once.
fn unsupported<'a: 'b, 'b>(
    runs: impl Iterator<Item = &'b &'a Run>,
    systems: &[System],
) -> Vec<Unsupported<'a>> {
    let mut found: Vec<Unsupported<'a>> = Vec::new();
    for run in runs {
        let (system, tier) = (system_of(run, systems), run.system.tier);
        let Some(why) = run.not_supported() else { continue };
        if !found.iter().any(|known| (known.system, known.tier) == (system, tier)) {
            found.push(Unsupported { system, tier, why });
        }
    }
    found
}

/// The disk delays are measured for each run; a different value is not a different machine.
fn same_machine(one: &Host, other: &Host) -> bool {
    let key = |host: &Host| Host { sync_4k: None, sync_128k: None, ..host.clone() };
    key(one) == key(other)
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct TestKey<'a> {
    test: &'a str,
    form: &'a str,
    closed_loop: bool,
    host: usize,
}

fn systems(runs: &[Run]) -> Vec<System> {
    let mut found: BTreeMap<(String, String), String> = BTreeMap::new();
    for run in runs {
        let key = (run.system.name.clone(), run.system.version.clone());
        found.entry(key).or_insert_with(|| run.system.title.clone());
    }
    let alone = |name: &str| found.keys().filter(|(other, _)| other == name).count() == 1;
    let entry = |((name, version), title): (&(String, String), &String)| System {
        name: name.clone(),
        version: version.clone(),
        title: if title.is_empty() { name.clone() } else { title.clone() },
        label: if alone(name) { name.clone() } else { format!("{name} {version}") },
    };
    found.iter().map(entry).collect()
}

fn system_of(run: &Run, systems: &[System]) -> usize {
    let is =
        |system: &System| system.name == run.system.name && system.version == run.system.version;
    systems.iter().position(is).unwrap_or(0)
}

pub(crate) fn written(value: &serde_json::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn settings(run: &Run) -> Settings {
    run.test.parameters.iter().map(|(name, value)| (name.clone(), written(value))).collect()
}

fn cases<'a>(key: &TestKey<'a>, runs: &[&'a Run], systems: &[System]) -> Vec<Case<'a>> {
    let names = varied_on_purpose(runs);
    let mut groups: BTreeMap<Vec<(String, String)>, Vec<&'a Run>> = BTreeMap::new();
    for run in runs {
        let mut settings = settings(run);
        let axis = names.iter().filter_map(|name| settings.remove_entry(name)).collect();
        groups.entry(axis).or_default().push(run);
    }
    let case = |(axis, runs): (Vec<(String, String)>, Vec<&'a Run>)| {
        let headline = headline(&runs);
        let shared = shared(&runs);
        let shown = |(name, _): &(&String, &String)| !names.contains(*name);
        let parameters = shared.iter().filter(shown).map(|(n, v)| (n.clone(), v.clone())).collect();
        let mut rows = rows(&runs, systems, headline.as_ref(), &shared, &names);
        order(&mut rows, headline.as_ref());
        Case {
            number: 0,
            test: key.test,
            form: key.form,
            closed_loop: key.closed_loop,
            host: key.host,
            position: position(key.test, &axis),
            axis,
            parameters,
            headline,
            rows,
            unsupported: Vec::new(),
        }
    };
    groups.into_iter().map(case).collect()
}

/// Parameters that a system ran with several values of, and that are not specific to one system:
/// with several systems, some value must be shared. (A rate derived from each system's own limit is
/// no axis.)
fn varied_on_purpose(runs: &[&Run]) -> BTreeSet<String> {
    type Values = BTreeSet<String>;
    let mut seen: BTreeMap<String, BTreeMap<(&str, &str, Tier), Values>> = BTreeMap::new();
    for run in runs {
        let system = (run.system.name.as_str(), run.system.version.as_str(), run.system.tier);
        for (name, value) in settings(run) {
            seen.entry(name).or_default().entry(system).or_default().insert(value);
        }
    }
    let on_purpose = |by_system: &BTreeMap<_, Values>| {
        let mut known = Values::new();
        let mut shares = by_system.len() == 1;
        for values in by_system.values() {
            shares |= !known.is_disjoint(values);
            known.extend(values.iter().cloned());
        }
        shares && by_system.values().any(|values| values.len() > 1)
    };
    seen.into_iter().filter(|(_, by)| on_purpose(by)).map(|(name, _)| name).collect()
}

fn position(test: &str, axis: &[(String, String)]) -> Option<f64> {
    match axis {
        [] => family::number(test).map(|found| found.value),
        [(_, value)] => value.parse().ok().filter(|value: &f64| value.is_finite()),
        _ => None,
    }
}

/// The most frequent first measure of the runs.
fn headline(runs: &[&Run]) -> Option<Headline> {
    let mut votes: Vec<(Headline, usize)> = Vec::new();
    for run in runs {
        let Some(first) = run.measures.first() else { continue };
        let headline =
            Headline { name: first.name.clone(), unit: first.unit.clone(), better: first.better };
        match votes.iter_mut().find(|(known, _)| *known == headline) {
            Some((_, count)) => *count += 1,
            None => votes.push((headline, 1)),
        }
    }
    votes.into_iter().rev().max_by_key(|(_, count)| *count).map(|(headline, _)| headline)
}

fn shared(runs: &[&Run]) -> Settings {
    let mut shared = runs.first().map(|run| settings(run)).unwrap_or_default();
    for run in runs {
        let own = settings(run);
        shared.retain(|name, value| own.get(name) == Some(value));
    }
    shared
}

fn rows<'a>(
    runs: &[&'a Run],
    systems: &[System],
    headline: Option<&Headline>,
    shared: &Settings,
    axis: &BTreeSet<String>,
) -> Vec<Row<'a>> {
    let mut groups: BTreeMap<(Tier, usize), Vec<&'a Run>> = BTreeMap::new();
    for run in runs {
        groups.entry((run.system.tier, system_of(run, systems))).or_default().push(run);
    }
    let row = |((tier, system), mut runs): ((Tier, usize), Vec<&'a Run>)| {
        runs.sort_by_key(|run| run.started_ms);
        let mut own: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for run in &runs {
            for (name, value) in settings(run) {
                if !shared.contains_key(&name) && !axis.contains(&name) {
                    own.entry(name).or_default().insert(value);
                }
            }
        }
        let join = |values: BTreeSet<String>| values.into_iter().collect::<Vec<_>>().join(" | ");
        Row {
            system,
            tier,
            parameters: own.into_iter().map(|(name, values)| (name, join(values))).collect(),
            standing: standing(&runs),
            figure: headline.and_then(|headline| measured(&runs, &headline.name)),
            lead: Lead::None,
            runs,
        }
    };
    groups.into_iter().map(row).collect()
}

/// One failed run fails the row; an interrupted run does so if there is no other.
fn standing(runs: &[&Run]) -> Standing {
    let mut reasons: Vec<String> = Vec::new();
    let (mut interrupted, mut failed, mut passed) = (None, false, 0);
    for run in runs {
        match &run.verdict {
            Verdict::Passed => passed += 1,
            Verdict::Interrupted(why) => interrupted = interrupted.or(Some(why)),
            Verdict::NotSupported(_) => {}
            Verdict::Failed(why) => {
                failed = true;
                reasons.extend(why.iter().cloned());
            }
        }
    }
    reasons.dedup();
    match interrupted {
        _ if failed => Standing::Failed(reasons),
        Some(why) if passed == 0 => Standing::Interrupted(why.clone()),
        _ => {
            Standing::Counts { client_bound: runs.iter().any(|run| figures::is_client_bound(run)) }
        }
    }
}

/// A measure over the runs that count, or over all if none does.
pub(crate) fn measured(runs: &[&Run], name: &str) -> Option<Spread> {
    let stated = |run: &&Run| run.measure(name).and_then(|measure| measure.deviation);
    spread(runs, |run| run.measure(name).map(|measure| measure.value), stated)
}

/// A figure over the runs that count, or over all if none does.
pub(crate) fn figure(runs: &[&Run], of: impl Fn(&Run) -> Option<f64>) -> Option<Spread> {
    spread(runs, |run| of(run), |_| None)
}

fn spread(
    runs: &[&Run],
    value: impl Fn(&&Run) -> Option<f64>,
    stated: impl Fn(&&Run) -> Option<f64>,
) -> Option<Spread> {
    let any = runs.iter().any(|run| run.counts());
    let taken = || runs.iter().filter(|run| run.counts() || !any);
    let values: Vec<f64> = taken().filter_map(&value).collect();
    Spread::of(&values, taken().find_map(stated))
}

impl<'a> Row<'a> {
    /// The run shown in plots: the one nearest the median of those that count.
    pub(crate) fn representative(&self, headline: Option<&Headline>) -> &'a Run {
        let any = self.runs.iter().any(|run| run.counts());
        let taken = self.runs.iter().copied().filter(|run| run.counts() || !any);
        let distance = |run: &&Run| match (headline, self.figure) {
            (Some(headline), Some(figure)) => run
                .measure(&headline.name)
                .map_or(f64::INFINITY, |measure| (measure.value - figure.median).abs()),
            _ => 0.0,
        };
        let nearest = taken.min_by(|one, other| distance(one).total_cmp(&distance(other)));
        nearest.unwrap_or_else(|| self.runs[0])
    }

    pub(crate) fn counts(&self) -> bool {
        matches!(self.standing, Standing::Counts { .. })
    }

    pub(crate) fn is_client_bound(&self) -> bool {
        self.standing == Standing::Counts { client_bound: true }
    }
}

/// Sorts rows and determines the lead at each tier; a single system has none.
fn order(rows: &mut [Row<'_>], headline: Option<&Headline>) {
    let better = headline.map_or(Better::Neither, |headline| headline.better);
    let worth = |row: &Row<'_>| match (row.figure, better) {
        (Some(figure), Better::Higher) => figure.median,
        (Some(figure), Better::Lower) => -figure.median,
        _ => f64::NEG_INFINITY,
    };
    rows.sort_by(|one, other| {
        let by_tier = other.tier.cmp(&one.tier).then(other.counts().cmp(&one.counts()));
        by_tier.then(worth(other).total_cmp(&worth(one))).then(one.system.cmp(&other.system))
    });
    if better == Better::Neither {
        return;
    }
    for tier in Tier::ALL {
        let eligible =
            |row: &&mut Row<'_>| row.tier == tier && row.counts() && row.figure.is_some();
        let mut ranked: Vec<&mut Row<'_>> = rows.iter_mut().filter(eligible).collect();
        let Some(first) = ranked.first().and_then(|row| row.figure) else { continue };
        if ranked.len() < 2 {
            continue;
        }
        let within_noise = |row: &&mut Row<'_>| {
            row.figure.is_some_and(|figure| first.differs(&figure) == Some(false))
        };
        // A client-bound row may not really be behind.
        let unknown = |row: &&mut Row<'_>| {
            let alone = row.figure.is_some_and(|figure| first.differs(&figure).is_none());
            alone || row.is_client_bound()
        };
        ranked[0].lead = match &ranked[1..] {
            others if others.iter().any(within_noise) => Lead::Tied,
            others if others.iter().any(unknown) => Lead::Unproven,
            _ => Lead::Best,
        };
        for row in ranked.into_iter().skip(1).filter(within_noise) {
            row.lead = Lead::Tied;
        }
    }
}

fn chapters(cases: Vec<Case<'_>>) -> Vec<Chapter<'_>> {
    let mut chapters: Vec<Chapter<'_>> = Vec::new();
    for case in cases {
        let found = family::number(case.test).filter(|_| case.axis.is_empty());
        let (name, axis) = match found {
            Some(number) => (number.family, Some(number.label)),
            None => (case.test.to_owned(), case.axis.first().map(|(name, _)| name.clone())),
        };
        match chapters.iter_mut().find(|chapter| chapter.name == name) {
            Some(chapter) => chapter.cases.push(case),
            None => chapters.push(Chapter { name, axis, cases: vec![case] }),
        }
    }
    for chapter in &mut chapters {
        let place = |case: &Case<'_>| case.position.unwrap_or(f64::INFINITY);
        chapter.cases.sort_by(|one, other| {
            one.host.cmp(&other.host).then(place(one).total_cmp(&place(other)))
        });
        if chapter.cases.iter().all(|case| case.test == chapter.cases[0].test) {
            chapter.name = chapter.cases[0].test.to_owned();
        }
    }
    chapters.sort_by_key(|chapter| family::order(&chapter.name));
    let cases = chapters.iter_mut().flat_map(|chapter| &mut chapter.cases);
    cases.enumerate().for_each(|(number, case)| case.number = number);
    chapters
}
