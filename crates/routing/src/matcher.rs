//! The kinds of nodes, behind one type.

use base::HashMap;

use crate::consistent::{ConsistentMatcher, HashOn};
use crate::headers::{HeaderPattern, HeadersMatcher};
use crate::message::{Headers, Message};
use crate::random::RandomMatcher;
use crate::targets::{BindingTarget, Targets};
use crate::topic::{Frontier, TopicMatcher};
use crate::upstream::Downstream;

/// The matching rule of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The key equals the binding's.
    Direct,
    /// Every binding.
    Fanout,
    /// The key's words match the binding's, with `*` and `#`.
    Topic,
    Headers,
    /// One binding, by a hash.
    Consistent(HashOn),
    /// One binding for each message, regardless of its key: each in turn, in an unpredictable
    /// order.
    Random,
    /// Every binding, for messages that may be forwarded to this broker.
    Upstream(Downstream),
    /// The sink whose name is the key. Has no bindings.
    Names,
}

/// Arguments of a binding besides its destination. Each kind uses its own.
#[derive(Clone, Copy, Debug)]
pub enum Arguments<'a> {
    Key(&'a str),
    Headers(&'a HeaderPattern),
    Weight(u32),
}

#[derive(Clone, Debug)]
pub enum Matcher {
    Direct(HashMap<Box<str>, Targets>),
    Fanout(Targets),
    Topic(Box<TopicMatcher>),
    Headers(Box<HeadersMatcher>),
    Consistent(ConsistentMatcher),
    Random(RandomMatcher),
    Upstream(Downstream, Targets),
    Names,
}

impl Matcher {
    pub fn new(kind: &Kind) -> Self {
        match kind {
            Kind::Direct => Self::Direct(HashMap::default()),
            Kind::Fanout => Self::Fanout(Targets::default()),
            Kind::Topic => Self::Topic(Box::default()),
            Kind::Headers => Self::Headers(Box::default()),
            Kind::Consistent(on) => Self::Consistent(ConsistentMatcher::new(on.clone())),
            Kind::Random => Self::Random(RandomMatcher::default()),
            Kind::Upstream(downstream) => Self::Upstream(downstream.clone(), Targets::default()),
            Kind::Names => Self::Names,
        }
    }

    /// Adds a binding. One with arguments of another kind never matches, and is not added.
    pub fn add(&mut self, arguments: Arguments<'_>, target: BindingTarget) {
        match (self, arguments) {
            (Self::Direct(keys), Arguments::Key(key)) => {
                keys.entry_ref(key).or_default().add(target);
            }
            (Self::Fanout(targets) | Self::Upstream(_, targets), _) => targets.add(target),
            (Self::Topic(topic), Arguments::Key(key)) => topic.add(key, target),
            (Self::Headers(headers), Arguments::Headers(pattern)) => {
                headers.add(pattern.clone(), target);
            }
            (Self::Consistent(ring), Arguments::Weight(weight)) => ring.add(weight, target),
            (Self::Random(random), _) => random.targets.add(target),
            _ => {}
        }
    }

    /// Returns whether it was present.
    pub fn remove(&mut self, arguments: Arguments<'_>, target: BindingTarget) -> bool {
        match (self, arguments) {
            (Self::Direct(keys), Arguments::Key(key)) => {
                let Some(targets) = keys.get_mut(key) else { return false };
                let removed = targets.remove(target);
                if targets.is_empty() {
                    keys.remove(key);
                }
                removed
            }
            (Self::Fanout(targets) | Self::Upstream(_, targets), _) => targets.remove(target),
            (Self::Topic(topic), Arguments::Key(key)) => topic.remove(key, target),
            (Self::Headers(headers), Arguments::Headers(pattern)) => {
                headers.remove(pattern, target)
            }
            (Self::Consistent(ring), Arguments::Weight(weight)) => ring.remove(weight, target),
            (Self::Random(random), _) => random.targets.remove(target),
            _ => false,
        }
    }

    /// Adds the message's destinations to `found`. Returns whether some may be duplicates.
    pub(crate) fn route<H: Headers + ?Sized>(
        &self,
        message: &Message<'_, H>,
        front: &mut Frontier,
        found: &mut Vec<BindingTarget>,
    ) -> bool {
        match self {
            Self::Direct(keys) => {
                for key in message.keys {
                    if let Some(targets) = keys.get(*key) {
                        found.extend(targets.iter());
                    }
                }
                message.keys.len() > 1
            }
            Self::Fanout(targets) => {
                found.extend(targets.iter());
                false
            }
            Self::Topic(topic) => {
                for key in message.keys {
                    topic.route(key, front, found);
                }
                true
            }
            Self::Headers(headers) => {
                headers.route(message.headers, found);
                true
            }
            Self::Consistent(ring) => {
                found.extend(ring.route(message));
                false
            }
            Self::Random(random) => {
                found.extend(random.choose());
                false
            }
            Self::Upstream(downstream, targets) => {
                if downstream.takes(message.headers) {
                    found.extend(targets.iter());
                }
                false
            }
            // The network has the names.
            Self::Names => message.keys.len() > 1,
        }
    }
}
