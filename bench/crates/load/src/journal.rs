//! Events at an agent, for the account of the whole load.
//!
//! It is a list between two looks of the coordinator, and bytes on the network: numbers as LEB128,
//! times as differences, about fifteen bytes for a received message.

use std::collections::VecDeque;

use parking_lot::Mutex;

use crate::clock::Clock;
use crate::ledger::Arrival;
use crate::payload::{Damage, Stamp};

/// Limit of events between two looks. Beyond it the load is abandoned to save memory.
const EVENTS_MAX: usize = 8_000_000;
/// Events in one reply.
const EVENTS_AT_ONCE: usize = 500_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Event {
    /// By the coordinator's clock.
    pub(crate) at_ns: u64,
    pub(crate) what: What,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum What {
    /// A range of a sender's messages is confirmed.
    Confirmed {
        sender: u16,
        first: u64,
        count: u64,
    },
    Came {
        subscription: u32,
        stamp: Result<Stamp, Damage>,
        redelivered: Option<bool>,
    },
    Settled {
        subscription: u32,
        stamp: Stamp,
    },
    /// A dead letter was received.
    Buried {
        stamp: Result<Stamp, Damage>,
    },
    /// Unmarked redeliveries are allowed from here on.
    Disturbed,
}

impl What {
    pub(crate) fn confirmed(sender: u16, sequence: u64) -> Self {
        Self::Confirmed { sender, first: sequence, count: 1 }
    }

    pub(crate) fn came(subscription: u32, (stamp, redelivered): Arrival) -> Self {
        Self::Came { subscription, stamp, redelivered }
    }

    /// Merges the next event into this one, if it confirms the next message of the same sender.
    fn join(&mut self, next: Self) -> bool {
        match (self, next) {
            (
                Self::Confirmed { sender, first, count },
                Self::Confirmed { sender: same, first: behind, count: more },
            ) if *sender == same && *first + *count == behind => {
                *count += more;
                true
            }
            _ => false,
        }
    }
}

/// The journal was full and events were dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("nobody asked for too long what happened")]
pub struct Overflow;

/// Events taken out of a journal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Taken {
    pub(crate) events: VecDeque<Event>,
    /// No older event will follow.
    pub(crate) until_ns: u64,
    /// The journal holds further events.
    pub(crate) more: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Journal {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    events: VecDeque<Event>,
    latest_ns: u64,
    overflowed: bool,
}

impl Journal {
    pub(crate) fn push(&self, at_ns: u64, all: impl IntoIterator<Item = What>) {
        let mut state = self.state.lock();
        // Tasks read the clock before they lock the journal, so that two may arrive swapped.
        let at_ns = at_ns.max(state.latest_ns);
        state.latest_ns = at_ns;
        for what in all {
            if state.events.back_mut().is_some_and(|last| last.what.join(what)) {
                continue;
            }
            if state.events.len() < EVENTS_MAX {
                state.events.push_back(Event { at_ns, what });
            } else {
                state.overflowed = true;
            }
        }
    }

    /// Takes the oldest events, as many as fit into one reply.
    pub(crate) fn take(&self, clock: Clock) -> Result<Taken, Overflow> {
        let mut state = self.state.lock();
        if state.overflowed {
            return Err(Overflow);
        }
        let more = state.events.len() > EVENTS_AT_ONCE;
        let events: VecDeque<Event> = match more {
            true => state.events.drain(..EVENTS_AT_ONCE).collect(),
            false => std::mem::take(&mut state.events),
        };
        if !more {
            state.latest_ns = state.latest_ns.max(clock.now_ns());
        }
        let until_ns = events.back().filter(|_| more).map_or(state.latest_ns, |last| last.at_ns);
        Ok(Taken { events, until_ns, more })
    }
}

// ------------------------------------------------------------------------------------ as bytes

/// Tag of each event.
mod kind {
    pub(super) const CONFIRMED: u64 = 0;
    pub(super) const SETTLED: u64 = 1;
    pub(super) const DISTURBED: u64 = 2;
    pub(super) const FOREIGN: u64 = 3;
    pub(super) const CHANGED: u64 = 4;
    /// The system has no redelivery mark.
    pub(super) const CAME: u64 = 5;
    pub(super) const CAME_UNMARKED: u64 = 6;
    pub(super) const CAME_MARKED: u64 = 7;
    pub(super) const BURIED: u64 = 8;
    pub(super) const BURIED_FOREIGN: u64 = 9;
    pub(super) const BURIED_CHANGED: u64 = 10;
}

/// The bytes do not decode to events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Malformed;

pub(crate) fn encode(events: impl IntoIterator<Item = Event>) -> Vec<u8> {
    let mut out = Vec::new();
    let mut before = 0;
    for Event { at_ns, what } in events {
        let kind = match what {
            What::Confirmed { .. } => kind::CONFIRMED,
            What::Settled { .. } => kind::SETTLED,
            What::Disturbed => kind::DISTURBED,
            What::Buried { stamp: Ok(_) } => kind::BURIED,
            What::Buried { stamp: Err(Damage::Foreign) } => kind::BURIED_FOREIGN,
            What::Buried { stamp: Err(Damage::Changed) } => kind::BURIED_CHANGED,
            What::Came { stamp: Err(Damage::Foreign), .. } => kind::FOREIGN,
            What::Came { stamp: Err(Damage::Changed), .. } => kind::CHANGED,
            What::Came { redelivered: None, .. } => kind::CAME,
            What::Came { redelivered: Some(false), .. } => kind::CAME_UNMARKED,
            What::Came { redelivered: Some(true), .. } => kind::CAME_MARKED,
        };
        put(&mut out, kind);
        put(&mut out, at_ns.wrapping_sub(before));
        before = at_ns;
        match what {
            What::Disturbed | What::Buried { stamp: Err(_) } => {}
            What::Buried { stamp: Ok(stamp) } => put_stamp(&mut out, stamp, at_ns),
            What::Confirmed { sender, first, count } => {
                put(&mut out, sender.into());
                put(&mut out, first);
                put(&mut out, count);
            }
            What::Came { subscription, stamp, .. } => {
                put(&mut out, subscription.into());
                if let Ok(stamp) = stamp {
                    put_stamp(&mut out, stamp, at_ns);
                }
            }
            What::Settled { subscription, stamp } => {
                put(&mut out, subscription.into());
                put_stamp(&mut out, stamp, at_ns);
            }
        }
    }
    out
}

fn put_stamp(out: &mut Vec<u8>, stamp: Stamp, at_ns: u64) {
    put(out, stamp.sender.into());
    put(out, stamp.lane.into());
    put(out, stamp.sequence);
    put(out, at_ns.wrapping_sub(stamp.due_ns));
    put(out, stamp.delay_us.into());
}

fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

pub(crate) fn decode(mut bytes: &[u8]) -> Result<VecDeque<Event>, Malformed> {
    let mut events = VecDeque::new();
    let mut before = 0_u64;
    while !bytes.is_empty() {
        let kind = get(&mut bytes)?;
        let at_ns = before.wrapping_add(get(&mut bytes)?);
        before = at_ns;
        let mut subscription = || small(get(&mut bytes)?);
        let what = match kind {
            kind::CONFIRMED => {
                let (sender, first, count) =
                    (small(get(&mut bytes)?)?, get(&mut bytes)?, get(&mut bytes)?);
                What::Confirmed { sender, first, count }
            }
            kind::SETTLED => {
                let subscription = subscription()?;
                What::Settled { subscription, stamp: get_stamp(&mut bytes, at_ns)? }
            }
            kind::DISTURBED => What::Disturbed,
            kind::BURIED => What::Buried { stamp: Ok(get_stamp(&mut bytes, at_ns)?) },
            kind::BURIED_FOREIGN => What::Buried { stamp: Err(Damage::Foreign) },
            kind::BURIED_CHANGED => What::Buried { stamp: Err(Damage::Changed) },
            kind::FOREIGN | kind::CHANGED => {
                let damage = if kind == kind::FOREIGN { Damage::Foreign } else { Damage::Changed };
                What::came(subscription()?, (Err(damage), None))
            }
            kind::CAME | kind::CAME_UNMARKED | kind::CAME_MARKED => {
                let subscription = subscription()?;
                let redelivered = (kind != kind::CAME).then_some(kind == kind::CAME_MARKED);
                What::came(subscription, (Ok(get_stamp(&mut bytes, at_ns)?), redelivered))
            }
            _ => return Err(Malformed),
        };
        events.push_back(Event { at_ns, what });
    }
    Ok(events)
}

fn get_stamp(bytes: &mut &[u8], at_ns: u64) -> Result<Stamp, Malformed> {
    Ok(Stamp {
        sender: small(get(bytes)?)?,
        lane: small(get(bytes)?)?,
        sequence: get(bytes)?,
        due_ns: at_ns.wrapping_sub(get(bytes)?),
        delay_us: small(get(bytes)?)?,
    })
}

fn get(bytes: &mut &[u8]) -> Result<u64, Malformed> {
    let mut number = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let (byte, rest) = bytes.split_first().ok_or(Malformed)?;
        *bytes = rest;
        let low = u64::from(byte & 0x7F);
        if low << shift >> shift != low {
            return Err(Malformed);
        }
        number |= low << shift;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(Malformed)
}

fn small<T: TryFrom<u64>>(number: u64) -> Result<T, Malformed> {
    T::try_from(number).map_err(|_| Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(sequence: u64) -> Stamp {
        Stamp {
            sender: 700,
            lane: 1 << 20,
            sequence,
            due_ns: 1_700_000_000_000_000_000,
            delay_us: 9,
        }
    }

    fn every_kind() -> Vec<Event> {
        let arrivals: [Arrival; 5] = [
            (Ok(stamp(0)), None),
            (Ok(stamp((1 << 48) - 1)), Some(false)),
            (Ok(stamp(5)), Some(true)),
            (Err(Damage::Foreign), None),
            (Err(Damage::Changed), None),
        ];
        let mut all: Vec<What> = arrivals.map(|arrival| What::came(3, arrival)).into();
        all.push(What::Confirmed { sender: u16::MAX, first: 7, count: 1 << 40 });
        all.push(What::Settled { subscription: u32::MAX, stamp: stamp(6) });
        all.push(What::Disturbed);
        let buried = [Ok(stamp(7)), Err(Damage::Foreign), Err(Damage::Changed)];
        all.extend(buried.map(|stamp| What::Buried { stamp }));
        // The first event is before its message was due: clocks are imperfect.
        let at_ns = (1_699_999_999_999_999_000..).step_by(1_500);
        at_ns.zip(all).map(|(at_ns, what)| Event { at_ns, what }).collect()
    }

    #[test]
    fn events_survive_encoding_and_decoding() {
        let events = every_kind();
        let bytes = encode(events.clone());
        assert_eq!(decode(&bytes), Ok(events.into()));
    }

    #[test]
    fn truncated_and_malformed_bytes_do_not_decode() {
        let bytes = encode(every_kind());
        let whole = decode(&bytes).expect("is sound").len();
        for end in 0..bytes.len() {
            let read = decode(&bytes[..end]);
            assert!(!read.is_ok_and(|some| some.len() == whole), "{end}");
        }
        for garbage in [&[99, 0][..], &[0, 0, 0xFF, 0xFF, 0x7F, 0, 0], &[0xFF; 11], &[2, 0x80]] {
            assert_eq!(decode(garbage), Err(Malformed), "{garbage:?}");
        }
    }

    #[test]
    fn consecutive_confirmations_merge_and_time_never_steps_back() {
        let journal = Journal::default();
        for (at_ns, sequence) in [(50, 0), (40, 1), (60, 2), (70, 9)] {
            journal.push(at_ns, [What::confirmed(1, sequence)]);
        }
        journal.push(30, [What::confirmed(2, 10)]);
        let taken = journal.take(Clock::default()).expect("did not overflow");
        let expected = [
            Event { at_ns: 50, what: What::Confirmed { sender: 1, first: 0, count: 3 } },
            Event { at_ns: 70, what: What::confirmed(1, 9) },
            Event { at_ns: 70, what: What::confirmed(2, 10) },
        ];
        assert_eq!(taken.events, expected);
        journal.push(0, [What::Disturbed]);
        let later = journal.take(Clock::default()).expect("did not overflow");
        assert!(later.events[0].at_ns >= taken.until_ns && !later.more);
    }

    #[test]
    fn many_events_are_taken_in_parts() {
        let journal = Journal::default();
        journal.push(5, (0..EVENTS_AT_ONCE).map(|_| What::Disturbed));
        journal.push(6, [What::Disturbed]);
        let first = journal.take(Clock::default()).expect("did not overflow");
        assert_eq!((first.events.len(), first.until_ns, first.more), (EVENTS_AT_ONCE, 5, true));
        let rest = journal.take(Clock::default()).expect("did not overflow");
        assert_eq!((rest.events.len(), rest.more), (1, false));
    }
}
