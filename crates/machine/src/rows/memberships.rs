//! The members of groups, stored by their coordinators for the next coordinator to restore. The
//! machine does not read the bytes. They may lag behind the coordinator's state, but are never
//! newer.

use std::sync::Arc;

use crate::limits::MEMBERSHIPS_BYTES_MAX;
use base::SharedMap;
use base::limits::MEMBERSHIP_BYTES_MAX;

use crate::group_name::validate_group_name;

/// Weight of a group besides its name and its bytes.
const GROUP_BYTES: usize = 96;

#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Memberships {
    pub(crate) by_group: SharedMap<Arc<str>, Arc<[u8]>>,
    bytes: usize,
}

fn weight(group: &str, members: &[u8]) -> usize {
    GROUP_BYTES + group.len() + members.len()
}

impl Memberships {
    pub(crate) fn is_empty(&self) -> bool {
        self.by_group.is_empty()
    }

    /// Replaces the bytes of the group. Empty or oversized bytes remove them: the old bytes would
    /// restore members that are gone.
    pub(crate) fn keep(&mut self, group: &str, members: &[u8]) {
        if let Some(former) = self.by_group.remove(group) {
            self.bytes -= weight(group, &former);
        }
        let bytes = self.bytes + weight(group, members);
        if is_sound(group, members) && bytes <= MEMBERSHIPS_BYTES_MAX {
            self.bytes = bytes;
            self.by_group.insert(Arc::from(group), Arc::from(members));
        }
    }
}

/// Whether these bytes may be stored.
pub(crate) fn is_sound(group: &str, members: &[u8]) -> bool {
    validate_group_name(group).is_ok() && (1..=MEMBERSHIP_BYTES_MAX).contains(&members.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(memberships: &Memberships) -> Vec<(&str, &[u8])> {
        memberships.by_group.iter().map(|(group, members)| (&**group, &**members)).collect()
    }

    #[test]
    fn new_members_replace_stored_ones_and_empty_bytes_remove_them() {
        let mut memberships = Memberships::default();
        for (group, members) in [("a", &b"one"[..]), ("b", b"two"), ("a", b"three"), ("c", b"")] {
            memberships.keep(group, members);
        }
        assert_eq!(kept(&memberships), [("a", &b"three"[..]), ("b", b"two")]);
        memberships.keep("a", b"");
        memberships.keep("b", b"");
        memberships.keep("b", b"");
        assert_eq!(memberships, Memberships::default());
    }

    #[test]
    fn oversized_members_are_not_stored_and_remove_stored_ones() {
        let mut memberships = Memberships::default();
        let large = vec![1; MEMBERSHIP_BYTES_MAX];
        memberships.keep("large", &large);
        memberships.keep("large", &[&large[..], &[1]].concat());
        memberships.keep("", b"no name");
        assert_eq!(memberships, Memberships::default());
        let fit = MEMBERSHIPS_BYTES_MAX / MEMBERSHIP_BYTES_MAX - 1;
        for number in 0..fit + 5 {
            memberships.keep(&format!("group {number}"), &large);
        }
        assert_eq!(memberships.by_group.len(), fit);
        memberships.keep("group 0", b"");
        memberships.keep("another", &large);
        assert_eq!(memberships.by_group.len(), fit);
    }
}
