//! Steps of records for tracing.

use dispatch::*;

use super::bench::{Bench, anything, keyed, record, window};

fn steps(bench: &mut Bench) -> Vec<(u64, u32, StepKind, u16)> {
    let mut all = Vec::new();
    bench.engine.take_steps(|it| all.push((it.first, it.count, it.what, it.attempt)));
    all
}

#[test]
fn steps_follow_a_record_from_its_leases_to_its_end() {
    let policy = Policy { attempts_max: Some(2), dead_letters: true, ..Policy::default() };
    let mut bench = Bench::new(policy, vec![record(); 3]);
    bench.join(1, anything(7));
    let leases = bench.assign();
    assert_eq!(steps(&mut bench), [(0, 3, StepKind::Leased, 1)], "a batch is one step");
    bench.accept(&leases[0]);
    bench.release(&leases[1]);
    bench.engine.end_session(7, 0);
    let (left, released) = (StepKind::Left, StepKind::Released);
    let ends = [(0, 1, StepKind::Accepted, 1), (1, 1, released, 1), (2, 1, left, 1)];
    assert_eq!(steps(&mut bench), ends);
    bench.join(2, anything(8));
    let again = bench.assign();
    bench.release(&again[0]);
    let died = StepKind::Died(DeadReason::Attempts);
    let expected = [(1, 2, StepKind::Leased, 2), (1, 1, released, 2), (1, 1, died, 2)];
    assert_eq!(steps(&mut bench), expected);
    bench.engine.ended(0, 1);
    assert_eq!(steps(&mut bench), [(1, 1, StepKind::Ended, 0)]);
    assert!(!bench.engine.has_steps());
}

#[test]
fn purged_and_trimmed_records_have_steps_too() {
    let mut bench = Bench::new(Policy::default(), vec![record(); 6]);
    bench.join(1, window(7, 2));
    let leases = bench.assign();
    bench.accept(&leases[1]);
    steps(&mut bench);
    assert_eq!(bench.engine.purge(), 4);
    assert_eq!(steps(&mut bench), [(2, 4, StepKind::Removed, 0)]);
    bench.engine.trimmed(0, 1);
    assert_eq!(steps(&mut bench), [(0, 1, StepKind::Voided, 1)]);
}

#[test]
fn blocked_record_reports_the_holder_of_its_key() {
    let policy = Policy { ordering: Ordering::Key, ..Policy::default() };
    let mut bench = Bench::new(policy, [keyed(1), keyed(2), keyed(1), keyed(1)]);
    bench.join(1, anything(7));
    let leases = bench.assign();
    let stands = |bench: &Bench, offset| {
        bench.engine.standing(0, offset).map(|(peeked, behind)| (peeked.state, behind))
    };
    assert!(matches!(stands(&bench, 0), Some((RecordState::Leased { session: 7, .. }, None))));
    assert_eq!(stands(&bench, 2), Some((RecordState::Blocked, Some(0))));
    assert_eq!(stands(&bench, 3), Some((RecordState::Blocked, Some(0))));
    bench.accept(&leases[0]);
    assert_eq!(stands(&bench, 0), None, "it is settled");
    assert_eq!(stands(&bench, 3), Some((RecordState::Blocked, Some(2))));
    assert_eq!(stands(&bench, 4), None, "nothing is there yet");
}
