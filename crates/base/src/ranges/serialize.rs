//! The form of a set in snapshots.

use std::fmt;

use serde::de::{Error, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::OffsetRanges;
use crate::Offset;

/// As a map of begins and ends, so that the form does not depend on the cells.
impl Serialize for OffsetRanges {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.len()))?;
        for (begin, end) in self.iter() {
            map.serialize_entry(&begin, &end)?;
        }
        map.end()
    }
}

/// Validates the ranges: they must ascend, and none may be empty or touch the next.
impl<'de> Deserialize<'de> for OffsetRanges {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;

        impl<'de> Visitor<'de> for Pairs {
            type Value = OffsetRanges;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("ranges that ascend and do not touch")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<OffsetRanges, A::Error> {
                let mut set = OffsetRanges::new();
                let mut reached = None;
                while let Some((begin, end)) = map.next_entry::<Offset, Offset>()? {
                    if begin >= end || reached.is_some_and(|reached| begin <= reached) {
                        return Err(A::Error::custom("ranges of offsets that are none, or touch"));
                    }
                    set.insert(begin, end);
                    reached = Some(end);
                }
                Ok(set)
            }
        }

        deserializer.deserialize_map(Pairs)
    }
}
