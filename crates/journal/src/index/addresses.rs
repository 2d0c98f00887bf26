//! Addresses in memory of a segment's batches, by stream.
//!
//! Apply appends to them, and the capture of a snapshot shares them. Full blocks of a stream's list
//! stay shared; only its short rest is copied.

use std::sync::Arc;

use base::SharedMap;

use crate::address::Address;

/// All batches accepted in a segment, by stream. The addresses of a stream ascend.
#[derive(Clone, Debug, Default)]
pub(crate) struct Addresses(SharedMap<u64, Arc<AddressList>>);

impl Addresses {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Appends the stream's next batch. A batch before the known ones restarts the stream, whose
    /// batches had all been removed.
    pub(crate) fn push(&mut self, stream: u64, address: Address) {
        let list = Arc::make_mut(self.0.get_or_insert_with(stream, Arc::default));
        if list.last.last().is_some_and(|last| last.next_offset() > address.base_offset) {
            *list = AddressList::default();
        }
        list.push(address);
    }

    /// A stream's addresses; an empty list for an unknown stream.
    pub(crate) fn of(&self, stream: u64) -> &AddressList {
        const NONE: &AddressList = &AddressList::NONE;
        self.0.get(&stream).map_or(NONE, Arc::as_ref)
    }

    pub(crate) fn remove(&mut self, stream: u64) {
        if self.0.contains_key(&stream) {
            self.0.remove(&stream);
        }
    }

    /// Streams with their addresses, ascending by stream.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &AddressList)> + Clone {
        self.0.iter().map(|(&stream, list)| (stream, &**list))
    }
}

const BLOCK: usize = 128;

/// A stream's addresses: full blocks, and the rest.
#[derive(Clone, Debug, Default)]
pub(crate) struct AddressList {
    full: Vec<Arc<[Address]>>,
    last: Vec<Address>,
}

impl AddressList {
    pub(crate) const NONE: Self = Self { full: Vec::new(), last: Vec::new() };

    pub(crate) fn len(&self) -> usize {
        self.full.len() * BLOCK + self.last.len()
    }

    /// The address at `place`, which is below the length.
    pub(crate) fn get(&self, place: usize) -> &Address {
        match self.full.get(place / BLOCK) {
            Some(block) => &block[place % BLOCK],
            None => &self.last[place - self.full.len() * BLOCK],
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Address> + Clone {
        self.full.iter().flat_map(|block| block.iter()).chain(&self.last)
    }

    pub(crate) fn push(&mut self, address: Address) {
        if self.last.len() == BLOCK {
            self.full.push(Arc::from(&self.last[..]));
            self.last.clear();
        }
        // Most streams of a large topic set have one batch in a segment: reserve no more yet.
        if self.last.is_empty() {
            self.last.reserve_exact(1);
        }
        self.last.push(address);
    }
}

impl FromIterator<Address> for AddressList {
    fn from_iter<I: IntoIterator<Item = Address>>(addresses: I) -> Self {
        let mut list = Self::default();
        addresses.into_iter().for_each(|address| list.push(address));
        list
    }
}

impl FromIterator<(u64, Address)> for Addresses {
    fn from_iter<I: IntoIterator<Item = (u64, Address)>>(batches: I) -> Self {
        let mut addresses = Self::default();
        batches.into_iter().for_each(|(stream, address)| addresses.push(stream, address));
        addresses
    }
}
