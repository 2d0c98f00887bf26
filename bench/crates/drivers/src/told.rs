//! What a driver tells its client other than by default, in the words of a result.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Duration;

pub(crate) fn told(settings: &[(&str, &dyn Display)]) -> BTreeMap<String, String> {
    settings.iter().map(|(name, value)| ((*name).to_owned(), value.to_string())).collect()
}

/// Whole milliseconds.
pub(crate) fn ms(time: Duration) -> String {
    format!("{} ms", time.as_millis())
}
