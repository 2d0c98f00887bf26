//! Matches words as topic exchanges do: `.` separates words, `*` stands for one word, `#` for any
//! number of them, including none.
//!
//! The patterns are one trie, traversed as a nondeterministic automaton: one pass over the key's
//! words with the set of places that match the words so far. A key therefore costs its words times
//! the matching places, never the number of bindings, and patterns with many `#` cost no
//! exponential time, as they do if the trie is searched with backtracking. Words are numbered and
//! edges are one map, so that a pattern's word costs a few bytes and a key's word one hash.

use base::HashMap;

use crate::targets::{BindingTarget, Targets};

const NONE: u32 = u32::MAX;
const ROOT: u32 = 0;

#[derive(Clone, Debug)]
pub struct TopicMatcher {
    places: Vec<TrieNode>,
    free: Vec<u32>,
    /// Keyed by the place and the word's number.
    edges: HashMap<(u32, u32), u32>,
    words: Words,
    /// Destinations, by place.
    ends: HashMap<u32, Targets>,
    /// Number of places reached by a `#`: without any, no two paths lead to one place.
    any_count: usize,
}

/// The current places of a traversal: buffers reused from key to key.
#[derive(Clone, Debug, Default)]
pub struct Frontier {
    here: Vec<u32>,
    next: Vec<u32>,
}

/// A place in the trie: the words on the path from the root.
#[derive(Clone, Copy, Debug)]
struct TrieNode {
    parent: u32,
    step: Step,
    /// Place after `*`.
    one: u32,
    /// Place after `#`.
    any: u32,
    /// Number of places with this one as parent.
    children: u32,
}

/// The edge from a place's parent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Root,
    Word(u32),
    One,
    Any,
}

impl Default for TopicMatcher {
    fn default() -> Self {
        Self {
            places: vec![TrieNode {
                parent: NONE,
                step: Step::Root,
                one: NONE,
                any: NONE,
                children: 0,
            }],
            free: Vec::new(),
            edges: HashMap::default(),
            words: Words::default(),
            ends: HashMap::default(),
            any_count: 0,
        }
    }
}

/// A key's or a pattern's words. An empty one has none.
fn words(key: &str) -> impl Iterator<Item = &str> {
    key.split('.').filter(move |_| !key.is_empty())
}

impl TopicMatcher {
    pub fn add(&mut self, pattern: &str, target: BindingTarget) {
        let mut place = ROOT;
        for word in words(pattern) {
            place = match word {
                // `#.#` is equivalent to `#`.
                "#" if self.places[place as usize].step == Step::Any => place,
                "#" => self.child(place, Step::Any),
                "*" => self.child(place, Step::One),
                word => {
                    let word = self.words.number(word);
                    self.child(place, Step::Word(word))
                }
            };
        }
        self.ends.entry(place).or_default().add(target);
    }

    /// Returns whether it was present.
    pub fn remove(&mut self, pattern: &str, target: BindingTarget) -> bool {
        let Some(place) = self.find(pattern) else { return false };
        let Some(targets) = self.ends.get_mut(&place) else { return false };
        let removed = targets.remove(target);
        if targets.is_empty() {
            self.ends.remove(&place);
            self.prune(place);
        }
        removed
    }

    /// Adds the key's destinations to `found`; some of them repeatedly.
    pub fn route(&self, key: &str, front: &mut Frontier, found: &mut Vec<BindingTarget>) {
        let Frontier { here, next } = front;
        here.clear();
        here.push(ROOT);
        self.pass_empty(here);
        for word in words(key) {
            let word = self.words.find(word);
            next.clear();
            for &place in here.iter() {
                let known = &self.places[place as usize];
                if let Some(child) = word.and_then(|word| self.edges.get(&(place, word))) {
                    next.push(*child);
                }
                if known.one != NONE {
                    next.push(known.one);
                }
                if known.step == Step::Any {
                    next.push(place);
                }
            }
            self.pass_empty(next);
            std::mem::swap(here, next);
            if here.is_empty() {
                return;
            }
        }
        for place in here.iter() {
            if let Some(targets) = self.ends.get(place) {
                found.extend(targets.iter());
            }
        }
    }

    /// Adds the places reached by a `#` without a word, and removes duplicates.
    fn pass_empty(&self, places: &mut Vec<u32>) {
        let mut at = 0;
        while let Some(&place) = places.get(at) {
            let any = self.places[place as usize].any;
            if any != NONE {
                places.push(any);
            }
            at += 1;
        }
        // Only a `#` can lead to one place by two paths.
        if self.any_count > 0 && places.len() > 1 {
            places.sort_unstable();
            places.dedup();
        }
    }

    fn child(&mut self, parent: u32, step: Step) -> u32 {
        let known = self.next(parent, step);
        if known != NONE {
            return known;
        }
        let place = TrieNode { parent, step, one: NONE, any: NONE, children: 0 };
        let child = match self.free.pop() {
            Some(free) => {
                self.places[free as usize] = place;
                free
            }
            None => {
                self.places.push(place);
                (self.places.len() - 1) as u32
            }
        };
        self.places[parent as usize].children += 1;
        self.lead(parent, step, child);
        child
    }

    fn next(&self, place: u32, step: Step) -> u32 {
        match step {
            Step::Root => NONE,
            Step::One => self.places[place as usize].one,
            Step::Any => self.places[place as usize].any,
            Step::Word(word) => self.edges.get(&(place, word)).copied().unwrap_or(NONE),
        }
    }

    fn lead(&mut self, parent: u32, step: Step, child: u32) {
        match step {
            Step::Root => {}
            Step::One => self.places[parent as usize].one = child,
            Step::Any => {
                self.places[parent as usize].any = child;
                self.any_count += 1;
            }
            Step::Word(word) => {
                self.edges.insert((parent, word), child);
                self.words.hold(word);
            }
        }
    }

    fn find(&self, pattern: &str) -> Option<u32> {
        let mut place = ROOT;
        for word in words(pattern) {
            let step = match word {
                "#" if self.places[place as usize].step == Step::Any => continue,
                "#" => Step::Any,
                "*" => Step::One,
                word => Step::Word(self.words.find(word)?),
            };
            place = self.next(place, step);
            if place == NONE {
                return None;
            }
        }
        Some(place)
    }

    /// Removes places without destinations below them.
    fn prune(&mut self, mut place: u32) {
        while place != ROOT && !self.ends.contains_key(&place) {
            let TrieNode { parent, step, children, .. } = self.places[place as usize];
            if children > 0 {
                return;
            }
            match step {
                Step::Root => {}
                Step::One => self.places[parent as usize].one = NONE,
                Step::Any => {
                    self.places[parent as usize].any = NONE;
                    self.any_count -= 1;
                }
                Step::Word(word) => {
                    self.edges.remove(&(parent, word));
                    self.words.release(word);
                }
            }
            self.places[parent as usize].children -= 1;
            self.free.push(place);
            place = parent;
        }
    }
}

/// Words by number, each kept as long as an edge uses it.
#[derive(Clone, Debug, Default)]
struct Words {
    numbers: HashMap<Box<str>, u32>,
    known: Vec<(Box<str>, u32)>,
    free: Vec<u32>,
}

impl Words {
    fn find(&self, word: &str) -> Option<u32> {
        self.numbers.get(word).copied()
    }

    fn number(&mut self, word: &str) -> u32 {
        if let Some(number) = self.find(word) {
            return number;
        }
        let entry = (Box::from(word), 0);
        let number = match self.free.pop() {
            Some(free) => {
                self.known[free as usize] = entry;
                free
            }
            None => {
                self.known.push(entry);
                (self.known.len() - 1) as u32
            }
        };
        self.numbers.insert(Box::from(word), number);
        number
    }

    fn hold(&mut self, word: u32) {
        self.known[word as usize].1 += 1;
    }

    fn release(&mut self, word: u32) {
        let (text, count) = &mut self.known[word as usize];
        *count -= 1;
        if *count == 0 {
            self.numbers.remove(text);
            *text = Box::default();
            self.free.push(word);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::targets::SinkId;

    fn sink(number: u32) -> BindingTarget {
        BindingTarget::Sink(SinkId(number))
    }

    fn matches(pattern: &str, key: &str) -> bool {
        let mut matcher = TopicMatcher::default();
        matcher.add(pattern, sink(0));
        let mut found = Vec::new();
        matcher.route(key, &mut Frontier::default(), &mut found);
        !found.is_empty()
    }

    #[test]
    fn a_star_is_one_word_and_a_hash_any_number() {
        for (pattern, key) in [
            ("a.b", "a.b"),
            ("*.b", "a.b"),
            ("a.*", "a."),
            ("#", ""),
            ("#", "a.b.c"),
            ("a.#", "a"),
            ("a.#", "a.b.c"),
            ("#.c", "a.b.c"),
            ("#.c", "c"),
            ("a.#.c", "a.c"),
            ("a.#.c", "a.c.c"),
            ("#.b.#", "a.b.c"),
            ("#.#.a", "a"),
            ("*.#", "a"),
            ("", ""),
            (".", "."),
            ("*.*", "."),
        ] {
            assert!(matches(pattern, key), "{pattern:?} {key:?}");
        }
        for (pattern, key) in [
            ("a.b", "a"),
            ("*", ""),
            ("*", "a.b"),
            ("a.*", "a"),
            ("a.*.c", "a.c"),
            ("#.c", "a.b"),
            ("*.#", ""),
            ("", "a"),
            ("a", ""),
            ("a.#.c", "a"),
            ("A", "a"),
        ] {
            assert!(!matches(pattern, key), "{pattern:?} {key:?}");
        }
    }

    #[test]
    fn removed_patterns_leave_nothing_behind() {
        let mut matcher = TopicMatcher::default();
        for pattern in ["a.b.c", "a.b", "a.*.#.d", "#", "", "a.b.c.#.#"] {
            matcher.add(pattern, sink(1));
            matcher.add(pattern, sink(1));
            matcher.add(pattern, sink(2));
        }
        for pattern in ["", "a.b", "#", "a.b.c.#", "a.*.#.d", "a.b.c"] {
            assert!(matcher.remove(pattern, sink(1)));
            assert!(matcher.remove(pattern, sink(1)));
            assert!(!matcher.remove(pattern, sink(1)), "{pattern}");
            assert!(matcher.remove(pattern, sink(2)));
        }
        assert!(matcher.edges.is_empty() && matcher.ends.is_empty());
        assert!(matcher.words.numbers.is_empty());
        assert_eq!(matcher.places.len() - matcher.free.len(), 1);
        assert_eq!(matcher.any_count, 0);
    }

    #[test]
    #[expect(clippy::disallowed_types, reason = "it measures the time of this machine")]
    fn pattern_with_many_hashes_is_matched_in_bounded_time() {
        let mut matcher = TopicMatcher::default();
        matcher.add(&"#.a.".repeat(60), sink(0));
        let mut found = Vec::new();
        let started = std::time::Instant::now();
        matcher.route(&vec!["a"; 128].join("."), &mut Frontier::default(), &mut found);
        // Backtracking would not end in the lifetime of the machine.
        assert!(started.elapsed() < std::time::Duration::from_secs(5));
        assert!(found.is_empty());
    }
}
