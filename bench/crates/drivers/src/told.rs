//! A driver's settings that differ from the client's defaults, as shown in a result.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Duration;

pub(crate) fn named_values(settings: &[(&str, &dyn Display)]) -> BTreeMap<String, String> {
    settings.iter().map(|(name, value)| ((*name).to_owned(), value.to_string())).collect()
}

/// Whole milliseconds.
pub(crate) fn ms(time: Duration) -> String {
    format!("{} ms", time.as_millis())
}
