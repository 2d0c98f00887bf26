//! The compared systems, their settings, the machines, and the definitions of figures.

use std::collections::{BTreeMap, BTreeSet};

use driver::Tier;
use results::{Run, SyncDelay};

use super::{swatch, tier_text};
use crate::calendar;
use crate::markup::Text;
use crate::quantity;
use crate::study::Study;

pub(super) fn systems(study: &Study<'_>) -> String {
    let mut groups: BTreeMap<(usize, Tier), Vec<&Run>> = BTreeMap::new();
    for (place, system) in study.systems.iter().enumerate() {
        let own =
            study.runs.iter().copied().filter(|run| {
                run.system.name == system.name && run.system.version == system.version
            });
        own.for_each(|run| groups.entry((place, run.system.tier)).or_default().push(run));
    }
    let mut text = "<section id=\"systems\"><h2>What was compared with what</h2><p>Every setting of server or client that \
        was not left as it comes. Where one differs between tests, the tests are named.</p><div class=\"sheets\">\n"
        .to_owned();
    for ((place, tier), runs) in groups {
        let system = &study.systems[place];
        text += &format!(
            "<article class=\"sheet\"><h3>{}{} <small>{}</small></h3><dl>",
            swatch(place),
            Text(&system.title),
            Text(&system.version)
        );
        let one = |of: fn(&Run) -> &str| {
            let values: BTreeSet<&str> = runs.iter().map(|run| of(run)).collect();
            values.into_iter().collect::<Vec<_>>().join(" | ")
        };
        for (name, value) in [
            ("Tier", tier_text(tier)),
            ("“Sent” means", one(|run| &run.system.sent_means)),
            ("Client", one(|run| &run.system.client)),
            ("Name", system.name.clone()),
        ] {
            text += &format!("<dt>{name}</dt><dd>{}</dd>", Text(&value));
        }
        text += "</dl>";
        text += &settings(&runs);
        text += "</article>\n";
    }
    text + "</div></section>\n"
}

fn settings(runs: &[&Run]) -> String {
    let mut seen: BTreeMap<&str, BTreeMap<Option<&str>, BTreeSet<&str>>> = BTreeMap::new();
    let names: BTreeSet<&str> =
        runs.iter().flat_map(|run| run.system.settings.keys()).map(String::as_str).collect();
    for run in runs {
        for name in &names {
            let value = run.system.settings.get(*name).map(String::as_str);
            seen.entry(name).or_default().entry(value).or_default().insert(&run.test.name);
        }
    }
    if seen.is_empty() {
        return "<p class=\"small\">All settings as they come.</p>".to_owned();
    }
    let mut text = "<table class=\"settings\">".to_owned();
    for (name, values) in seen {
        let several = values.len() > 1;
        let one = |(value, tests): (&Option<&str>, &BTreeSet<&str>)| {
            let value = value.map_or_else(
                || "<i>as it comes</i>".to_owned(),
                |value| format!("<code>{}</code>", Text(value)),
            );
            let tests = tests.iter().copied().collect::<Vec<_>>().join(", ");
            if several { format!("{value} <small>{}</small>", Text(&tests)) } else { value }
        };
        let values: Vec<String> = values.iter().map(one).collect();
        text += &format!(
            "<tr><th scope=\"row\">{}</th><td>{}</td></tr>",
            Text(name),
            values.join("<br>")
        );
    }
    text + "</table>"
}

pub(super) fn hosts(study: &Study<'_>) -> String {
    let mut text = "<section id=\"hosts\"><h2>Host</h2>\n".to_owned();
    for (place, host) in study.hosts.iter().enumerate() {
        let runs: Vec<&Run> = study
            .cases()
            .filter(|case| case.host == place)
            .flat_map(|case| &case.rows)
            .flat_map(|row| row.runs.iter().copied())
            .collect();
        if study.hosts.len() > 1 {
            text += &format!("<h3>Host {}</h3>", place + 1);
        }
        let small = sync(runs.iter().filter_map(|run| run.host.sync_4k));
        let large = sync(runs.iter().filter_map(|run| run.host.sync_128k));
        let first = runs.iter().map(|run| run.started_ms).min().unwrap_or(0);
        let last = runs.iter().map(|run| run.started_ms).max().unwrap_or(0);
        let rows = [
            ("CPU", format!("{}, {} cores", host.cpu, host.cores)),
            ("Memory", quantity::bytes(host.memory_bytes as f64)),
            ("System", format!("{}, kernel {}", host.system, host.kernel)),
            ("Disk", host.disk.clone()),
            ("Write and sync of 4 KiB", small),
            ("Write and sync of 128 KiB", large),
            (
                "Runs",
                format!(
                    "{}, started {} to {}",
                    runs.len(),
                    calendar::date_time(first),
                    calendar::date_time(last)
                ),
            ),
        ];
        text += "<dl class=\"host\">";
        for (name, value) in rows {
            text += &format!("<dt>{name}</dt><dd>{}</dd>", Text(&value));
        }
        text += "</dl>\n";
    }
    text + "</section>\n"
}

/// The delay is measured before each run, so that changes of the disk show here.
fn sync(delays: impl Iterator<Item = SyncDelay>) -> String {
    let delays: Vec<SyncDelay> = delays.collect();
    let range = |of: fn(&SyncDelay) -> u64| {
        let low = delays.iter().map(of).min()?;
        let high = delays.iter().map(of).max()?;
        let text = |micros: u64| quantity::duration(micros as f64);
        Some(if low == high { text(low) } else { format!("{} to {}", text(low), text(high)) })
    };
    match (range(|delay| delay.p50), range(|delay| delay.p99)) {
        (Some(p50), Some(p99)) => format!("p50 {p50}, p99 {p99}"),
        _ => "not measured".to_owned(),
    }
}

pub(super) const DEFINITIONS: &str = include_str!("definitions.html");
