//! Tests × systems, in groups of columns by tier: a figure is ranked within its group only.

use std::cmp::Reverse;

use driver::Tier;
use results::Better;

use super::{bound_sign, loop_text, star, swatch};
use crate::markup::Text;
use crate::quantity;
use crate::study::{Case, Row, Standing, Study, Unsupported};

/// With more columns than this the page is printed in landscape.
const UPRIGHT_COLUMNS_MAX: usize = 7;

/// A system at a tier.
type Column = (Tier, usize);

/// Whether the matrix is too wide for portrait.
pub(super) fn is_wide(study: &Study<'_>) -> bool {
    columns(study).len() > UPRIGHT_COLUMNS_MAX
}

fn columns(study: &Study<'_>) -> Vec<Column> {
    let of = |case: &Case<'_>| -> Vec<Column> {
        let ran = case.rows.iter().map(|row| (row.tier, row.system));
        ran.chain(case.unsupported.iter().map(|found| (found.tier, found.system))).collect()
    };
    let mut columns: Vec<Column> = study.cases().flat_map(of).collect();
    columns.sort_by_key(|(tier, system)| (Reverse(*tier), *system));
    columns.dedup();
    columns
}

pub(super) fn draw(study: &Study<'_>) -> String {
    let columns = columns(study);
    let mut text = format!(
        "<section id=\"summary\"><h2>Summary</h2>\n<div class=\"scroll\"><table class=\"matrix\">{}<tbody>\n",
        heads(study, &columns)
    );
    for case in study.cases() {
        text += &format!("<tr>{}", row_head(study, case));
        for (place, (tier, system)) in columns.iter().enumerate() {
            let begins = begins_tier(&columns, place);
            let row = case.rows.iter().find(|row| row.tier == *tier && row.system == *system);
            text += &match row {
                Some(row) => cell(case, row, begins),
                None => no_cell(case, *tier, *system, begins),
            };
        }
        text += "</tr>\n";
    }
    text + "</tbody></table></div>\n" + EXPLAINED + "</section>\n"
}

const EXPLAINED: &str = "<p class=\"small\">↑ higher is better, ↓ lower is better. \
    ★ best at its tier by more than noise (two standard deviations of repeated \
    runs, and 2 % at least); ★≈ best, but within noise of another; ☆ ahead, but of single or client-bound runs, which prove little. \
    The bar is the share of the best at the same tier. ≥ ≤ client-bound: the load generator was the \
    limit. <s>Struck</s>: the run failed or was interrupted, and does not rank. · not run; n/a: the system does not have what the test asks for.</p>\n";

/// The first column of a tier has a line on its left.
fn begins_tier(columns: &[Column], place: usize) -> &'static str {
    if place == 0 || columns[place - 1].0 != columns[place].0 { " begins" } else { "" }
}

/// Head rows: tiers above, systems below.
fn heads(study: &Study<'_>, columns: &[Column]) -> String {
    let mut text = "<thead><tr><th rowspan=\"2\" scope=\"col\">Test</th>".to_owned();
    for tier in study.tiers() {
        let span = columns.iter().filter(|column| column.0 == tier).count();
        text += &format!(
            "<th colspan=\"{span}\" scope=\"colgroup\" class=\"span begins\">{tier}<small>{}</small></th>",
            tier.meaning()
        );
    }
    text += "</tr><tr>";
    for (place, (_, system)) in columns.iter().enumerate() {
        let name = &study.systems[*system];
        text += &format!(
            "<th scope=\"col\" class=\"n{}\" title=\"{} {}\">{}{}</th>",
            begins_tier(columns, place),
            Text(&name.title),
            Text(&name.version),
            swatch(*system),
            Text(&name.label)
        );
    }
    text + "</tr></thead>"
}

fn row_head(study: &Study<'_>, case: &Case<'_>) -> String {
    let headline = case.headline.as_ref().map_or_else(
        || "no figure".to_owned(),
        |headline| {
            let unit = quantity::head(&headline.unit);
            let unit = if unit.is_empty() { String::new() } else { format!(", {unit}") };
            let arrow = match headline.better {
                Better::Higher => " ↑",
                Better::Lower => " ↓",
                Better::Neither => "",
            };
            format!("{}{unit}{arrow}", headline.name)
        },
    );
    format!(
        "<th scope=\"row\"><a href=\"#case-{}\">{}</a><small>{} · {}</small></th>",
        case.number,
        Text(&study.title(case)),
        Text(&headline),
        loop_text(case.closed_loop)
    )
}

/// The best median among the rows that count.
fn best(case: &Case<'_>, tier: Tier) -> Option<f64> {
    let better = case.headline.as_ref()?.better;
    let counted = case.rows.iter().filter(|row| row.tier == tier && row.counts());
    let medians = counted.filter_map(|row| row.figure).map(|figure| figure.median);
    match better {
        Better::Higher => medians.reduce(f64::max),
        Better::Lower => medians.reduce(f64::min),
        Better::Neither => None,
    }
}

fn cell(case: &Case<'_>, row: &Row<'_>, begins: &str) -> String {
    let best = best(case, row.tier);
    let Some(headline) = &case.headline else {
        return word_cell(row, quantity::NONE, begins);
    };
    let figure = match row.figure {
        Some(figure) => quantity::compact(figure.median, &headline.unit),
        None => quantity::NONE.to_owned(),
    };
    if !row.counts() {
        return word_cell(row, &figure, begins);
    }
    let alone =
        case.rows.iter().filter(|other| other.tier == row.tier && other.counts()).count() < 2;
    let share = row.figure.zip(best.filter(|_| !alone)).and_then(|(figure, best)| {
        let share = match headline.better {
            Better::Lower => best / figure.median,
            _ => figure.median / best,
        };
        (share.is_finite() && share > 0.0).then(|| (share * 100.0).clamp(1.0, 100.0))
    });
    let bar = share.map_or_else(String::new, |share| {
        format!(
            "<span class=\"bar\"><i class=\"{}\" style=\"width:{share:.0}%\"></i></span>",
            super::class(row.system)
        )
    });
    let client =
        if row.is_client_bound() { "<em class=\"tag bound\">client-bound</em>" } else { "" };
    let (strong, lead) =
        (if row.lead == crate::study::Lead::None { "" } else { " best" }, star(row.lead));
    let sign = bound_sign(row, headline.better);
    format!(
        "<td class=\"figure{strong}{begins}\"><span>{lead}{sign}{}</span>{bar}{client}</td>",
        Text(&figure)
    )
}

fn no_cell(case: &Case<'_>, tier: Tier, system: usize, begins: &str) -> String {
    let is = |found: &&Unsupported<'_>| found.tier == tier && found.system == system;
    match case.unsupported.iter().find(is) {
        Some(found) => {
            format!("<td class=\"none{begins}\" title=\"{}\">n/a</td>", Text(found.why))
        }
        None => format!("<td class=\"none{begins}\">·</td>"),
    }
}

fn word_cell(row: &Row<'_>, figure: &str, begins: &str) -> String {
    let (class, word, why) = match &row.standing {
        Standing::Failed(why) => ("failed", "✗ failed", why.join("; ")),
        Standing::Interrupted(why) => ("interrupted", "◌ interrupted", why.clone()),
        Standing::Counts { .. } => {
            return format!("<td class=\"figure{begins}\">{}</td>", Text(figure));
        }
    };
    format!(
        "<td class=\"{class}{begins}\" title=\"{}\"><em>{word}</em><s>{}</s></td>",
        Text(&why),
        Text(figure)
    )
}
