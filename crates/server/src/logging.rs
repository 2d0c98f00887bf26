//! Log output and its format. The log goes to standard error: standard output belongs to results of commands.
//!
//! Clients choose the names of their groups, members, connections and virtual hosts, and the texts of their rejections.
//! All fields are escaped here, so that no client can add lines to the log or send control sequences to a terminal.

use std::error::Error;
use std::fmt::{self, Write as _};

use clap::ValueEnum;
use cli::printable::Escaping;
use serde::Deserialize;
use tracing::field::{Field, Visit};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::Writer;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// Lines for people.
    #[default]
    Human,
    /// An object a line, for machines.
    Json,
}

/// `filter` is a level (`info`) or directives by module (`info,gateway_kafka=debug`).
pub(crate) fn start(filter: &str, format: LogFormat) -> Result<(), String> {
    let filter = EnvFilter::try_new(filter).map_err(|error| {
        format!("the log filter {filter:?} is not one: {error}; try `info` or `info,broker=debug`")
    })?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Human => {
            let colour = std::io::IsTerminal::is_terminal(&std::io::stderr());
            builder.with_ansi(colour).with_target(false).fmt_fields(EscapedFields).init();
        }
        LogFormat::Json => builder.json().init(),
    }
    Ok(())
}

/// The message and `name=value` of each field, on one line of printable text.
#[derive(Debug)]
struct EscapedFields;

impl<'w> FormatFields<'w> for EscapedFields {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'w>, fields: R) -> fmt::Result {
        let mut line = LineFields { writer, is_empty: true, result: Ok(()) };
        fields.record(&mut line);
        line.result
    }
}

struct LineFields<'w> {
    writer: Writer<'w>,
    is_empty: bool,
    result: fmt::Result,
}

impl LineFields<'_> {
    fn put(&mut self, field: &Field, value: fmt::Arguments<'_>) {
        if self.result.is_ok() {
            self.result = self.try_put(field, value);
        }
    }

    fn try_put(&mut self, field: &Field, value: fmt::Arguments<'_>) -> fmt::Result {
        if !std::mem::take(&mut self.is_empty) {
            self.writer.write_char(' ')?;
        }
        let name = field.name();
        if name != "message" {
            let name = name.strip_prefix("r#").unwrap_or(name);
            match self.writer.has_ansi_escapes() {
                true => write!(self.writer, "\x1b[3m{name}\x1b[0m\x1b[2m=\x1b[0m")?,
                false => write!(self.writer, "{name}=")?,
            }
        }
        Escaping(&mut self.writer).write_fmt(value)
    }
}

impl Visit for LineFields<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.put(field, format_args!("{value}")),
            _ => self.put(field, format_args!("{value:?}")),
        }
    }

    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.put(field, format_args!("{value}"));
        let mut source = value.source();
        while let Some(cause) = source {
            if self.result.is_ok() {
                self.result = write!(Escaping(&mut self.writer), ": {cause}");
            }
            source = cause.source();
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format_args!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex, PoisonError};

    use tracing_subscriber::fmt::MakeWriter;

    use super::*;

    #[derive(Clone, Default)]
    struct CapturedLog(Arc<Mutex<Vec<u8>>>);

    impl io::Write for CapturedLog {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl<'a> MakeWriter<'a> for CapturedLog {
        type Writer = Self;

        fn make_writer(&'a self) -> Self {
            self.clone()
        }
    }

    fn logged(log: impl FnOnce()) -> String {
        let written = CapturedLog::default();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(written.clone())
            .with_ansi(false)
            .with_target(false)
            .without_time()
            .fmt_fields(EscapedFields)
            .finish();
        tracing::subscriber::with_default(subscriber, log);
        let bytes = written.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        String::from_utf8(bytes).expect("text")
    }

    const FORGED: &str = "g\x1b[31m\n2026-11-28T00:00:00Z  INFO fake\u{202e}";

    #[test]
    fn client_text_adds_no_line_and_no_escape_sequence_to_the_log() {
        let error = io::Error::other(FORGED);
        let lines = [
            logged(|| tracing::info!(group = %FORGED, "members left")),
            logged(|| tracing::info!(group = FORGED, "members left")),
            logged(|| tracing::info!(group = ?FORGED, "members left")),
            logged(|| tracing::info!("the group {FORGED} is gone")),
            logged(|| tracing::warn!(%error, "connection closed")),
            logged(|| tracing::warn!(error = &error as &dyn Error, "connection closed")),
            logged(|| {
                tracing::info_span!("span", group = %FORGED).in_scope(|| tracing::info!("x"))
            }),
        ];
        for line in lines {
            assert_eq!(line.matches('\n').count(), 1, "{line:?}");
            assert!(line.ends_with('\n') && line.contains("fake"), "{line:?}");
            assert!(!line.trim_end().chars().any(char::is_control), "{line:?}");
            assert!(!line.contains('\u{202e}'), "{line:?}");
        }
    }

    #[test]
    fn line_for_people_has_the_message_before_its_fields() {
        let line = logged(|| tracing::info!(group = %"g", count = 3, reason = "left", "ready"));
        assert_eq!(line.trim(), "INFO ready group=g count=3 reason=\"left\"");
    }
}
