//! Leases that holders present to a new engine after another node was the leader.

use dispatch::*;

use crate::bench::*;

/// An engine of the next term with the same log and higher tokens.
fn next_term(policy: Policy, before: &Bench, start: PartitionStart) -> Bench {
    let mut after = Bench::new(policy.clone(), []);
    after.logs = before.logs.clone();
    let starts = vec![PartitionStart { end: before.logs[0].len() as u64, ..start }];
    after.engine = Dispatch::new(policy, base::Stripe::ALL, starts, 1_000);
    after
}

fn claims(leases: &[Assignment]) -> Vec<Claim> {
    leases.iter().map(|lease| Claim::of(lease).expect("it is leased")).collect()
}

#[test]
fn presented_lease_keeps_its_token_its_attempt_and_its_credit() {
    let mut before = Bench::new(Policy::default(), (0..4).map(|_| record()));
    before.join(1, window(1, 2));
    let leases = before.assign();
    let mut after = next_term(Policy::default(), &before, PartitionStart::default());
    after.join(1, window(1, 2));
    for claim in claims(&leases) {
        assert!(after.engine.present(claim, &mut after.pools));
    }
    assert_eq!(after.offsets(), [], "its window is used");
    after.accept(&leases[0]);
    assert_eq!(after.offsets(), [2]);
    after.release(&leases[1]);
    let again = after.assign();
    assert_eq!((again[0].offset, again[0].attempt), (1, 2));
}

#[test]
fn settled_leased_or_released_record_is_not_claimed_again() {
    let mut before = Bench::new(Policy::default(), (0..4).map(|_| record()));
    before.join(1, anything(1));
    let leases = claims(&before.assign());
    let start = PartitionStart { floor: 1, attempts: vec![(1, 1)], ..PartitionStart::default() };
    let mut after = next_term(Policy::default(), &before, start);
    after.join(1, anything(1));
    assert!(!after.engine.present(leases[0], &mut after.pools), "it is settled");
    assert!(!after.engine.present(leases[1], &mut after.pools), "its end was counted");
    assert!(after.engine.present(leases[2], &mut after.pools));
    assert!(!after.engine.present(leases[2], &mut after.pools), "it is leased");
    assert_eq!(after.offsets(), [1, 3]);
    assert!(!after.engine.present(leases[3], &mut after.pools), "it was read and handed out");
}

#[test]
fn both_leases_of_a_lane_are_claimed_and_the_next_record_waits_for_both() {
    for ordering in [Ordering::Key, Ordering::Partition] {
        let policy = Policy { ordering, ..Policy::default() };
        let mut before = Bench::new(policy.clone(), (0..3).map(|_| keyed(7)));
        before.join(1, anything(1));
        let first = before.assign();
        // The next one was delivered once this was settled; the settle is not in the log.
        before.accept(&first[0]);
        let second = before.assign();
        let mut after = next_term(policy, &before, PartitionStart::default());
        after.join(1, anything(1));
        assert!(after.engine.present(claims(&first)[0], &mut after.pools));
        assert!(after.engine.present(claims(&second)[0], &mut after.pools));
        assert_eq!(after.offsets(), []);
        after.accept(&first[0]);
        assert_eq!(after.offsets(), [], "the second one holds the lane");
        after.accept(&second[0]);
        assert_eq!(after.offsets(), [2]);
    }
}

#[test]
fn repeated_release_of_a_lease_counts_one_attempt_and_leaves_a_newer_lease_alone() {
    let mut before = Bench::new(Policy::default(), [record()]);
    before.join(1, anything(1));
    let first = before.assign();
    before.release(&first[0]);
    let second = before.assign();
    // The release is not in the log: both leases are presented, the newer one first.
    let mut after = next_term(Policy::default(), &before, PartitionStart::default());
    after.join(1, anything(1));
    assert!(after.engine.present(claims(&second)[0], &mut after.pools));
    assert!(!after.engine.present(claims(&first)[0], &mut after.pools));
    let again = Settlement::Release { delay_ms: None, count: true };
    let refused = after.engine.settle(1, first[0].selection(), again, after.now_ms);
    assert!(refused.is_err() && after.offsets().is_empty());
    // Only the first one is presented: it is released once.
    let mut after = next_term(Policy::default(), &before, PartitionStart::default());
    after.join(1, anything(1));
    assert!(after.engine.present(claims(&first)[0], &mut after.pools));
    after.release(&first[0]);
    assert!(after.engine.settle(1, first[0].selection(), again, after.now_ms).is_err());
    assert_eq!(after.assign()[0].attempt, 2);
}

#[test]
fn record_settled_on_send_has_no_lease() {
    let mut before = Bench::new(Policy::default(), [record()]);
    before.join(1, PushConsumer { settle_on_send: true, ..anything(1) });
    assert_eq!(Claim::of(&before.assign()[0]), None);
}

#[test]
fn deadline_shifts_with_the_clock_unless_the_lease_has_none() {
    let policy = Policy { lease_ms: Some(500), ..Policy::default() };
    let mut before = Bench::new(policy, [record()]);
    before.join(1, anything(1));
    let claim = claims(&before.assign())[0];
    assert_eq!(claim.shifted(-before.now_ms).shifted(9_000).deadline_ms(), 9_500);
    assert_eq!(claim.until(i64::MAX).shifted(-1).deadline_ms(), i64::MAX);
}

#[test]
fn consumer_that_rejoins_keeps_its_leases_their_credit_and_its_place() {
    let policy = Policy { single_active: true, ..Policy::default() };
    let mut bench = Bench::new(policy, (0..4).map(|_| record()));
    bench.join(1, window(1, 2));
    bench.join(2, window(2, 2));
    let leases = bench.assign();
    assert_eq!(leases.len(), 2);
    assert!(bench.engine.rejoin(1, window(1, 2)));
    assert!(bench.engine.is_active(1));
    assert_eq!(bench.offsets(), [], "its window is used");
    bench.accept(&leases[0]);
    assert_eq!(bench.offsets(), [2]);
    let other = PushConsumer { priority: 1, ..window(1, 2) };
    assert!(!bench.engine.rejoin(1, other), "it has to leave and join");
    assert!(!bench.engine.rejoin(3, window(1, 2)), "it has not joined");
}

#[test]
fn leases_that_are_not_presented_again_are_released_and_count_as_attempts() {
    let mut bench = Bench::new(Policy::default(), (0..3).map(|_| record()));
    bench.join(1, window(1, 3));
    let leases = bench.assign();
    bench.engine.end_other_leases(1, bench.now_ms, |token| token == leases[1].token);
    let again = bench.assign();
    let attempts: Vec<_> = again.iter().map(|it| (it.offset, it.attempt)).collect();
    assert_eq!(attempts, [(0, 2), (2, 2)]);
    bench.accept(&leases[1]);
}
