//! Which feature levels this program supports.

use base::{Level, Levels};

/// The newest level that a debug build acts as if it could.
const NEWEST: &str = "POSTROAD_TEST_LEVEL";

/// What this program can replay and write. A debug build, as tests run it, can be told to act as a version before it, or as
/// the one after it: two nodes of one build are then of two versions.
pub(crate) fn of_program() -> Result<Levels, String> {
    let said = cfg!(debug_assertions).then(|| std::env::var_os(NEWEST)).flatten();
    let Some(said) = said else { return Ok(Levels::OURS) };
    let newest = said.to_str().and_then(|said| said.parse().ok()).map(Level);
    let newest = newest.filter(|newest| *newest >= Levels::OURS.min);
    let max = newest.ok_or_else(|| format!("{NEWEST}: not a feature level"))?;
    Ok(Levels { max, ..Levels::OURS })
}
