//! Destinations of bindings, and a set of them with counts: bindings may differ in arguments that are
//! irrelevant here, and a destination stays until the last of them is removed.

use base::HashMap;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(pub u32);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SinkId(pub u32);

/// Destination of a binding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum BindingTarget {
    Node(NodeId),
    Sink(SinkId),
}

/// Up to this many are searched one by one; more are indexed.
const LISTED_MAX: usize = 32;

#[derive(Clone, Debug, Default)]
pub struct Targets {
    list: Vec<(BindingTarget, u32)>,
    /// Place of each in `list`, once there are many.
    places: Option<Box<HashMap<BindingTarget, usize>>>,
}

impl Targets {
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = BindingTarget> + '_ {
        self.list.iter().map(|(target, _)| *target)
    }

    /// One of them, by its place in an arbitrary order.
    pub fn get(&self, place: usize) -> Option<BindingTarget> {
        self.list.get(place).map(|(target, _)| *target)
    }

    pub fn add(&mut self, target: BindingTarget) {
        if let Some(place) = self.place(target) {
            self.list[place].1 += 1;
            return;
        }
        self.list.push((target, 1));
        match &mut self.places {
            Some(places) => {
                places.insert(target, self.list.len() - 1);
            }
            None if self.list.len() > LISTED_MAX => {
                let places = self.iter().enumerate().map(|(place, target)| (target, place));
                self.places = Some(Box::new(places.collect()));
            }
            None => {}
        }
    }

    /// Returns whether it was present.
    pub fn remove(&mut self, target: BindingTarget) -> bool {
        let Some(place) = self.place(target) else { return false };
        self.list[place].1 -= 1;
        if self.list[place].1 > 0 {
            return true;
        }
        self.list.swap_remove(place);
        if let Some(places) = &mut self.places {
            places.remove(&target);
            if let Some((moved, _)) = self.list.get(place) {
                places.insert(*moved, place);
            }
        }
        if self.list.len() <= LISTED_MAX / 2 {
            self.places = None;
        }
        true
    }

    fn place(&self, target: BindingTarget) -> Option<usize> {
        match &self.places {
            Some(places) => places.get(&target).copied(),
            None => self.list.iter().position(|(listed, _)| *listed == target),
        }
    }
}
