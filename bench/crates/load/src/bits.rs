//! A set of numbers, as one bit each, up to the largest number.

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Bits {
    words: Vec<u64>,
    count: u64,
}

impl Bits {
    /// Returns true if the number is new.
    pub(crate) fn insert(&mut self, number: u64) -> bool {
        let (word, bit) = ((number / 64) as usize, 1 << (number % 64));
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        let new = self.words[word] & bit == 0;
        self.words[word] |= bit;
        self.count += u64::from(new);
        new
    }

    pub(crate) fn contains(&self, number: u64) -> bool {
        self.words.get((number / 64) as usize).is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Numbers in `self` that are not in `other`.
    pub(crate) fn without<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = u64> + 'a {
        self.words.iter().enumerate().flat_map(move |(index, word)| {
            let mut left = word & !other.words.get(index).copied().unwrap_or(0);
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros())?;
                left &= left - 1;
                Some(index as u64 * 64 + u64::from(bit))
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_inserted_number_counts_once() {
        let (mut some, mut other) = (Bits::default(), Bits::default());
        for number in [0, 63, 64, 1_000] {
            assert!(some.insert(number));
            assert!(!some.insert(number));
        }
        other.insert(64);
        assert_eq!((some.count(), some.contains(63), some.contains(62)), (4, true, false));
        assert_eq!(some.without(&other).collect::<Vec<_>>(), [0, 63, 1_000]);
        assert_eq!(other.without(&some).count(), 0);
    }
}
