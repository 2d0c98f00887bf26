//! The plots of cases and chapters.

use results::{Run, Second};

use super::case::label;
use crate::chart::{Axis, Chart, Line, Spacing};
use crate::figures::{self, RECEIVE, SEND};
use crate::markup::Text;
use crate::quantity;
use crate::study::{self, Case, Chapter, Row, Study};

/// Marks of the same name within this many seconds are one event.
const TOGETHER_SECONDS: f64 = 2.0;
/// Number of a step's figures that are plotted.
const STEP_MEASURES_MAX: usize = 4;
/// Ratio of values from which the axis is logarithmic.
const LOG_FROM: f64 = 20.0;

pub(super) fn figures(charts: &[Chart]) -> String {
    let drawn = charts.iter().filter_map(|chart| {
        let below = if chart.y.spacing == Spacing::Log { " · log scale" } else { "" };
        let unit =
            if chart.y.label.is_empty() { String::new() } else { format!(" · {}", chart.y.label) };
        Some(format!(
            "<figure><figcaption>{}<small>{}{below}</small></figcaption>{}</figure>\n",
            Text(&chart.title),
            Text(&unit),
            chart.draw()?
        ))
    });
    let drawn: String = drawn.collect();
    if drawn.is_empty() { drawn } else { format!("<div class=\"plots\">{drawn}</div>\n") }
}

/// Axes of a plot.
struct Plan<'a> {
    title: &'a str,
    x: (&'a str, Spacing, &'a str),
    y: (&'a str, Spacing, &'a str),
}

fn chart(plan: &Plan<'_>, lines: Vec<Line>, marks: Vec<(f64, String)>, dots: bool) -> Chart {
    let axis = |(label, spacing, unit): (&str, Spacing, &str)| Axis {
        label: label.to_owned(),
        spacing,
        unit: unit.to_owned(),
    };
    Chart { title: plan.title.to_owned(), x: axis(plan.x), y: axis(plan.y), lines, marks, dots }
}

fn lines(
    study: &Study<'_>,
    case: &Case<'_>,
    points: impl Fn(&Run) -> Vec<(f64, f64)>,
) -> Vec<Line> {
    let line = |row: &Row<'_>| Line {
        label: label(study, case, row),
        colour: row.system,
        broken: !row.counts(),
        points: points(row.representative(case.headline.as_ref())),
    };
    let mut lines: Vec<Line> = case.rows.iter().map(line).collect();
    lines.retain(|line| !line.points.is_empty());
    lines
}

const RATE: Scaled = ("messages/s", Spacing::Linear, "messages/s");
const LATENCY: Scaled = ("", Spacing::Log, "us");
const BACKLOG: Scaled = ("messages", Spacing::Linear, "messages");
const ERRORS: Scaled = ("each second", Spacing::Linear, "");
const CORES: Scaled = ("cores busy", Spacing::Linear, "cores");
const MEMORY: Scaled = ("resident", Spacing::Binary, "bytes");
const SECONDS: Scaled = ("seconds since the start of the load", Spacing::Time, "s");

type Points<'a> = &'a dyn Fn(&Run) -> Vec<(f64, f64)>;
/// A label, a spacing and a unit.
type Scaled = (&'static str, Spacing, &'static str);

/// The plots of a case, ordered in pairs, since two are shown side by side.
pub(super) fn case_charts(study: &Study<'_>, case: &Case<'_>) -> Vec<Chart> {
    let marks: Vec<(f64, String)> =
        (1..).zip(events(case)).map(|(number, event)| (event.at, number.to_string())).collect();
    let over_time = |title: &str, y: Scaled, points: Points<'_>| {
        let plan = Plan { title, x: SECONDS, y };
        chart(&plan, lines(study, case, points), marks.clone(), false)
    };
    let by_percentile = |title: &str, names: &[&str]| {
        let plan = Plan { title, x: ("percentile", Spacing::Percentile, "share"), y: LATENCY };
        chart(&plan, lines(study, case, |run| curve(run, names)), vec![], false)
    };
    let each = |of: fn(&Second) -> u64| move |run: &Run| each_second(run, of);
    let some = |of: fn(&Second) -> u64| move |run: &Run| present(each_second(run, of));
    let mut charts = step_charts(study, case);
    charts.extend([
        over_time("Confirmed over time", RATE, &each(|second| second.confirmed)),
        over_time("Received over time", RATE, &each(|second| second.received)),
        over_time("To the receiver, p50 of each second", LATENCY, &some(|s| s.receive_p50)),
        over_time("To the receiver, p99 of each second", LATENCY, &some(|s| s.receive_p99)),
        over_time("To the confirmation, p99 of each second", LATENCY, &some(|s| s.send_p99)),
        over_time("Backlog: confirmed, not yet received", BACKLOG, &each(|s| s.backlog)),
        by_percentile("To the receiver, by percentile", &RECEIVE),
        by_percentile("To the confirmation, by percentile", &SEND),
        by_percentile("Pauses of writes whose leader was gone", &["pause-led"]),
        by_percentile("Pauses of the others", &["pause-others"]),
        over_time("Server CPU", CORES, &figures::cores_over_time),
        over_time("Server memory", MEMORY, &figures::memory_over_time),
    ]);
    if any_errors(case) {
        charts.push(over_time("Errors", ERRORS, &each(|second| second.errors)));
    }
    charts
}

fn any_errors(case: &Case<'_>) -> bool {
    let seconds = case.rows.iter().flat_map(|row| &row.runs).flat_map(|run| &run.seconds);
    seconds.into_iter().any(|second| second.errors > 0)
}

fn each_second(run: &Run, of: fn(&Second) -> u64) -> Vec<(f64, f64)> {
    run.seconds.iter().map(|second| (second.at as f64, of(second) as f64)).collect()
}

/// A second without a sample has no latency.
fn present(mut points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    points.retain(|(_, y)| *y > 0.0);
    points
}

fn curve(run: &Run, names: &[&str]) -> Vec<(f64, f64)> {
    let Some(latency) = figures::latency(run, names) else { return Vec::new() };
    // The last of n samples represents one in n: no curve extends beyond that share.
    let last = 1.0 - 1.0 / latency.count().max(2) as f64;
    latency.curve().into_iter().map(|(share, micros)| (share.min(last), micros as f64)).collect()
}

/// Within one run: figures against the varied parameter.
fn step_charts(study: &Study<'_>, case: &Case<'_>) -> Vec<Chart> {
    let runs = || case.rows.iter().map(|row| row.representative(case.headline.as_ref()));
    let Some(first) = runs().flat_map(|run| &run.steps).next() else { return Vec::new() };
    let mut charts = Vec::new();
    for measure in first.measures.iter().take(STEP_MEASURES_MAX) {
        let points = |run: &Run| {
            let value = |step: &results::Step| {
                let found = step.measures.iter().find(|other| other.name == measure.name)?;
                Some((step.value, found.value))
            };
            in_order(run.steps.iter().filter_map(value).collect())
        };
        let lines = lines(study, case, points);
        let title = format!("{} by {}", measure.name, first.parameter);
        let x = match quantity::head(&first.unit) {
            "" => first.parameter.clone(),
            unit => format!("{}, {unit}", first.parameter),
        };
        charts.push(by_number(&title, (&x, &first.unit), &measure.unit, lines));
    }
    charts
}

fn in_order(mut points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    points.sort_by(|one, other| one.0.total_cmp(&other.0));
    points
}

fn by_number(title: &str, x: (&str, &str), unit: &str, lines: Vec<Line>) -> Chart {
    let spread = |of: fn(&(f64, f64)) -> f64| {
        let values =
            || lines.iter().flat_map(|line| &line.points).map(of).filter(|v| v.is_finite());
        let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
        if low > 0.0 && high / low >= LOG_FROM { Spacing::Log } else { Spacing::Linear }
    };
    let (across, up) = (spread(|point| point.0), spread(|point| point.1));
    let label = quantity::head(unit);
    let plan = Plan { title, x: (x.0, across, x.1), y: (label, up, unit) };
    chart(&plan, lines, vec![], true)
}

/// Over the cases of a chapter: figures against the number in which they differ.
pub(super) fn chapter_charts(study: &Study<'_>, chapter: &Chapter<'_>) -> Vec<Chart> {
    let placed = || chapter.cases.iter().filter(|case| case.position.is_some());
    let Some(first) = placed().next() else { return Vec::new() };
    let comparable = |case: &&Case<'_>| case.host == first.host && case.form == first.form;
    let cases: Vec<&Case<'_>> = placed().filter(comparable).collect();
    if cases.len() < 2 {
        return Vec::new();
    }
    let axis = chapter.axis.as_deref().unwrap_or("N");
    let against = |title: &str, unit: &str, of: &dyn Fn(&Case<'_>, &Row<'_>) -> Option<f64>| {
        by_number(&format!("{title} by {axis}"), (axis, ""), unit, chapter_lines(study, &cases, of))
    };
    let mut charts = Vec::new();
    if let Some(headline) = &first.headline {
        let median = |case: &Case<'_>, row: &Row<'_>| {
            let same = case.headline.as_ref().is_some_and(|other| other.name == headline.name);
            row.figure.filter(|_| same).map(|figure| figure.median)
        };
        charts.push(against(&headline.name, &headline.unit, &median));
    }
    let of_runs = |of: fn(&Run) -> Option<f64>| {
        move |_: &Case<'_>, row: &Row<'_>| study::figure(&row.runs, of).map(|figure| figure.median)
    };
    let receive = of_runs(|run| figures::quantile_us(figures::latency(run, &RECEIVE)?, 0.99));
    let send = of_runs(|run| figures::quantile_us(figures::latency(run, &SEND)?, 0.99));
    charts.push(against("To the receiver, p99,", "us", &receive));
    charts.push(against("To the confirmation, p99,", "us", &send));
    charts.push(against(
        "Server CPU, seconds per million,",
        "s/million",
        &of_runs(figures::cpu_per_million),
    ));
    charts
}

/// One line for each system and tier. A case that does not count is left out of the line.
fn chapter_lines(
    study: &Study<'_>,
    cases: &[&Case<'_>],
    of: &dyn Fn(&Case<'_>, &Row<'_>) -> Option<f64>,
) -> Vec<Line> {
    let mut keys: Vec<(usize, driver::Tier)> =
        cases.iter().flat_map(|case| &case.rows).map(|row| (row.system, row.tier)).collect();
    keys.sort_unstable();
    keys.dedup();
    let mixed = keys.iter().any(|key| key.1 != keys[0].1);
    let line = |(system, tier): (usize, driver::Tier)| {
        let point = |case: &&Case<'_>| {
            let mut rows = case.rows.iter();
            let row = rows.find(|row| row.system == system && row.tier == tier && row.counts())?;
            Some((case.position?, of(case, row)?))
        };
        let name = &study.systems[system].label;
        Line {
            label: if mixed { format!("{name} {tier}") } else { name.clone() },
            colour: system,
            broken: false,
            points: in_order(cases.iter().filter_map(point).collect()),
        }
    };
    keys.into_iter().map(line).filter(|line| !line.points.is_empty()).collect()
}

/// An event of the displayed runs, and its time.
struct Event<'a> {
    at: f64,
    what: &'a str,
    rows: Vec<&'a Row<'a>>,
}

fn events<'a>(case: &'a Case<'a>) -> Vec<Event<'a>> {
    let mut events: Vec<Event<'a>> = Vec::new();
    for row in &case.rows {
        for mark in row
            .representative(case.headline.as_ref())
            .marks
            .iter()
            .filter(|mark| mark.at.is_finite())
        {
            let same = |event: &&mut Event<'_>| {
                event.what == mark.what && (event.at - mark.at).abs() <= TOGETHER_SECONDS
            };
            match events.iter_mut().find(same) {
                Some(event) => event.rows.push(row),
                None => events.push(Event { at: mark.at, what: &mark.what, rows: vec![row] }),
            }
        }
    }
    events.sort_by(|one, other| one.at.total_cmp(&other.at));
    events
}

/// The legend of the numbers in the plots.
pub(super) fn marks(study: &Study<'_>, case: &Case<'_>) -> String {
    let events = events(case);
    let item = |event: &Event<'_>| {
        let names: Vec<String> = event.rows.iter().map(|row| label(study, case, row)).collect();
        let whose =
            if event.rows.len() == case.rows.len() { "all".to_owned() } else { names.join(", ") };
        format!(
            "<li>at {:.0} s: <b>{}</b> <small>{}</small></li>",
            event.at,
            Text(event.what),
            Text(&whose)
        )
    };
    let items: String = events.iter().map(item).collect();
    if items.is_empty() { items } else { format!("<ol class=\"events\">{items}</ol>\n") }
}
