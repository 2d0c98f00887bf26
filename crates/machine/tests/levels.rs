//! Feature levels of stored bytes: a reader that does not support one learns the required level.

use base::{Level, Levels};
use machine::outcome::EntryEffects;
use machine::{Command, DecodeError, Entry, State};

#[test]
fn snapshot_records_its_level_unless_it_is_the_first() {
    let (mut state, command) = (State::new(), Command::AllocateProducerIds { count: 7 });
    let commands = &[command][..];
    state.apply(&Entry { commands, ..Entry::default() }, &mut EntryEffects::new());
    let (first, later) = (state.encode(), state.capture().encode_at(Level(2)));
    assert_eq!(state.capture().encode_at(Level::FIRST), first);
    assert_eq!((&later[..6], &later[6..8], &later[12..]), (&first[..6], &[2, 0][..], &first[12..]));
    let levels = |max| Levels { min: Level(1), max: Level(max) };
    assert_eq!(State::decode_within(levels(2), &later).as_ref(), Ok(&state));
    for bit in 0..later.len() * 8 {
        let mut changed = later.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(State::decode_within(levels(u16::MAX), &changed).is_err(), "bit {bit}");
    }
    let error = DecodeError::Level { needed: Level(2), can: levels(1) };
    assert_eq!(State::decode_within(levels(1), &later).unwrap_err(), error);
    assert!(error.to_string().contains("feature level 2"), "{error}");
}
