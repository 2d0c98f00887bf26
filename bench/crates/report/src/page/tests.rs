//! The page's structure: required content, and forbidden content.

use results::{Better, Finding, Mark, Run, Step, Verdict};

use super::html;
use crate::chart::COLOURS;
use crate::example;

/// Asserts that all elements are closed, and that nothing is fetched.
fn assert_whole(page: &str) {
    for element in [
        "html", "body", "main", "section", "table", "thead", "tr", "svg", "figure", "details",
        "dl", "ul", "ol", "div", "article",
    ] {
        let (open, close) = (format!("<{element}"), format!("</{element}>"));
        let ends = |rest: &str| rest.starts_with(['>', ' ', '\n']);
        let opened =
            page.match_indices(&open).filter(|(at, _)| ends(&page[at + open.len()..])).count();
        assert_eq!(opened, page.matches(&close).count(), "{element}");
    }
    for foreign in ["http://", "https://", "<link", "src=", "@import", "url("] {
        let body = page.replace("http://www.w3.org/2000/svg", "");
        assert!(!body.contains(foreign), "{foreign}");
    }
    for wrong in ["NaN", ">inf", "Infinity", "\"inf", " inf "] {
        assert!(!page.contains(wrong), "{wrong}");
    }
}

#[test]
fn every_run_is_on_the_page() {
    let runs = example::suite();
    let page = html(&runs);
    assert_whole(&page);
    for run in &runs {
        assert!(page.contains(&run.test.name) && page.contains(&run.system.title));
        assert!(page.contains(&run.system.version) && page.contains(&run.system.client));
        assert!(page.contains("What does the invented <code>mqperf/base</code> ask?"));
    }
    let names: std::collections::BTreeSet<&str> =
        runs.iter().map(|run| run.test.name.as_str()).collect();
    assert_eq!(page.matches("<div class=\"case\" id=\"case-").count(), names.len());
    assert!(page.contains("omb/topics-N") && page.contains("lowlat/N-disk"));
}

#[test]
fn page_without_runs_says_so() {
    let page = html(&[]);
    assert_whole(&page);
    assert!(page.contains("no runs to report on"));
}

#[test]
fn single_run_is_shown_without_a_rank() {
    let page = html(&[example::run("mqperf/base", "alpha")]);
    assert_whole(&page);
    assert!(!page.contains("title=\"best at this tier\"") && !page.contains("class=\"lead-best\""));
}

#[test]
fn run_without_data_is_shown() {
    let mut run = example::run("own/test", "alpha");
    run.measures.clear();
    run.seconds.clear();
    run.latencies.clear();
    run.processes.clear();
    run.system.settings.clear();
    run.test.parameters.clear();
    run.host = results::Host::default();
    let page = html(&[run]);
    assert_whole(&page);
    assert!(page.contains("own/test") && page.contains("not measured"));
}

#[test]
fn twelve_systems_and_twenty_tests_fit() {
    let runs = example::many(20);
    assert_eq!(runs.len(), 240);
    let page = html(&runs);
    assert_whole(&page);
    assert_eq!(page.matches("<div class=\"case\" id=\"case-").count(), 20);
    assert_eq!(page.matches("<article class=\"sheet\">").count(), 12);
    assert!(page.len() < 8 << 20, "{} bytes", page.len());
}

#[test]
fn runs_that_do_not_count_are_struck_with_the_reason() {
    let mut runs = vec![
        example::run("mqperf/base", "alpha"),
        example::run("mqperf/base", "bravo-log"),
        example::run("mqperf/base", "charlie-quorum"),
        example::run("mqperf/base", "delta-stream"),
    ];
    // The fastest system lost messages.
    runs[0].measures = vec![example::measure("received", 9e9, "messages/s", Better::Higher)];
    runs[0].verdict = Verdict::Failed(vec!["7 confirmed messages were never received".to_owned()]);
    runs[1].verdict = Verdict::Interrupted("somebody pressed ^C".to_owned());
    runs[2].remarks.push("client-bound: 61 % of all CPU".to_owned());
    let page = html(&runs);
    assert_whole(&page);
    assert!(page.contains("✗ failed") && page.contains("7 confirmed messages were never received"));
    assert!(page.contains("◌ interrupted") && page.contains("somebody pressed ^C"));
    assert!(page.contains("<s>9.00G</s>") && page.contains("≥ "));
    assert!(
        page.contains("<b>1 result failed</b>") && page.contains("<b>1 result client-bound</b>")
    );
}

#[test]
fn best_is_marked_within_its_tier_only_beyond_noise() {
    let rates = |system: &str, rates: [f64; 3]| {
        rates.map(|rate| {
            let mut run = example::run("mqperf/base", system);
            run.measures = vec![example::measure("received", rate, "messages/s", Better::Higher)];
            run
        })
    };
    // Alpha and bravo-log are T4, foxtrot-streams is T1 and faster than both.
    let fast = rates("foxtrot-streams", [900.0, 901.0, 902.0]);
    let clear = [
        rates("alpha", [100.0, 101.0, 102.0]),
        rates("bravo-log", [50.0, 51.0, 52.0]),
        fast.clone(),
    ]
    .concat();
    let page = html(&clear);
    assert!(page.contains("title=\"best at this tier\""));
    assert!(!page.contains("within noise of another\">"));
    let near =
        [rates("alpha", [100.0, 110.0, 90.0]), rates("bravo-log", [95.0, 105.0, 85.0]), fast]
            .concat();
    let page = html(&near);
    assert!(!page.contains("title=\"best at this tier\""));
    assert!(page.contains("within noise of another\">"));
}

#[test]
fn different_hosts_make_separate_cases() {
    let mut runs =
        vec![example::run("mqperf/base", "alpha"), example::run("mqperf/base", "bravo-log")];
    runs[1].host.cores = 64;
    let page = html(&runs);
    assert!(page.contains("<b>2 hosts</b>") && page.contains("mqperf/base · host 2"));
    assert_eq!(page.matches("<div class=\"case\" id=\"case-").count(), 2);
}

#[test]
fn varied_parameter_makes_cases_and_a_plot() {
    let mut runs = Vec::new();
    for senders in [1, 5, 25] {
        for system in ["alpha", "bravo-log"] {
            let mut run = example::run("own/senders", system);
            run.test.parameters.insert("senders".to_owned(), senders.into());
            // A parameter that differs for each system is not an axis.
            run.test
                .parameters
                .insert("own limit".to_owned(), (senders * 100 + system.len()).into());
            runs.push(run);
        }
    }
    let page = html(&runs);
    assert_whole(&page);
    assert_eq!(page.matches("<div class=\"case\" id=\"case-").count(), 3);
    assert!(page.contains("own/senders · senders 25") && page.contains("received by senders"));
}

const HOSTILE: &str = "</script></style><img onerror='x' title=\"y\">&{}";

fn hostile() -> Run {
    let text = || HOSTILE.to_owned();
    let mut run = example::run(HOSTILE, HOSTILE);
    run.suite = text();
    run.test.form = text();
    run.test.parameters.insert(text(), HOSTILE.into());
    run.system.title = text();
    run.system.version = text();
    run.system.client = text();
    run.system.sent_means = text();
    run.system.settings.insert(text(), text());
    (run.host.cpu, run.host.disk, run.host.kernel, run.host.system) =
        (text(), text(), text(), text());
    run.verdict = Verdict::Failed(vec![text()]);
    run.remarks.push(text());
    run.measures = vec![
        example::measure(HOSTILE, f64::NAN, HOSTILE, Better::Higher),
        example::measure("endless", f64::INFINITY, "", Better::Lower),
    ];
    run.marks.push(Mark { at: 3.0, what: text() });
    run.marks.push(Mark { at: f64::NAN, what: text() });
    let steps = [(1.0, 2.0), (f64::NAN, 1.0), (2.0, f64::INFINITY)];
    run.steps = steps
        .map(|(value, figure)| Step {
            parameter: text(),
            value,
            unit: text(),
            measures: vec![example::measure(HOSTILE, figure, HOSTILE, Better::Lower)],
        })
        .into();
    run.processes.iter_mut().for_each(|process| process.usage[3].cpu = f64::NAN);
    run.audit.fairness_lanes = Some(f64::NAN);
    let finding =
        Finding { kind: text(), sender: 1, sequence: 2, lane: 3, subscription: 4, what: text() };
    run.audit.findings.push(finding);
    run.compatibility.insert(text(), serde_json::json!({ HOSTILE: 1.0 }));
    run
}

#[test]
fn file_text_never_becomes_markup_and_no_nan_is_shown() {
    let page = html(&[hostile(), example::run("mqperf/base", "alpha")]);
    assert_whole(&page);
    assert!(!page.contains("<img") && !page.contains("onerror='"));
    assert_eq!(page.matches("</script>").count(), 1);
    assert_eq!(page.matches("</style>").count(), 1);
}

mod colours {
    //! Lines of one kind of dash must stay apart for the colour-blind too. Simulated after Machado,
    //! Oliveira and Fernandes (2009), compared in OKLab.
    use super::*;

    const STYLE: &str = include_str!("style.css");
    type Three = [f64; 3];
    const VIEWS: [[Three; 3]; 3] = [
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ],
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ],
    ];

    /// The light and the dark palette.
    fn palettes() -> Vec<Vec<Three>> {
        let digits = |from: &str| {
            let part = |at: usize| u8::from_str_radix(&from[at..at + 2], 16).expect("a colour");
            [part(0), part(2), part(4)].map(|part| linear(f64::from(part) / 255.0))
        };
        let set = |text: &str| {
            let colour = |place: usize| {
                let name = format!("--s{place}:#");
                let at = text.find(&name).expect("every colour is set") + name.len();
                digits(&text[at..at + 6])
            };
            (0..COLOURS).map(colour).collect()
        };
        let dark = STYLE.find("prefers-color-scheme:dark").expect("a dark set");
        vec![set(&STYLE[..dark]), set(&STYLE[dark..])]
    }

    fn linear(part: f64) -> f64 {
        if part <= 0.04045 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
    }

    fn product(matrix: &[Three; 3], by: &Three) -> Three {
        matrix.map(|row| row.iter().zip(by).map(|(one, other)| one * other).sum())
    }

    fn oklab(colour: &Three) -> Three {
        let cones = [
            [0.412_221_470_8, 0.536_332_536_3, 0.051_445_992_9],
            [0.211_903_498_2, 0.680_699_545_1, 0.107_396_956_6],
            [0.088_302_461_9, 0.281_718_837_6, 0.629_978_700_5],
        ];
        let lab = [
            [0.210_454_255_3, 0.793_617_785, -0.004_072_046_8],
            [1.977_998_495_1, -2.428_592_205, 0.450_593_709_9],
            [0.025_904_037_1, 0.782_771_766_2, -0.808_675_766],
        ];
        product(&lab, &product(&cones, colour).map(f64::cbrt))
    }

    fn distance(one: &Three, other: &Three) -> f64 {
        let squares = one.iter().zip(other).map(|(one, other)| (one - other).powi(2));
        squares.sum::<f64>().sqrt()
    }

    #[test]
    fn line_colours_are_distinguishable_with_colour_blindness() {
        for palette in palettes() {
            for group in palette.chunks(COLOURS / 2) {
                for view in &VIEWS {
                    let seen: Vec<Three> = group
                        .iter()
                        .map(|colour| {
                            oklab(&product(view, colour).map(|part| part.clamp(0.0, 1.0)))
                        })
                        .collect();
                    for (place, one) in seen.iter().enumerate() {
                        for other in &seen[place + 1..] {
                            assert!(distance(one, other) > 0.08, "colour {place} in {group:?}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn unsupported_test_is_reported_and_never_counts() {
    let ran = example::run("verify/dlq", "alpha");
    let mut other = example::run("verify/dlq", "beta");
    (other.measures, other.seconds) = Default::default();
    other.test.parameters.clear();
    other.verdict = Verdict::NotSupported("it has no dead <letters>".to_owned());
    let page = html(&[ran.clone(), other.clone()]);
    assert_whole(&page);
    assert!(page.contains("title=\"it has no dead &lt;letters&gt;\">n/a</td>"));
    assert!(page.contains("Not supported: <b>beta</b>"));
    let markdown = crate::markdown(&[ran.clone(), other.clone()]);
    assert!(markdown.contains("| beta | | | | | | n/a: it has no dead &lt;letters&gt; |"));
    let comparison = crate::compare(&[ran, other.clone()], &[other]);
    assert_eq!((comparison.pairs.len(), comparison.only_before.len()), (0, 1));
}
