//! One case: the figures of each system, the findings of the audit, remarks, and the plots.

use driver::Tier;
use results::{Run, Verdict};

use super::{bound_sign, direction, loop_text, plots, star, swatch, tier_text};
use crate::figures::{self, RECEIVE, SEND};
use crate::markup::Text;
use crate::quantity;
use crate::statistics::Spread;
use crate::study::{self, Case, Row, Standing, Study, Unsupported};

/// Number of audit findings shown; the files have all that were kept.
const FINDINGS_MAX: usize = 5;

pub(super) fn draw(study: &Study<'_>, case: &Case<'_>, titled: bool) -> String {
    let mut text = format!("<div class=\"case\" id=\"case-{}\">", case.number);
    if titled || !case.axis.is_empty() {
        text += &format!("<h3>{}</h3>", Text(&study.title(case)));
    }
    text += &facts(case);
    text += &figures_table(study, case);
    text += &unsupported(study, case);
    text += &other_figures(study, case);
    text += &audit_table(study, case);
    text += &remarks(study, case);
    text += &plots::marks(study, case);
    text += &plots::figures(&plots::case_charts(study, case));
    text + "</div>\n"
}

fn facts(case: &Case<'_>) -> String {
    let waits = if case.closed_loop {
        "Closed loop: senders wait for the answer before the next batch, so a slow system is asked \
         less and its latencies hide the waiting; read them beside the rate."
    } else {
        "Open loop: messages are due at fixed times, and latencies count from when they were due."
    };
    let headline = case.headline.as_ref().map_or_else(String::new, |headline| {
        let unit = match quantity::head(&headline.unit) {
            "" => String::new(),
            unit => format!(" in {unit}"),
        };
        format!(
            "Headline: <b>{}</b>{}, {}. ",
            Text(&headline.name),
            Text(&unit),
            direction(headline.better)
        )
    });
    let parameters = named(&case.parameters);
    let parameters = if parameters.is_empty() {
        String::new()
    } else {
        format!(" <span class=\"small\">{parameters}</span>")
    };
    format!(
        "<p><span class=\"tag\">{}</span> <span class=\"tag\">{}</span> {headline}{waits}{parameters}</p>\n",
        loop_text(case.closed_loop),
        Text(case.form)
    )
}

fn named(pairs: &[(String, String)]) -> String {
    let one = |(name, value): &(String, String)| {
        format!("<span class=\"pair\">{} <b>{}</b></span>", Text(name), Text(value))
    };
    pairs.iter().map(one).collect::<Vec<_>>().join(" ")
}

fn figures_table(study: &Study<'_>, case: &Case<'_>) -> String {
    let headline = case.headline.as_ref();
    let unit = headline.map_or("", |headline| quantity::head(&headline.unit));
    let name = headline.map_or("Headline", |headline| headline.name.as_str());
    let since = if case.closed_loop { "sent" } else { "due" };
    let mut text = format!(
        "<div class=\"scroll\"><table class=\"figures\"><thead><tr><th rowspan=\"2\" scope=\"col\">System</th>\
         <th rowspan=\"2\" scope=\"col\" class=\"n\">{}<small>{}</small></th>\
         <th colspan=\"3\" scope=\"colgroup\" class=\"span\">{since} → received</th>\
         <th colspan=\"3\" scope=\"colgroup\" class=\"span\">{since} → confirmed</th>\
         <th rowspan=\"2\" scope=\"col\" class=\"n\">Server CPU<small>s per million</small></th>\
         <th rowspan=\"2\" scope=\"col\" class=\"n\">Memory<small>at most</small></th>\
         <th rowspan=\"2\" scope=\"col\">Verdict</th></tr><tr>{percentiles}{percentiles}</tr></thead>\n",
        Text(name),
        Text(unit),
        percentiles = "<th scope=\"col\" class=\"n\">p50</th><th scope=\"col\" class=\"n\">p99</th><th scope=\"col\" class=\"n\">p99.9</th>",
    );
    let mut tier: Option<Tier> = None;
    for row in &case.rows {
        if tier != Some(row.tier) {
            tier = Some(row.tier);
            text += &format!(
                "<tr class=\"tier\"><th colspan=\"11\" scope=\"rowgroup\">{}</th></tr>\n",
                tier_text(row.tier)
            );
        }
        text += &figures_row(study, case, row);
    }
    text + "</table></div>\n"
}

fn unsupported(study: &Study<'_>, case: &Case<'_>) -> String {
    if case.unsupported.is_empty() {
        return String::new();
    }
    let one = |found: &Unsupported<'_>| {
        let system = &study.systems[found.system];
        format!("<b>{}</b> ({}): {}", Text(&system.label), found.tier, Text(found.why))
    };
    let all: Vec<String> = case.unsupported.iter().map(one).collect();
    format!("<p class=\"small\">Not supported: {}.</p>\n", all.join("; "))
}

fn system_cell(study: &Study<'_>, row: &Row<'_>) -> String {
    let system = &study.systems[row.system];
    let mut notes = vec![Text(&system.version).to_string()];
    if row.runs.len() > 1 {
        notes.push(format!(
            "median of {} runs",
            row.runs.iter().filter(|run| run.counts()).count().max(1)
        ));
    }
    if !row.parameters.is_empty() {
        notes.push(named(&row.parameters));
    }
    format!(
        "<th scope=\"row\">{}{}<small>{}</small></th>",
        swatch(row.system),
        Text(&system.title),
        notes.join(" · ")
    )
}

fn figures_row(study: &Study<'_>, case: &Case<'_>, row: &Row<'_>) -> String {
    let class = match row.standing {
        Standing::Failed(_) => "failed",
        Standing::Interrupted(_) => "interrupted",
        Standing::Counts { .. } => "",
    };
    let mut text = format!("<tr class=\"{class}\">{}", system_cell(study, row));
    text += &headline_cell(case, row);
    for names in [&RECEIVE, &SEND] {
        for share in [0.5, 0.99, 0.999] {
            let at = |run: &Run| figures::quantile_us(figures::latency(run, names)?, share);
            text += &number_cell(study::figure(&row.runs, at), "us");
        }
    }
    text += &number_cell(study::figure(&row.runs, figures::cpu_per_million), "");
    text += &number_cell(study::figure(&row.runs, figures::memory_max), "bytes");
    text + &verdict_cell(row) + "</tr>\n"
}

fn headline_cell(case: &Case<'_>, row: &Row<'_>) -> String {
    let (Some(headline), Some(figure)) = (&case.headline, row.figure) else {
        return format!("<td class=\"n\">{}</td>", quantity::NONE);
    };
    let text = Text(&quantity::cell(figure.median, &headline.unit)).to_string();
    if !row.counts() {
        return format!("<td class=\"n\"><s>{text}</s></td>");
    }
    let deviation = deviation(&figure, &headline.unit);
    format!(
        "<td class=\"n head\"><span>{}{}{text}</span>{deviation}</td>",
        star(row.lead),
        bound_sign(row, headline.better)
    )
}

fn deviation(figure: &Spread, unit: &str) -> String {
    let known = figure.deviation.filter(|deviation| deviation.is_finite());
    known.map_or_else(String::new, |deviation| {
        format!(" <small>± {}</small>", Text(&quantity::cell(deviation, unit)))
    })
}

fn number_cell(figure: Option<Spread>, unit: &str) -> String {
    let text = figure
        .map_or_else(|| quantity::NONE.to_owned(), |figure| quantity::cell(figure.median, unit));
    format!("<td class=\"n\">{}</td>", Text(&text))
}

fn verdict_cell(row: &Row<'_>) -> String {
    let total = row.runs.len();
    let having =
        |test: fn(&Verdict) -> bool| row.runs.iter().filter(|run| test(&run.verdict)).count();
    let passed = having(|verdict| *verdict == Verdict::Passed);
    let of = if total > 1 { format!(" {passed} of {total}") } else { String::new() };
    let word = match &row.standing {
        Standing::Failed(why) => {
            let failed = having(|verdict| matches!(verdict, Verdict::Failed(_)));
            let of = if total > 1 { format!(" {failed} of {total}") } else { String::new() };
            format!("<em class=\"tag bad\">✗ failed{of}</em> {}", Text(&why.join("; ")))
        }
        Standing::Interrupted(why) => {
            format!("<em class=\"tag warn\">◌ interrupted</em> {}", Text(why))
        }
        Standing::Counts { .. } if passed < total => {
            format!("<em class=\"tag warn\">✓ passed{of}</em> the rest interrupted")
        }
        Standing::Counts { .. } => format!("<span class=\"good\">✓ passed{of}</span>"),
    };
    let bound =
        if row.is_client_bound() { " <em class=\"tag bound\">client-bound</em>" } else { "" };
    format!("<td class=\"verdict\">{word}{bound}</td>")
}

/// The measures beyond the headline, and those in other suites' terms.
fn other_figures(study: &Study<'_>, case: &Case<'_>) -> String {
    let headline = case.headline.as_ref().map(|headline| headline.name.as_str());
    let mut columns: Vec<(String, String)> = Vec::new();
    let runs = || case.rows.iter().flat_map(|row| &row.runs);
    for measure in runs().flat_map(|run| &run.measures) {
        let column = (measure.name.clone(), measure.unit.clone());
        if Some(measure.name.as_str()) != headline
            && !columns.iter().any(|known| known.0 == column.0)
        {
            columns.push(column);
        }
    }
    let mut foreign: Vec<(String, String)> = Vec::new();
    for (suite, name, _) in runs().flat_map(|run| foreign_figures(run)) {
        if !foreign.contains(&(suite.clone(), name.clone())) {
            foreign.push((suite, name));
        }
    }
    if columns.is_empty() && foreign.is_empty() {
        return String::new();
    }
    let head = |name: &str, below: &str| {
        format!("<th scope=\"col\" class=\"n\">{}<small>{}</small></th>", Text(name), Text(below))
    };
    let mut text = "<details open><summary>More figures</summary><div class=\"scroll\"><table class=\"more\"><thead><tr><th scope=\"col\">System</th>".to_owned();
    columns.iter().for_each(|(name, unit)| text += &head(name, quantity::head(unit)));
    foreign.iter().for_each(|(suite, name)| text += &head(name, &format!("as {suite} has it")));
    text += "</tr></thead>\n";
    for row in &case.rows {
        text += &format!("<tr>{}", label_cell(study, case, row));
        for (name, unit) in &columns {
            text += &match study::measured(&row.runs, name) {
                Some(figure) => format!(
                    "<td class=\"n\">{}{}</td>",
                    Text(&quantity::cell(figure.median, unit)),
                    deviation(&figure, unit)
                ),
                None => number_cell(None, unit),
            };
        }
        let run = row.representative(case.headline.as_ref());
        for (suite, name) in &foreign {
            let mut of_run = foreign_figures(run);
            let found =
                of_run.find(|(its_suite, its_name, _)| its_suite == suite && its_name == name);
            text += &number_cell(found.and_then(|(_, _, value)| Spread::of(&[value], None)), "");
        }
        text += "</tr>\n";
    }
    text + "</table></div></details>\n"
}

/// Single numbers only; series stay in the files.
fn foreign_figures(run: &Run) -> impl Iterator<Item = (String, String, f64)> {
    run.compatibility.iter().flat_map(|(suite, value)| {
        let fields = value.as_object().into_iter().flatten();
        fields.filter_map(move |(name, value)| Some((suite.clone(), name.clone(), value.as_f64()?)))
    })
}

pub(super) fn label(study: &Study<'_>, case: &Case<'_>, row: &Row<'_>) -> String {
    let label = &study.systems[row.system].label;
    let mixed = case.rows.iter().any(|other| other.tier != row.tier);
    if mixed { format!("{label} {}", row.tier) } else { label.clone() }
}

fn label_cell(study: &Study<'_>, case: &Case<'_>, row: &Row<'_>) -> String {
    format!("<th scope=\"row\">{}{}</th>", swatch(row.system), Text(&label(study, case, row)))
}

fn audit_table(study: &Study<'_>, case: &Case<'_>) -> String {
    let heads = [
        "confirmed",
        "not confirmed",
        "received",
        "lost",
        "repeated",
        "unmarked",
        "settled, again",
        "out of order",
        "damaged",
        "longest way",
        "lanes",
        "subscriptions",
    ];
    let heads: Vec<String> =
        heads.iter().map(|head| format!("<th scope=\"col\" class=\"n\">{head}</th>")).collect();
    let mut text = format!(
        "<details open><summary>Audit of every message</summary><div class=\"scroll\"><table class=\"audit\"><thead><tr>\
         <th scope=\"col\">System</th>{}</tr></thead>\n",
        heads.concat()
    );
    for row in &case.rows {
        text += &format!("<tr>{}{}</tr>\n", label_cell(study, case, row), audit_cells(row));
    }
    text += "</table></div>";
    for row in &case.rows {
        let findings = row.runs.iter().flat_map(|run| &run.audit.findings);
        for finding in findings.take(FINDINGS_MAX) {
            text += &format!(
                "<p class=\"finding\">{}: <b>{}</b> sender {}, sequence {}, lane {}, subscription {}: {}</p>\n",
                Text(&label(study, case, row)),
                Text(&finding.kind),
                finding.sender,
                finding.sequence,
                finding.lane,
                finding.subscription,
                Text(&finding.what)
            );
        }
    }
    text + "</details>\n"
}

/// Counts are sums over the row's runs; dwell time and fairness are the worst of them.
fn audit_cells(row: &Row<'_>) -> String {
    let sum = |count: fn(&results::Audit) -> u64| {
        row.runs.iter().map(|run| count(&run.audit)).sum::<u64>()
    };
    let plain = |count: u64| format!("<td class=\"n\">{}</td>", quantity::digits(count as f64));
    let fault = |count: u64| match count {
        0 => plain(0),
        some => format!("<td class=\"n bad\">✗ {}</td>", quantity::digits(some as f64)),
    };
    let worst = |of: fn(&results::Audit) -> Option<f64>| {
        let known =
            row.runs.iter().filter_map(|run| of(&run.audit)).filter(|value| value.is_finite());
        match known.reduce(f64::max) {
            Some(value) => format!("<td class=\"n\">{}</td>", quantity::digits(value)),
            None => format!("<td class=\"n\">{}</td>", quantity::NONE),
        }
    };
    let dwell = row.runs.iter().map(|run| run.audit.dwell_max_us).max().unwrap_or(0);
    [
        plain(sum(|audit| audit.confirmed)),
        plain(sum(|audit| audit.unconfirmed)),
        plain(sum(|audit| audit.received)),
        fault(sum(|audit| audit.lost)),
        plain(sum(|audit| audit.repeated)),
        fault(sum(|audit| audit.repeated_unmarked)),
        fault(sum(|audit| audit.settled_again)),
        // Whether order is required depends on the test, and is part of the verdict.
        plain(sum(|audit| audit.out_of_order)),
        fault(sum(|audit| audit.damaged)),
        format!("<td class=\"n\">{}</td>", quantity::duration(dwell as f64)),
        worst(|audit| audit.fairness_lanes),
        worst(|audit| audit.fairness_subscriptions),
    ]
    .concat()
}

fn remarks(study: &Study<'_>, case: &Case<'_>) -> String {
    let mut items = String::new();
    let mut errors = Vec::new();
    for row in &case.rows {
        let label = Text(&label(study, case, row)).to_string();
        let mut seen: Vec<(&str, usize)> = Vec::new();
        for remark in row.runs.iter().flat_map(|run| &run.remarks) {
            match seen.iter_mut().find(|(known, _)| known == remark) {
                Some((_, count)) => *count += 1,
                None => seen.push((remark, 1)),
            }
        }
        let total = row.runs.len();
        for (remark, count) in seen {
            let of = if total > 1 { format!(" ({count} of {total} runs)") } else { String::new() };
            items += &format!("<li><b>{label}</b>: {}{of}</li>", Text(remark));
        }
        let seconds = row.runs.iter().flat_map(|run| &run.seconds);
        let failed: u64 = seconds.map(|second| second.errors).sum();
        if failed > 0 {
            errors.push(format!("{label} <b>{}</b>", quantity::digits(failed as f64)));
        }
    }
    if !errors.is_empty() {
        items += &format!("<li>Calls that failed: {}</li>", errors.join(", "));
    }
    if items.is_empty() { String::new() } else { format!("<ul class=\"remarks\">{items}</ul>\n") }
}
