//! Times in human notation, the same on the command line and in HTTP.

pub(crate) use operations::time::*;
