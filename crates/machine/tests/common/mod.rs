//! Shared by the tests of random histories.

/// Number of random histories of a test: `HISTORIES=100000 cargo test --release -p machine` runs
/// more.
pub(crate) fn histories() -> u32 {
    std::env::var("HISTORIES").ok().and_then(|count| count.parse().ok()).unwrap_or(500)
}
