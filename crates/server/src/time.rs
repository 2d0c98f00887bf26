//! Times as people write and read them: the same on the command line and by HTTP.

pub(crate) use operations::time::*;
