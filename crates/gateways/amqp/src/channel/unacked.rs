//! Unacknowledged deliveries of a channel, by delivery tag.
//!
//! Tags only grow, and are mostly acknowledged in order. So a queue with holes serves single acknowledgements by
//! binary search and cumulative ones by draining its front.

use std::collections::VecDeque;

#[derive(Debug)]
pub(crate) struct UnackedDeliveries<T> {
    /// In the order of tags; `None` was acknowledged out of order.
    held: VecDeque<(u64, Option<T>)>,
    count: usize,
}

/// The channel has no such unacknowledged delivery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct UnknownTag(pub(crate) u64);

/// Up to this many holes are not worth a sweep.
const HOLES_MAX: usize = 64;

impl<T> Default for UnackedDeliveries<T> {
    fn default() -> Self {
        Self { held: VecDeque::new(), count: 0 }
    }
}

impl<T> UnackedDeliveries<T> {
    /// `tag` must be greater than all before.
    pub(crate) fn push(&mut self, tag: u64, delivery: T) {
        debug_assert!(self.held.back().is_none_or(|(last, _)| *last < tag), "tags grow");
        self.held.push_back((tag, Some(delivery)));
        self.count += 1;
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.held.iter().filter_map(|(_, delivery)| delivery.as_ref())
    }

    /// Removes the deliveries acknowledged by `tag`: itself, or with `multiple` everything up to it (0: everything).
    pub(crate) fn answer(
        &mut self,
        tag: u64,
        multiple: bool,
        mut each: impl FnMut(u64, T),
    ) -> Result<(), UnknownTag> {
        if multiple && tag == 0 {
            for (tag, delivery) in self.take_all() {
                each(tag, delivery);
            }
            return Ok(());
        }
        let place = self.held.binary_search_by_key(&tag, |(tag, _)| *tag);
        let place = place.ok().filter(|place| self.held[*place].1.is_some());
        let place = place.ok_or(UnknownTag(tag))?;
        if multiple {
            for (tag, delivery) in self.held.drain(..=place) {
                if let Some(delivery) = delivery {
                    self.count -= 1;
                    each(tag, delivery);
                }
            }
        } else if let Some(delivery) = self.held[place].1.take() {
            self.count -= 1;
            each(tag, delivery);
        }
        self.close_holes();
        Ok(())
    }

    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = (u64, T)> + use<T> {
        self.count = 0;
        let all = std::mem::take(&mut self.held);
        all.into_iter().filter_map(|(tag, delivery)| Some((tag, delivery?)))
    }

    /// Restores deliveries whose acknowledgements were rolled back.
    pub(crate) fn put_back(&mut self, deliveries: impl IntoIterator<Item = (u64, T)>) {
        let mut all: Vec<_> = self.take_all().chain(deliveries).collect();
        all.sort_unstable_by_key(|(tag, _)| *tag);
        self.count = all.len();
        self.held = all.into_iter().map(|(tag, delivery)| (tag, Some(delivery))).collect();
    }

    fn close_holes(&mut self) {
        while self.held.front().is_some_and(|(_, delivery)| delivery.is_none()) {
            self.held.pop_front();
        }
        let holes = self.held.len() - self.count;
        if holes > HOLES_MAX && holes > self.count {
            self.held.retain(|(_, delivery)| delivery.is_some());
        }
        if self.held.is_empty() && self.held.capacity() > HOLES_MAX {
            self.held = VecDeque::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Push(u64),
        Answer(u64, bool),
        PutBack,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => (1u64..4).prop_map(Step::Push),
            4 => (0u64..300, any::<bool>()).prop_map(|(tag, multiple)| Step::Answer(tag, multiple)),
            1 => Just(Step::PutBack),
        ];
        proptest::collection::vec(step, 0..300)
    }

    proptest! {
        #[test]
        fn unacked_behaves_like_a_sorted_map(steps in steps()) {
            let (mut unacked, mut model) = (UnackedDeliveries::default(), BTreeMap::new());
            let (mut next, mut answered) = (1, Vec::new());
            for step in steps {
                match step {
                    Step::Push(gap) => {
                        next += gap;
                        unacked.push(next, next * 10);
                        model.insert(next, next * 10);
                    }
                    Step::Answer(tag, multiple) => {
                        let mut got = Vec::new();
                        let result = unacked.answer(tag, multiple, |tag, value| got.push((tag, value)));
                        let expected: Option<Vec<_>> = if multiple && tag == 0 {
                            Some(model.iter().map(|(t, v)| (*t, *v)).collect())
                        } else if !model.contains_key(&tag) {
                            None
                        } else if multiple {
                            Some(model.range(..=tag).map(|(t, v)| (*t, *v)).collect())
                        } else {
                            Some(vec![(tag, model[&tag])])
                        };
                        prop_assert_eq!(result.is_ok(), expected.is_some());
                        prop_assert_eq!(&got, &expected.unwrap_or_default());
                        for (tag, _) in &got {
                            model.remove(tag);
                        }
                        answered = got;
                    }
                    Step::PutBack => {
                        model.extend(answered.iter().copied());
                        unacked.put_back(answered.drain(..));
                    }
                }
                prop_assert_eq!(unacked.count, model.len());
            }
        }
    }
}
