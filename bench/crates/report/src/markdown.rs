//! The page's tables for a README or an issue: a summary for each tier, then the systems.

mod failover;

use std::collections::BTreeSet;

use driver::Tier;
use results::{Better, Run};

use crate::calendar;
use crate::figures::{self, RECEIVE};
use crate::quantity;
use crate::study::{self, Case, Lead, Row, Standing, Study};

/// Renders the tables of all runs.
pub fn markdown(runs: &[Run]) -> String {
    let study = Study::of(runs);
    if runs.is_empty() {
        return "There are no runs to report on.\n".to_owned();
    }
    let mut text = String::new();
    for tier in study.tiers() {
        text +=
            &format!("### {tier}: confirmed means {}\n\n{}\n", tier.meaning(), table(&study, tier));
    }
    text += "★ best at its tier by more than noise · ★≈ best within noise · ☆ ahead, but of single or client-bound runs · \
             ≥ ≤ client-bound, the load generator was the limit · ~~struck~~ failed or interrupted\n\n";
    text + &failover::tables(&study) + &systems(&study) + &hosts(&study)
}

/// Escapes text in a cell, so that it cannot end the cell, the row or the table.
pub(crate) fn cell(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '|' | '*' | '_' | '`' | '[' | ']' | '~' | '\\' | '#' => safe.extend(['\\', letter]),
            '<' => safe += "&lt;",
            '>' => safe += "&gt;",
            '&' => safe += "&amp;",
            letter if letter.is_control() => safe.push(' '),
            letter => safe.push(letter),
        }
    }
    safe
}

fn table(study: &Study<'_>, tier: Tier) -> String {
    let mut text =
        "| test | system | headline | p50 to receiver | p99 | CPU s/M | memory | verdict |\n\
                    |---|---|--:|--:|--:|--:|--:|---|\n"
            .to_owned();
    for case in study.cases() {
        for row in case.rows.iter().filter(|row| row.tier == tier) {
            text += &line(study, case, row);
        }
        for found in case.unsupported.iter().filter(|found| found.tier == tier) {
            let (title, system) = (study.title(case), &study.systems[found.system].label);
            let why = cell(found.why);
            text += &format!("| {} | {} | | | | | | n/a: {why} |\n", cell(&title), cell(system));
        }
    }
    text
}

fn line(study: &Study<'_>, case: &Case<'_>, row: &Row<'_>) -> String {
    let at = |share| {
        let of = |run: &Run| figures::quantile_us(figures::latency(run, &RECEIVE)?, share);
        number(study::figure(&row.runs, of).map(|figure| figure.median), "us")
    };
    let cost = study::figure(&row.runs, figures::cpu_per_million).map(|figure| figure.median);
    let memory = study::figure(&row.runs, figures::memory_max).map(|figure| figure.median);
    let waits = if case.closed_loop { "closed loop" } else { "open loop" };
    format!(
        "| {} ({waits}) | {} | {} | {} | {} | {} | {} | {} |\n",
        cell(&study.title(case)),
        cell(&study.systems[row.system].label),
        headline(case, row),
        at(0.5),
        at(0.99),
        number(cost, ""),
        number(memory, "bytes"),
        verdict(row)
    )
}

fn number(value: Option<f64>, unit: &str) -> String {
    value.map_or_else(|| quantity::NONE.to_owned(), |value| quantity::cell(value, unit))
}

fn headline(case: &Case<'_>, row: &Row<'_>) -> String {
    let (Some(headline), Some(figure)) = (&case.headline, row.figure) else {
        return quantity::NONE.to_owned();
    };
    let value = cell(&quantity::full(figure.median, &headline.unit));
    let what = cell(&headline.name);
    if !row.counts() {
        return format!("~~{value}~~ {what}");
    }
    let deviation = figure.deviation.map_or_else(String::new, |deviation| {
        format!(" ± {}", quantity::cell(deviation, &headline.unit))
    });
    let sign = match headline.better {
        _ if !row.is_client_bound() => "",
        Better::Higher => "≥ ",
        Better::Lower => "≤ ",
        Better::Neither => "",
    };
    let star = match row.lead {
        Lead::Best => "★ ",
        Lead::Unproven => "☆ ",
        Lead::Tied => "★≈ ",
        Lead::None => "",
    };
    format!("{star}{sign}{value}{deviation} {what}")
}

fn verdict(row: &Row<'_>) -> String {
    let passed = row.runs.iter().filter(|run| run.counts()).count();
    let of = format!("{passed} of {}", row.runs.len());
    match &row.standing {
        Standing::Counts { client_bound: true } => format!("passed {of}, client-bound"),
        Standing::Counts { .. } => format!("passed {of}"),
        Standing::Failed(why) => format!("**FAILED**: {}", cell(&why.join("; "))),
        Standing::Interrupted(why) => format!("**interrupted**: {}", cell(why)),
    }
}

fn systems(study: &Study<'_>) -> String {
    let mut seen = BTreeSet::new();
    let mut text = "| system | version | tier | client | “sent” means | settings |\n|---|---|---|---|---|---|\n".to_owned();
    for run in &study.runs {
        let system = &run.system;
        let settings =
            system.settings.iter().map(|(name, value)| format!("{} = {}", cell(name), cell(value)));
        let settings: Vec<String> = settings.collect();
        seen.insert(format!(
            "| {} | {} | {} | {} | {} | {} |\n",
            cell(&system.title),
            cell(&system.version),
            system.tier,
            cell(&system.client),
            cell(&system.sent_means),
            settings.join("; ")
        ));
    }
    text.extend(seen);
    text + "\n"
}

fn hosts(study: &Study<'_>) -> String {
    let mut text = String::new();
    for (place, host) in study.hosts.iter().enumerate() {
        let sync = host.sync_4k.map_or_else(String::new, |delay| {
            let [p50, p99] = [delay.p50, delay.p99].map(|micros| quantity::duration(micros as f64));
            format!(", write and sync of 4 KiB p50 {p50}, p99 {p99}")
        });
        text += &format!(
            "Host {}: {}, {} cores, {}, {} ({}), {}{sync}.\n",
            place + 1,
            cell(&host.cpu),
            host.cores,
            quantity::bytes(host.memory_bytes as f64),
            cell(&host.system),
            cell(&host.kernel),
            cell(&host.disk)
        );
    }
    let suites: Vec<String> = study.suites.iter().map(|suite| cell(suite)).collect();
    let last = study.runs.iter().map(|run| run.started_ms).max().unwrap_or(0);
    text + &format!(
        "Suite {}; the last run began {}.\n",
        suites.join(", "),
        calendar::date_time(last)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn a_table_for_each_tier_names_every_run() {
        let runs = example::suite();
        let text = markdown(&runs);
        for run in &runs {
            let (test, system) = (&run.test.name, &run.system.name);
            let has = |line: &str| line.contains(test.as_str()) && line.contains(system.as_str());
            assert!(text.lines().any(has), "{test} {system}");
        }
        assert!(text.contains("### T4") && text.contains("### T1"));
        assert!(text.contains("**FAILED**: 1312 confirmed messages were never received"));
        assert!(!text.contains("NaN"));
    }

    #[test]
    fn cells_cannot_break_the_table() {
        let mut run = example::run("mqperf/base", "kafka");
        run.system.title = "a|b\n| <script>".to_owned();
        let text = markdown(&[run]);
        assert!(text.contains(r"a\|b \| &lt;script&gt;"));
        assert!(text.lines().filter(|line| line.starts_with('|')).all(|line| line.ends_with('|')));
    }

    #[test]
    fn markdown_without_runs_says_so() {
        assert!(markdown(&[]).contains("no runs"));
    }
}
