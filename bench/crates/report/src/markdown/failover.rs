//! Tables of all failover figures, which do not fit into one headline.

use results::Measure;

use super::cell;
use crate::quantity;
use crate::study::{Case, Study, measured};

const FAMILY: &str = "failover/";
/// Figures of every test, which the other tables show.
const COMMON: [&str; 8] = [
    "server CPU",
    "server memory",
    "server disk",
    "confirmed",
    "send p50",
    "send p99",
    "receive p50",
    "receive p99",
];

/// One table for each test of the family; empty if there is none.
pub(super) fn tables(study: &Study<'_>) -> String {
    study.cases().filter(|case| case.test.starts_with(FAMILY)).map(|it| table(study, it)).collect()
}

fn table(study: &Study<'_>, case: &Case<'_>) -> String {
    let measures = case.rows.iter().flat_map(|row| &row.runs).flat_map(|run| &run.measures);
    let mut columns: Vec<&Measure> = Vec::new();
    for measure in measures.filter(|measure| !COMMON.contains(&measure.name.as_str())) {
        if !columns.iter().any(|known| known.name == measure.name) {
            columns.push(measure);
        }
    }
    let heads: String = columns.iter().map(|it| format!(" {} |", cell(&it.name))).collect();
    let line = "--:|".repeat(columns.len());
    let mut text =
        format!("### {}\n\n| system | tier |{heads}\n|---|---|{line}\n", cell(&study.title(case)));
    for row in &case.rows {
        text += &format!("| {} | {} |", cell(&study.systems[row.system].label), row.tier);
        for column in &columns {
            let figure = measured(&row.runs, &column.name);
            let value = figure.map_or(quantity::NONE.to_owned(), |figure| {
                quantity::cell(figure.median, &column.unit)
            });
            text += &format!(" {} |", cell(&value));
        }
        text += "\n";
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use results::{Better, Measure};

    use crate::{example, markdown};

    #[test]
    fn failover_figures_share_one_row() {
        let mut run = example::run("failover/kill", "kafka");
        let figure = |name: &str, value| Measure {
            name: name.to_owned(),
            value,
            unit: "ms".to_owned(),
            deviation: None,
            better: Better::Lower,
        };
        run.measures =
            vec![figure("its leader gone: p50", 420.0), figure("its leader gone: worst", 1_500.0)];
        let text = markdown(&[run]);
        let head = "| system | tier | its leader gone: p50 | its leader gone: worst |";
        assert!(text.contains(head), "{text}");
        assert!(text.contains("| 420 ms | 1.50 s |"), "{text}");
        assert!(!markdown(&[example::run("mqperf/base", "kafka")]).contains("| system | tier |"));
    }
}
