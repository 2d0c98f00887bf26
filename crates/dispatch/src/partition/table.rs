//! The partitions of an engine by number: those of a topic in one shard.

use std::ops::{Index, IndexMut};

use base::Stripe;

use super::Partition;

/// Dense, whatever the numbers are.
#[derive(Debug)]
pub(crate) struct Table {
    stripe: Stripe,
    rows: Vec<Partition>,
}

impl Table {
    pub(crate) fn new(stripe: Stripe) -> Self {
        Self { stripe, rows: Vec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// All numbers, ascending.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u32> + use<> {
        let stripe = self.stripe;
        (0..self.rows.len()).map(move |row| stripe.partition(row))
    }

    /// Partitions by number, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Partition> {
        self.rows.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Partition> {
        self.rows.iter_mut()
    }

    /// `None` if the engine has no such partition.
    pub(crate) fn get(&self, partition: u32) -> Option<&Partition> {
        self.rows.get(self.stripe.row(partition)?)
    }

    pub(crate) fn get_mut(&mut self, partition: u32) -> Option<&mut Partition> {
        self.rows.get_mut(self.stripe.row(partition)?)
    }

    pub(crate) fn has(&self, partition: u32) -> bool {
        self.get(partition).is_some()
    }

    /// Adds a partition after the last; returns its number.
    pub(crate) fn push(&mut self, partition: Partition) -> u32 {
        self.rows.push(partition);
        self.stripe.partition(self.rows.len() - 1)
    }
}

/// For partitions that the engine has.
impl Index<u32> for Table {
    type Output = Partition;

    fn index(&self, partition: u32) -> &Partition {
        &self.rows[self.stripe.row_of_own(partition)]
    }
}

impl IndexMut<u32> for Table {
    fn index_mut(&mut self, partition: u32) -> &mut Partition {
        &mut self.rows[self.stripe.row_of_own(partition)]
    }
}
