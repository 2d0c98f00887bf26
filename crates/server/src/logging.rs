//! Where the log goes, and in which form. It goes to standard error: standard output belongs to
//! what was asked for.

use clap::ValueEnum;
use serde::Deserialize;
use tracing_subscriber::EnvFilter;

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
            builder.with_ansi(colour).with_target(false).init();
        }
        LogFormat::Json => builder.json().init(),
    }
    Ok(())
}
