//! Inputs kept in `fuzz/corpus`: frames as clients send them, and inputs that once broke something. Each crate with a
//! fuzz target also runs all of the target's inputs in an ordinary test, so that fixed faults stay fixed without a
//! fuzzer.

use std::fs;
use std::path::{Path, PathBuf};

/// Passes every kept input of a target to `check`.
///
/// # Panics
///
/// If there are no inputs, or if `check` panics; the input is named then.
pub fn each(target: &str, check: impl Fn(&[u8])) {
    let inputs = inputs(target);
    assert!(!inputs.is_empty(), "{target} has no kept inputs");
    for input in inputs {
        let bytes = fs::read(&input).unwrap_or_else(|error| panic!("{}: {error}", input.display()));
        // Only shown if the check fails.
        println!("{}", input.display());
        check(&bytes);
    }
}

fn inputs(target: &str) -> Vec<PathBuf> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let entries =
        fs::read_dir(&corpus).unwrap_or_else(|error| panic!("{}: {error}", corpus.display()));
    let mut inputs: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    inputs.sort();
    inputs
}
