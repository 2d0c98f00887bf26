//! Common parts of the servers that run on Java.

use std::collections::BTreeMap;

use crate::install::java;
use crate::launch::Launch;
use crate::plan::Site;
use crate::ready::Ready;

/// All Java brokers get the same heap.
pub(super) const HEAP: [&str; 2] = ["-Xms1g", "-Xmx1g"];

pub(super) fn launch(site: &Site, node: u32, ready: Ready) -> Launch {
    Launch::new(site, node, java(), ready)
}

/// Settings as shown in a result.
pub(super) fn settings() -> BTreeMap<String, String> {
    BTreeMap::from([("jvm".to_owned(), HEAP.join(" "))])
}
