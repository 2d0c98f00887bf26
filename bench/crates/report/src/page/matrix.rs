//! Tests × systems: one table for each tier, so that no eye compares across tiers by accident.

use driver::Tier;
use results::Better;

use super::{bound_sign, direction, loop_text, star, swatch, tier_text};
use crate::markup::Text;
use crate::quantity;
use crate::study::{Case, Row, Standing, Study};

/// More columns than this are printed across the sheet.
const UPRIGHT_COLUMNS_MAX: usize = 7;

pub(super) fn draw(study: &Study<'_>) -> String {
    let mut text = "<section id=\"summary\"><h2>Summary</h2>\n".to_owned();
    for tier in study.tiers() {
        text += &table(study, tier);
    }
    text + EXPLAINED + "</section>\n"
}

const EXPLAINED: &str = "<p class=\"small\">★ best at this tier by more than noise (two standard deviations of repeated \
    runs); ★≈ best, but within noise of another; ☆ ahead on a single run, which proves little. \
    The bar is the share of the best in its row. ≥ ≤ client-bound: the load generator was the limit. \
    <s>Struck</s>: the run failed or was interrupted, and does not rank. · not run.</p>\n";

fn table(study: &Study<'_>, tier: Tier) -> String {
    let in_tier = |case: &&Case<'_>| case.rows.iter().any(|row| row.tier == tier);
    let cases: Vec<&Case<'_>> = study.cases().filter(in_tier).collect();
    let ran = |system: &usize| {
        cases
            .iter()
            .flat_map(|case| &case.rows)
            .any(|row| row.tier == tier && row.system == *system)
    };
    let systems: Vec<usize> = (0..study.systems.len()).filter(ran).collect();
    let wide = if systems.len() > UPRIGHT_COLUMNS_MAX { " wide" } else { "" };
    let mut text = format!(
        "<div class=\"scroll{wide}\"><table class=\"matrix\"><caption>{}</caption><thead><tr><th scope=\"col\">Test</th>",
        tier_text(tier)
    );
    for system in &systems {
        let name = &study.systems[*system];
        text += &format!(
            "<th scope=\"col\" title=\"{} {}\">{}{}</th>",
            Text(&name.title),
            Text(&name.version),
            swatch(*system),
            Text(&name.label)
        );
    }
    text += "</tr></thead><tbody>\n";
    for case in cases {
        text += &format!("<tr>{}", row_head(study, case));
        let best = best(case, tier);
        for system in &systems {
            let row = case.rows.iter().find(|row| row.tier == tier && row.system == *system);
            text += &row.map_or_else(
                || "<td class=\"none\">·</td>".to_owned(),
                |row| cell(case, row, best),
            );
        }
        text += "</tr>\n";
    }
    text + "</tbody></table></div>\n"
}

fn row_head(study: &Study<'_>, case: &Case<'_>) -> String {
    let (name, unit, better) = match &case.headline {
        Some(headline) => {
            (headline.name.as_str(), quantity::head(&headline.unit), direction(headline.better))
        }
        None => ("no figure", "", ""),
    };
    let unit = if unit.is_empty() { String::new() } else { format!(", {}", Text(unit)) };
    format!(
        "<th scope=\"row\"><a href=\"#case-{}\">{}</a><small>{}{unit} · {better} · {}</small></th>",
        case.number,
        Text(&study.title(case)),
        Text(name),
        loop_text(case.closed_loop)
    )
}

/// The best median that counts.
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

fn cell(case: &Case<'_>, row: &Row<'_>, best: Option<f64>) -> String {
    let Some(headline) = &case.headline else {
        return word_cell(row, quantity::NONE);
    };
    let figure = match row.figure {
        Some(figure) => quantity::compact(figure.median, &headline.unit),
        None => quantity::NONE.to_owned(),
    };
    if !row.counts() {
        return word_cell(row, &figure);
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
        "<td class=\"figure{strong}\"><span>{lead}{sign}{}</span>{bar}{client}</td>",
        Text(&figure)
    )
}

fn word_cell(row: &Row<'_>, figure: &str) -> String {
    let (class, word, why) = match &row.standing {
        Standing::Failed(why) => ("failed", "✗ failed", why.join("; ")),
        Standing::Interrupted(why) => ("interrupted", "◌ interrupted", why.clone()),
        Standing::Counts { .. } => return format!("<td class=\"figure\">{}</td>", Text(figure)),
    };
    format!(
        "<td class=\"{class}\" title=\"{}\"><em>{word}</em><s>{}</s></td>",
        Text(&why),
        Text(figure)
    )
}
