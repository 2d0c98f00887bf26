//! The two text formats of metrics, selected by `Accept`: OpenMetrics for clients that prefer it, else Prometheus'
//! text format 0.0.4, which every scraper reads.

use std::fmt::Write;

use axum::http::HeaderMap;
use axum::http::header::ACCEPT;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Format {
    Text,
    OpenMetrics,
}

const OPEN_METRICS: &str = "application/openmetrics-text";
/// Media ranges that include the text format.
const TEXT: [&str; 3] = ["text/plain", "text/*", "*/*"];

impl Format {
    pub(crate) const fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// The format that the client prefers. A client that accepts neither gets text.
    pub(crate) fn accepted(headers: &HeaderMap) -> Self {
        let (mut open_metrics, mut text) = (0.0_f32, 0.0_f32);
        let values = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
        for range in values.flat_map(|value| value.split(',')) {
            let mut parts = range.split(';').map(str::trim);
            let name = parts.next().unwrap_or_default().to_ascii_lowercase();
            let quality = parts.find_map(|part| part.strip_prefix("q=")).map(str::parse);
            let quality = quality.map_or(1.0, |quality| quality.unwrap_or(0.0));
            if name == OPEN_METRICS {
                open_metrics = open_metrics.max(quality);
            } else if TEXT.contains(&&*name) {
                text = text.max(quality);
            }
        }
        match open_metrics > 0.0 && open_metrics >= text {
            true => Self::OpenMetrics,
            false => Self::Text,
        }
    }

    /// Converts OpenMetrics text.
    pub(crate) fn convert(self, text: String) -> String {
        match self {
            Self::OpenMetrics => text,
            Self::Text => to_text(&text),
        }
    }
}

/// In the text format a family has the name of its series, and there are fewer types.
fn to_text(open_metrics: &str) -> String {
    let mut out = String::with_capacity(open_metrics.len());
    let mut help = None;
    for line in open_metrics.lines() {
        let Some(comment) = line.strip_prefix("# ") else {
            let _ = writeln!(out, "{line}");
            continue;
        };
        let mut words = comment.splitn(3, ' ');
        match (words.next(), words.next(), words.next()) {
            (Some("HELP"), Some(name), Some(text)) => help = Some((name, text)),
            (Some("TYPE"), Some(name), Some(kind)) => {
                let (suffix, kind) = match kind {
                    "counter" => ("_total", "counter"),
                    "info" => ("_info", "gauge"),
                    "stateset" => ("", "gauge"),
                    "unknown" => ("", "untyped"),
                    kind => ("", kind),
                };
                if let Some((_, text)) = help.take().filter(|(of, _)| *of == name) {
                    let _ = writeln!(out, "# HELP {name}{suffix} {text}");
                }
                let _ = writeln!(out, "# TYPE {name}{suffix} {kind}");
            }
            // Units, and the end.
            _ => {}
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepted(accept: &str) -> Format {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, accept.parse().expect("a value"));
        Format::accepted(&headers)
    }

    #[test]
    fn open_metrics_is_sent_to_clients_that_prefer_it() {
        assert_eq!(Format::accepted(&HeaderMap::new()), Format::Text);
        for accept in
            ["*/*", "text/plain;version=0.0.4", "application/json", "", "text/html,*/*;q=0.8"]
        {
            assert_eq!(accepted(accept), Format::Text, "{accept}");
        }
        for accept in [
            "application/openmetrics-text",
            "application/openmetrics-text; version=1.0.0",
            "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
        ] {
            assert_eq!(accepted(accept), Format::OpenMetrics, "{accept}");
        }
        assert_eq!(accepted("application/openmetrics-text;q=0.1,text/plain;q=0.9"), Format::Text);
        assert_eq!(accepted("application/openmetrics-text;q=0"), Format::Text);
    }

    #[test]
    fn families_have_the_names_and_types_of_the_text_format() {
        let open_metrics = "# HELP p_build What it is.\n# TYPE p_build info\np_build_info{version=\"1\"} 1\n\
            # HELP p_bytes Bytes.\n# TYPE p_bytes counter\n# UNIT p_bytes bytes\np_bytes_total 3\n\
            # HELP p_seconds Time.\n# TYPE p_seconds histogram\np_seconds_bucket{le=\"+Inf\"} 1\np_seconds_sum 1.0\np_seconds_count 1\n\
            # EOF\n";
        let text = "# HELP p_build_info What it is.\n# TYPE p_build_info gauge\np_build_info{version=\"1\"} 1\n\
            # HELP p_bytes_total Bytes.\n# TYPE p_bytes_total counter\np_bytes_total 3\n\
            # HELP p_seconds Time.\n# TYPE p_seconds histogram\np_seconds_bucket{le=\"+Inf\"} 1\np_seconds_sum 1.0\np_seconds_count 1\n";
        assert_eq!(Format::Text.convert(open_metrics.to_owned()), text);
        assert_eq!(Format::OpenMetrics.convert(open_metrics.to_owned()), open_metrics);
    }
}
