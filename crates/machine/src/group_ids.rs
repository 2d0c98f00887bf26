//! The ids of a topic's lease groups. Most topics have one, and then nothing is allocated.

use base::LeaseGroupId;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum GroupIds {
    One(LeaseGroupId),
    Many(Box<[LeaseGroupId]>),
}

// Every queue has one.
const _: () = assert!(size_of::<GroupIds>() <= 16);

impl Default for GroupIds {
    fn default() -> Self {
        Self::Many(Box::default())
    }
}

impl From<Vec<LeaseGroupId>> for GroupIds {
    fn from(ids: Vec<LeaseGroupId>) -> Self {
        match ids[..] {
            [only] => Self::One(only),
            _ => Self::Many(ids.into()),
        }
    }
}

impl GroupIds {
    pub(crate) fn as_slice(&self) -> &[LeaseGroupId] {
        match self {
            Self::One(id) => std::slice::from_ref(id),
            Self::Many(ids) => ids,
        }
    }

    pub(crate) fn insert(&mut self, at: usize, id: LeaseGroupId) {
        let mut ids = self.as_slice().to_vec();
        ids.insert(at, id);
        *self = ids.into();
    }

    pub(crate) fn remove(&mut self, id: LeaseGroupId) {
        let left = self.as_slice().iter().copied().filter(|held| *held != id);
        *self = left.collect::<Vec<_>>().into();
    }
}
