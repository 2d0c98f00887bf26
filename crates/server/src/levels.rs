//! Feature levels of this program.

use base::{Level, Levels};

/// The newest level that a debug build pretends to support.
const NEWEST: &str = "POSTROAD_TEST_LEVEL";

/// Levels that this program can replay and write. For tests, a debug build can pretend to be an earlier version, or the
/// next one: two nodes of one build are then of two versions.
pub(crate) fn program_levels() -> Result<Levels, String> {
    let said = cfg!(debug_assertions).then(|| std::env::var_os(NEWEST)).flatten();
    let Some(said) = said else { return Ok(Levels::OURS) };
    let newest = said.to_str().and_then(|said| said.parse().ok()).map(Level);
    let newest = newest.filter(|newest| *newest >= Levels::OURS.min);
    let max = newest.ok_or_else(|| format!("{NEWEST}: not a feature level"))?;
    Ok(Levels { max, ..Levels::OURS })
}
