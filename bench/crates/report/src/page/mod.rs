//! The report as one HTML page: it fetches nothing, needs no script, and can be printed.
//!
//! Its order serves a reader who distrusts benchmarks. First come the ranking at each tier, and the
//! runs that do not count. Every test follows with its latencies, costs and audit. Then come the
//! compared systems, the machines, and the definition of each figure.

mod case;
mod matrix;
mod plots;
mod sheet;

use driver::Tier;
use results::Run;

use crate::calendar;
use crate::markup::Text;
use crate::study::{Chapter, Lead, Row, Standing, Study};

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// Draws one self-contained page about all runs.
pub fn html(runs: &[Run]) -> String {
    let study = Study::of(runs);
    let front = if matrix::is_wide(&study) { "front wide" } else { "front" };
    let mut body = format!("<div class=\"{front}\">{}", head(&study));
    if runs.is_empty() {
        body += "<p class=\"notice\">There are no runs to report on.</p></div>";
    } else {
        body += &notices(&study);
        body += &matrix::draw(&study);
        body += "</div>\n";
        body += &legend(&study);
        for (number, chapter) in study.chapters.iter().enumerate() {
            body += &draw_chapter(&study, chapter, number);
        }
        body += &sheet::systems(&study);
        body += &sheet::hosts(&study);
        body += sheet::DEFINITIONS;
    }
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>Message brokers, measured</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <main>\n{body}</main>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n"
    )
}

fn head(study: &Study<'_>) -> String {
    let times = || study.runs.iter().map(|run| run.started_ms);
    let mut facts = vec![count(study.runs.len(), "run")];
    facts.push(count(study.cases().count(), "test"));
    facts.push(count(study.systems.len(), "system"));
    if let (Some(first), Some(last)) = (times().min(), times().max()) {
        let (first, last) = (calendar::date(first), calendar::date(last));
        facts.push(if first == last { first } else { format!("{first} to {last}") });
    }
    let suites = study.suites.iter().map(|suite| (*suite).to_owned());
    facts.extend(suites);
    let hosts = study.hosts.iter().map(|host| format!("{}, {} cores", host.cpu, host.cores));
    facts.extend(hosts);
    let facts: Vec<String> = facts.iter().map(|fact| format!("<li>{}</li>", Text(fact))).collect();
    format!(
        "<header><h1>Message brokers, measured</h1><ul class=\"facts\">{}</ul>\
         <nav><a href=\"#summary\">Summary</a> <a href=\"#tests\">Tests</a> \
         <a href=\"#systems\">What was compared</a> <a href=\"#hosts\">Host</a> \
         <a href=\"#definitions\">Definitions</a></nav></header>\n",
        facts.concat()
    )
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// Notices for the reader before the first figure.
fn notices(study: &Study<'_>) -> String {
    let rows = || study.cases().flat_map(|case| &case.rows);
    let having = |test: fn(&Row<'_>) -> bool| rows().filter(|row| test(row)).count();
    let failed = having(|row| matches!(row.standing, Standing::Failed(_)));
    let interrupted = having(|row| matches!(row.standing, Standing::Interrupted(_)));
    let bound = having(|row| row.is_client_bound());
    let single = having(|row| row.runs.len() == 1);
    let mut notices = Vec::new();
    if failed > 0 {
        let what = count(failed, "result");
        notices.push(format!(
            "<b>{what} failed</b>: the figure is shown struck through and ranks nowhere."
        ));
    }
    if interrupted > 0 {
        let what = count(interrupted, "result");
        notices.push(format!(
            "<b>{what} interrupted</b>: what is shown is what there was until then."
        ));
    }
    if bound > 0 {
        let what = count(bound, "result");
        notices.push(format!(
            "<b>{what} client-bound</b>: the load generator was the limit, so the system may do better than the bound shown (≥ or ≤)."
        ));
    }
    if single > 0 {
        let (share, of) = (single, rows().count());
        notices.push(format!(
            "{share} of {of} results rest on a single run, whose spread nobody knows: take small differences for noise."
        ));
    }
    if study.hosts.len() > 1 {
        notices.push(format!(
            "The runs come from <b>{} hosts</b>; results of different hosts are kept apart and never ranked together.",
            study.hosts.len()
        ));
    }
    if study.suites.len() > 1 {
        notices.push(format!(
            "The runs come from <b>{} versions of the suite</b>.",
            study.suites.len()
        ));
    }
    if study.tiers().len() > 1 {
        notices.push(
            "The systems ran at <b>different durability tiers</b>. Figures are ranked within one tier only; \
             a weaker tier is faster because it promises less."
                .to_owned(),
        );
    }
    let items: Vec<String> = notices.iter().map(|notice| format!("<li>{notice}</li>")).collect();
    if items.is_empty() {
        String::new()
    } else {
        format!("<ul class=\"notice\">{}</ul>\n", items.concat())
    }
}

fn legend(study: &Study<'_>) -> String {
    let item = |(place, system): (usize, &crate::study::System)| {
        format!(
            "<span class=\"key {}\" data-s=\"{place}\">{}{}</span>",
            class(place),
            swatch(place),
            Text(&system.label)
        )
    };
    let items: Vec<String> = study.systems.iter().enumerate().map(item).collect();
    format!("<div class=\"legend\" id=\"tests\">{}</div>\n", items.concat())
}

fn draw_chapter(study: &Study<'_>, chapter: &Chapter<'_>, number: usize) -> String {
    let tests = chapter.cases.iter().map(|case| case.test);
    let runs = tests.flat_map(|test| study.runs.iter().filter(move |run| run.test.name == test));
    let asked = runs.map(|run| run.test.asks.as_str()).find(|asks| !asks.is_empty());
    let question = asked.unwrap_or("A load of its own; its parameters say what.");
    let mut text = format!(
        "<section class=\"chapter\" id=\"chapter-{number}\"><h2>{}</h2><p class=\"asks\">{}</p>\n",
        Text(&chapter.name),
        code(question)
    );
    text += &plots::figures(&plots::chapter_charts(study, chapter));
    let several = chapter.cases.len() > 1;
    for case in &chapter.cases {
        text += &case::draw(study, case, several);
    }
    text + "</section>\n"
}

/// Renders `code` in the suite's own sentences.
fn code(sentence: &str) -> String {
    let mut text = String::new();
    for (place, part) in sentence.split('`').enumerate() {
        let part = Text(part);
        text += &if place % 2 == 1 { format!("<code>{part}</code>") } else { part.to_string() };
    }
    text
}

fn class(system: usize) -> String {
    format!("s s{}", system % crate::chart::COLOURS)
}

fn swatch(system: usize) -> String {
    format!("<i class=\"swatch {}\"></i>", class(system))
}

fn star(lead: Lead) -> &'static str {
    match lead {
        Lead::Best => "<b class=\"lead-best\" title=\"best at this tier\">★</b>",
        Lead::Unproven => {
            "<b class=\"lead-best\" title=\"ahead at this tier, of single or client-bound runs\">☆</b>"
        }
        Lead::Tied => {
            "<b class=\"lead-best\" title=\"best at this tier, within noise of another\">★≈</b>"
        }
        Lead::None => "",
    }
}

/// A client-bound figure is a bound: `≥` where more is better, `≤` where less is.
fn bound_sign(row: &Row<'_>, better: results::Better) -> &'static str {
    match better {
        _ if !row.is_client_bound() => "",
        results::Better::Higher => "≥ ",
        results::Better::Lower => "≤ ",
        results::Better::Neither => "",
    }
}

fn tier_text(tier: Tier) -> String {
    format!("{tier} · confirmed means {}", tier.meaning())
}

fn direction(better: results::Better) -> &'static str {
    match better {
        results::Better::Higher => "higher is better",
        results::Better::Lower => "lower is better",
        results::Better::Neither => "no better or worse",
    }
}

fn loop_text(closed: bool) -> &'static str {
    if closed { "closed loop" } else { "open loop" }
}

#[cfg(test)]
mod tests;
