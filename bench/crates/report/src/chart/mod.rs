//! Line plots as SVG, drawn here and not in the browser: the page must be complete without scripts
//! and on paper. Colours come from the page's style by number, so that dark mode applies to the
//! plots. A line is also identified by its name at its end, and by dashes from the seventh on.

mod scale;

use std::fmt::Write;

pub(crate) use scale::{Scale, Spacing};

use crate::markup::Text;
use crate::quantity;

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Chart {
    pub(crate) title: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) lines: Vec<Line>,
    /// Events: their position, and their number in the legend of marks.
    pub(crate) marks: Vec<(f64, String)>,
    /// Shows single values rather than a curve.
    pub(crate) dots: bool,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Axis {
    pub(crate) label: String,
    pub(crate) spacing: Spacing,
    pub(crate) unit: String,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Line {
    pub(crate) label: String,
    pub(crate) colour: usize,
    /// The run does not count: it failed or was interrupted.
    pub(crate) broken: bool,
    pub(crate) points: Vec<(f64, f64)>,
}

/// Number of colours in the style; further lines repeat them with other dashes.
pub(crate) const COLOURS: usize = 12;

const WIDTH: f64 = 470.0;
const HEIGHT: f64 = 232.0;
const LEFT: f64 = 52.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 34.0;
/// Height of a line of names at the right.
const LABEL_HEIGHT: f64 = 12.5;
/// For the widest usual font.
const LABEL_CHAR_WIDTH: f64 = 6.2;
const LABEL_CHARS_MAX: usize = 22;
/// A line with more points is thinned, keeping the minimum and the maximum of each section.
const POINTS_MAX: usize = 300;

struct Frame {
    x: Scale,
    y: Scale,
    right: f64,
}

impl Frame {
    fn at(&self, x: f64, y: f64) -> (f64, f64) {
        let bottom = HEIGHT - BOTTOM;
        (LEFT + self.x.place(x) * (self.right - LEFT), bottom - self.y.place(y) * (bottom - TOP))
    }

    fn holds(&self, x: f64, y: f64) -> bool {
        self.x.shows(x) && self.y.shows(y)
    }
}

impl Chart {
    /// Returns `None` if no line has a value.
    pub(crate) fn draw(&self) -> Option<String> {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let whole = || points().filter(|(x, y)| x.is_finite() && y.is_finite());
        let x = Scale::of(self.x.spacing, whole().map(|point| point.0))?;
        let y = Scale::of(self.y.spacing, whole().map(|point| point.1))?;
        let longest = self.lines.iter().map(|line| shortened(&line.label).chars().count()).max()?;
        let right = WIDTH - 14.0 - LABEL_CHAR_WIDTH * longest as f64;
        let frame = Frame { x, y, right };
        let mut svg = format!(
            r#"<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}" data-x="{x}" data-y="{y}" data-u="{unit}" data-v="{xunit}" data-p="{LEFT} {right:.1} {TOP} {bottom}">"#,
            label = Text(&self.described()),
            x = frame.x.described(),
            y = frame.y.described(),
            unit = Text(&self.y.unit),
            xunit = Text(&self.x.unit),
            bottom = HEIGHT - BOTTOM,
        );
        self.draw_axes(&frame, &mut svg);
        self.draw_marks(&frame, &mut svg);
        for line in &self.lines {
            self.draw_line(line, &frame, &mut svg);
        }
        self.draw_labels(&frame, &mut svg);
        svg.push_str("</svg>");
        Some(svg)
    }

    fn described(&self) -> String {
        let names: Vec<&str> = self.lines.iter().map(|line| line.label.as_str()).collect();
        format!(
            "{}: {} over {}. Lines: {}",
            self.title,
            self.y.label,
            self.x.label,
            names.join(", ")
        )
    }

    fn draw_axes(&self, frame: &Frame, svg: &mut String) {
        let bottom = HEIGHT - BOTTOM;
        let right = frame.right;
        if self.x.spacing == Spacing::Time && frame.x.shows(0.0) && frame.x.place(0.0) > 0.001 {
            let zero = LEFT + frame.x.place(0.0) * (right - LEFT);
            push(
                svg,
                format_args!(
                    r#"<rect class="warm" x="{LEFT}" y="{TOP}" width="{:.1}" height="{:.1}"/>"#,
                    zero - LEFT,
                    bottom - TOP
                ),
            );
        }
        for tick in &frame.y.ticks {
            let y = bottom - frame.y.place(*tick) * (bottom - TOP);
            push(
                svg,
                format_args!(
                    r#"<path class="grid" d="M{LEFT} {y:.1}H{right:.1}"/><text class="tick" x="{:.1}" y="{:.1}" text-anchor="end">{}</text>"#,
                    LEFT - 5.0,
                    y + 3.5,
                    Text(&tick_text(*tick, &self.y)),
                ),
            );
        }
        push(svg, format_args!(r#"<path class="base" d="M{LEFT} {bottom}H{right:.1}"/>"#));
        let mut taken = f64::NEG_INFINITY;
        for tick in &frame.x.ticks {
            let x = LEFT + frame.x.place(*tick) * (right - LEFT);
            let text = tick_text(*tick, &self.x);
            let half = 3.2 * text.chars().count() as f64;
            push(svg, format_args!(r#"<path class="base" d="M{x:.1} {bottom}v4"/>"#));
            if x - half < taken + 4.0 {
                continue;
            }
            taken = x + half;
            push(
                svg,
                format_args!(
                    r#"<text class="tick" x="{x:.1}" y="{:.1}" text-anchor="middle">{}</text>"#,
                    bottom + 15.0,
                    Text(&text),
                ),
            );
        }
        push(
            svg,
            format_args!(
                r#"<text class="axis" x="{:.1}" y="{:.1}" text-anchor="middle">{}</text>"#,
                f64::midpoint(LEFT, right),
                HEIGHT - 4.0,
                Text(&self.x.label),
            ),
        );
    }

    fn draw_marks(&self, frame: &Frame, svg: &mut String) {
        for (at, number) in &self.marks {
            if !frame.x.shows(*at) {
                continue;
            }
            let x = LEFT + frame.x.place(*at) * (frame.right - LEFT);
            push(
                svg,
                format_args!(
                    r#"<path class="mark" d="M{x:.1} {TOP}V{}"/><text class="marked" x="{:.1}" y="{:.1}">{}</text>"#,
                    HEIGHT - BOTTOM,
                    x + 2.5,
                    TOP + 8.0,
                    Text(number),
                ),
            );
        }
    }

    fn draw_line(&self, line: &Line, frame: &Frame, svg: &mut String) {
        let class = class_of(line);
        let mut path = String::new();
        let mut last: Option<f64> = None;
        let mut dots = String::new();
        for (x, y) in thinned(&line.points) {
            if !frame.holds(x, y) {
                last = None;
                continue;
            }
            let (left, top) = frame.at(x, y);
            let gap =
                self.x.spacing == Spacing::Time && last.is_some_and(|last| x - last > self.gap());
            let letter = if last.is_none() || gap { 'M' } else { 'L' };
            push(&mut path, format_args!("{letter}{left:.1} {top:.1}"));
            if self.dots {
                push(&mut dots, format_args!(r#"<circle cx="{left:.1}" cy="{top:.1}" r="3"/>"#));
            }
            last = Some(x);
        }
        if path.is_empty() {
            return;
        }
        push(
            svg,
            format_args!(
                r#"<g class="{class}"><path class="line" data-l="{}" d="{path}"/>{dots}</g>"#,
                Text(&line.label)
            ),
        );
    }

    /// Points farther apart than this are not connected.
    fn gap(&self) -> f64 {
        let longest = self.lines.iter().map(|line| line.points.len()).max().unwrap_or(0);
        5.0 * (longest as f64 / POINTS_MAX as f64).max(1.0)
    }

    /// Draws names beside the ends of their lines, spread where they would overlap.
    fn draw_labels(&self, frame: &Frame, svg: &mut String) {
        let end = |line: &Line| {
            let seen = line.points.iter().rev().find(|(x, y)| frame.holds(*x, *y));
            seen.map(|(x, y)| frame.at(*x, *y))
        };
        let mut ends: Vec<(&Line, (f64, f64))> =
            self.lines.iter().filter_map(|line| Some((line, end(line)?))).collect();
        ends.sort_by(|one, other| one.1.1.total_cmp(&other.1.1));
        let wanted: Vec<f64> = ends.iter().map(|(_, at)| at.1).collect();
        for ((line, (x, y)), place) in ends.iter().zip(apart(&wanted, TOP, HEIGHT - BOTTOM + 8.0)) {
            let left = frame.right + 11.0;
            push(
                svg,
                format_args!(
                    r#"<g class="{class}"><path class="lead" d="M{:.1} {y:.1}L{:.1} {place:.1}"/><text class="name" x="{left:.1}" y="{:.1}">{}{}</text></g>"#,
                    x + 2.0,
                    left - 2.0,
                    place + 3.8,
                    if line.broken { "✗ " } else { "" },
                    Text(&shortened(&line.label)),
                    class = class_of(line),
                ),
            );
        }
    }
}

fn push(svg: &mut String, what: std::fmt::Arguments<'_>) {
    svg.write_fmt(what).expect("writes to memory");
}

fn class_of(line: &Line) -> String {
    let dashes = ["", " d1", " d2", " d3"][(line.colour / (COLOURS / 2)).min(3)];
    let broken = if line.broken { " broken" } else { "" };
    format!("s s{}{dashes}{broken}", line.colour % COLOURS)
}

fn shortened(label: &str) -> String {
    if label.chars().count() <= LABEL_CHARS_MAX {
        return label.to_owned();
    }
    let kept: String = label.chars().take(LABEL_CHARS_MAX - 1).collect();
    format!("{kept}…")
}

fn tick_text(value: f64, axis: &Axis) -> String {
    match axis.spacing {
        Spacing::Percentile => format!("{} %", trimmed(value * 100.0)),
        Spacing::Time => format!("{value:.0}"),
        _ => {
            let text = quantity::compact(value, &axis.unit);
            match text.split_once('.') {
                Some((whole, rest)) => {
                    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
                    let kept = rest[..digits].trim_end_matches('0');
                    let point = if kept.is_empty() { "" } else { "." };
                    format!("{whole}{point}{kept}{}", &rest[digits..])
                }
                None => text,
            }
        }
    }
}

fn trimmed(value: f64) -> String {
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Positions at least a line of text apart, as near to the wanted ones as possible, in the same
/// order.
fn apart(wanted: &[f64], top: f64, bottom: f64) -> Vec<f64> {
    let mut places = wanted.to_vec();
    for index in 1..places.len() {
        places[index] = places[index].max(places[index - 1] + LABEL_HEIGHT);
    }
    let mut limit = bottom;
    for place in places.iter_mut().rev() {
        *place = place.min(limit);
        limit = *place - LABEL_HEIGHT;
    }
    if places.first().is_some_and(|first| *first < top - 6.0) {
        // If they do not fit, they share the height.
        let step = (bottom - top) / (places.len().max(2) - 1) as f64;
        places = (0..places.len()).map(|index| top + step * index as f64).collect();
    }
    places
}

fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    if points.len() <= POINTS_MAX {
        return points.to_vec();
    }
    let width = points.len().div_ceil(POINTS_MAX / 2);
    let mut kept = Vec::new();
    for stretch in points.chunks(width) {
        let by_height = |one: &&(f64, f64), other: &&(f64, f64)| one.1.total_cmp(&other.1);
        let (Some(least), Some(most)) =
            (stretch.iter().min_by(by_height), stretch.iter().max_by(by_height))
        else {
            continue;
        };
        let (first, second) = if least.0 <= most.0 { (least, most) } else { (most, least) };
        kept.push(*first);
        if first != second {
            kept.push(*second);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(lines: Vec<Line>) -> Chart {
        let axis = |label: &str, spacing, unit: &str| Axis {
            label: label.to_owned(),
            spacing,
            unit: unit.to_owned(),
        };
        Chart {
            title: "Rate".to_owned(),
            x: axis("seconds", Spacing::Time, "s"),
            y: axis("messages/s", Spacing::Linear, "messages/s"),
            lines,
            marks: vec![(2.0, "1".to_owned())],
            dots: false,
        }
    }

    fn line(label: &str, colour: usize, points: Vec<(f64, f64)>) -> Line {
        Line { label: label.to_owned(), colour, broken: false, points }
    }

    #[test]
    fn names_are_escaped_and_no_coordinate_is_nan() {
        let points = vec![(0.0, 1.0), (1.0, f64::NAN), (2.0, f64::INFINITY), (3.0, 4.0)];
        let svg = chart(vec![line("<b>\"x\" & 'y'", 0, points)]).draw().expect("draws");
        assert!(!svg.contains("<b>") && svg.contains("&lt;b&gt;&quot;x&quot; &amp; &#39;y&#39;"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }

    #[test]
    fn chart_without_values_is_not_drawn() {
        assert!(chart(vec![]).draw().is_none());
        assert!(chart(vec![line("a", 0, vec![])]).draw().is_none());
        assert!(chart(vec![line("a", 0, vec![(0.0, f64::NAN)])]).draw().is_none());
    }

    #[test]
    fn names_do_not_overlap() {
        let places = apart(&[10.0, 11.0, 12.0, 200.0], 12.0, 206.0);
        for pair in places.windows(2) {
            assert!(pair[1] - pair[0] >= LABEL_HEIGHT - 1e-9, "{places:?}");
        }
        assert!(apart(&[200.0; 16], 12.0, 206.0).iter().all(|place| (0.0..210.0).contains(place)));
    }

    #[test]
    fn time_gap_interrupts_the_line() {
        let points = vec![(0.0, 1.0), (1.0, 1.0), (20.0, 1.0), (21.0, 1.0)];
        let svg = chart(vec![line("a", 0, points)]).draw().expect("draws");
        let path = svg.split("data-l=\"a\" d=\"").nth(1).and_then(|rest| rest.split('"').next());
        assert_eq!(path.expect("a line").matches('M').count(), 2);
    }

    #[test]
    fn thinning_keeps_the_extremes() {
        let mut points: Vec<(f64, f64)> = (0..10_000).map(|x| (f64::from(x), 5.0)).collect();
        points[4321].1 = 99.0;
        points[8765].1 = 0.0;
        let kept = thinned(&points);
        assert!(kept.len() <= POINTS_MAX + 2);
        assert!(kept.contains(&(4321.0, 99.0)) && kept.contains(&(8765.0, 0.0)));
    }

    #[test]
    fn tick_labels_have_no_trailing_zeros() {
        let axis = |unit: &str| Axis {
            label: String::new(),
            spacing: Spacing::Log,
            unit: unit.to_owned(),
        };
        assert_eq!(tick_text(1000.0, &axis("us")), "1 ms");
        assert_eq!(tick_text(2_500_000.0, &axis("messages/s")), "2.5M");
        let percentile = Axis { spacing: Spacing::Percentile, ..axis("share") };
        assert_eq!(tick_text(0.99999, &percentile), "99.999 %");
    }
}
