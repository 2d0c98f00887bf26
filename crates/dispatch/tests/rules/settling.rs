use base::Stripe;
use dispatch::*;

use super::bench::{Bench, anything, record};

fn bench(records: usize) -> (Bench, Vec<Assignment>) {
    let mut bench = Bench::new(Policy::default(), vec![record(); records]);
    bench.join(1, anything(5));
    let leases = bench.assign();
    assert_eq!(leases.len(), records);
    (bench, leases)
}

fn range(first: u64, last: u64) -> Selection {
    Selection::Range { partition: 0, first, last }
}

#[test]
fn an_accepted_record_is_settled_and_its_token_stale() {
    let (mut bench, leases) = bench(2);
    bench.accept(&leases[0]);
    let again = leases[0].selection();
    let stale = Err(SettleRefused::Stale { token: leases[0].token });
    assert_eq!(bench.engine.settle(5, again, Settlement::Accept, 0), stale);
    assert_eq!(bench.engine.floor(0), Some(1));
    assert_eq!(bench.drain().partitions[0].settled, [(0, 1)]);
}

#[test]
fn a_session_cannot_settle_the_lease_of_another() {
    let (mut bench, leases) = bench(1);
    let token = leases[0].token;
    let refused = SettleRefused::NotHolder { token, session: 6 };
    let by_token = leases[0].selection();
    assert_eq!(bench.engine.settle(6, by_token, Settlement::Accept, 0), Err(refused));
    let refused = SettleRefused::NotLeased { partition: 0, offset: 0 };
    assert_eq!(bench.engine.settle(6, range(0, 0), Settlement::Accept, 0), Err(refused));
    bench.accept(&leases[0]);
}

#[test]
fn lease_is_settled_by_any_caller_that_names_its_holder() {
    let (mut bench, leases) = bench(1);
    let token = leases[0].token;
    let held = |session| Selection::Held { partition: 0, token, session };
    let refused = SettleRefused::NotHolder { token, session: 7 };
    assert_eq!(bench.engine.settle(5, held(7), Settlement::Accept, 0), Err(refused));
    assert_eq!(bench.engine.settle(6, held(5), Settlement::Accept, 0), Ok(1));
    let stale = Err(SettleRefused::Stale { token });
    assert_eq!(bench.engine.settle(6, held(5), Settlement::Accept, 0), stale);
}

#[test]
fn a_range_is_settled_as_a_whole_or_not_at_all() {
    let (mut bench, leases) = bench(5);
    bench.release(&leases[3]);
    let refused = SettleRefused::NotLeased { partition: 0, offset: 3 };
    assert_eq!(bench.engine.settle(5, range(1, 4), Settlement::Accept, 0), Err(refused));
    assert_eq!(bench.engine.counters().leased, 4);
    assert_eq!(bench.engine.settle(5, range(1, 2), Settlement::Accept, 0), Ok(2));
    // Records already settled do not prevent settling the rest.
    assert_eq!(bench.engine.settle(5, range(0, 2), Settlement::Accept, 0), Ok(1));
    assert_eq!(bench.engine.floor(0), Some(3));
}

#[test]
fn oversized_range_costs_no_more_than_the_leases() {
    let (mut bench, _) = bench(3);
    let refused = SettleRefused::NotLeased { partition: 0, offset: 3 };
    let all = range(0, u64::MAX - 1);
    assert_eq!(bench.engine.settle(5, all, Settlement::Accept, 0), Err(refused));
}

#[test]
fn cumulative_settle_ends_only_leases_of_the_session() {
    let mut bench = Bench::new(Policy::default(), vec![record(); 6]);
    let own = bench.take(1, 2);
    let others = bench.take(2, 2);
    let more = bench.take(1, 1);
    let up_to = Selection::UpTo { partition: 0, last: 4 };
    assert_eq!(bench.engine.settle(1, up_to, Settlement::Accept, 0), Ok(3));
    assert_eq!(own.len() + more.len(), 3);
    assert_eq!(bench.engine.counters().leased, 2);
    let refused = SettleRefused::NotLeased { partition: 0, offset: 4 };
    assert_eq!(bench.engine.settle(1, up_to, Settlement::Accept, 0), Err(refused));
    bench.accept(&others[0]);
}

#[test]
fn settle_in_an_unknown_partition_is_refused() {
    let (mut bench, _) = bench(1);
    let refused = Err(SettleRefused::NoSuchPartition { partition: 9 });
    let range = Selection::Range { partition: 9, first: 0, last: 0 };
    assert_eq!(bench.engine.settle(5, range, Settlement::Accept, 0), refused);
    let up_to = Selection::UpTo { partition: 9, last: 0 };
    assert_eq!(bench.engine.settle(5, up_to, Settlement::Accept, 0), refused);
}

#[test]
fn lease_expires_at_its_deadline_and_its_holder_is_fenced() {
    let (mut bench, leases) = bench(1);
    bench.pass(29_999);
    assert_eq!(bench.offsets(), []);
    bench.pass(1);
    let again = bench.assign();
    assert_eq!((again[0].offset, again[0].attempt), (0, 2));
    assert!(again[0].token > leases[0].token);
    let token = leases[0].token;
    let late = bench.engine.settle(5, leases[0].selection(), Settlement::Accept, 0);
    assert_eq!(late, Err(SettleRefused::Stale { token }));
    assert_eq!(bench.engine.counters().leased, 1);
}

#[test]
fn settle_before_the_next_tick_wins_over_an_expired_deadline() {
    let (mut bench, leases) = bench(1);
    bench.now_ms += 40_000;
    bench.accept(&leases[0]);
    bench.pass(1);
    assert_eq!(bench.engine.counters(), Counters { consumers: 1, ..Counters::default() });
}

#[test]
fn renewed_lease_is_extended_from_now() {
    let (mut bench, leases) = bench(1);
    bench.pass(20_000);
    bench.settle(&leases[0], Settlement::Renew { lease_ms: None });
    bench.pass(29_999);
    bench.settle(&leases[0], Settlement::Renew { lease_ms: Some(5) });
    bench.pass(4);
    assert_eq!(bench.engine.counters().leased, 1);
    bench.pass(1);
    assert_eq!(bench.engine.counters().leased, 0);
}

#[test]
fn lease_without_a_deadline_lasts_until_its_session_ends() {
    let policy = Policy { lease_ms: None, ..Policy::default() };
    let mut bench = Bench::new(policy, [record()]);
    bench.join(1, anything(5));
    assert_eq!(bench.offsets(), [0]);
    assert_eq!(bench.engine.next_deadline(), None);
    bench.pass(1 << 40);
    assert_eq!(bench.engine.counters().leased, 1);
    bench.engine.end_session(5, bench.now_ms);
    assert_eq!(bench.engine.counters().leased, 0);
}

#[test]
fn records_of_an_ended_session_are_available_again_at_once_and_in_order() {
    let mut bench = Bench::new(Policy::default(), vec![record(); 6]);
    bench.take(1, 4);
    bench.join(9, anything(2));
    bench.engine.end_session(1, bench.now_ms);
    let again = bench.assign();
    let places: Vec<_> = again.iter().map(|it| (it.offset, it.attempt)).collect();
    assert_eq!(places, [(0, 2), (1, 2), (2, 2), (3, 2), (4, 1), (5, 1)]);
}

#[test]
fn settled_on_send_leaves_no_lease_behind() {
    let mut bench = Bench::new(Policy::default(), vec![record(); 3]);
    bench.join(1, PushConsumer { settle_on_send: true, ..anything(1) });
    assert_eq!(bench.offsets(), [0, 1, 2]);
    let counters = bench.engine.counters();
    assert_eq!((counters.depth, counters.leased), (0, 0));
    assert_eq!(bench.drain().partitions[0].settled, [(0, 3)]);
}

#[test]
fn holes_in_the_log_are_settled_when_they_are_read() {
    let mut bench = Bench::new(Policy::default(), []);
    bench.engine.extended(0, 10);
    bench.join(1, anything(1));
    let want = bench.engine.wants().expect("there is something");
    assert_eq!(want, ReadRange { partition: 0, from: 0, up_to: 10, known: false });
    assert_eq!(bench.engine.wants(), None, "a want is handed out once");
    let there = [3, 4, 7].map(|offset| ScannedRecord { offset, ..record() });
    bench.engine.scanned(0, 0, 10, there, 0);
    assert_eq!(bench.offsets(), [3, 4, 7]);
    assert_eq!(bench.drain().partitions[0].settled, [(0, 3), (5, 2), (8, 2)]);
}

#[test]
fn failed_read_is_requested_again() {
    let mut bench = Bench::new(Policy::default(), [record()]);
    bench.join(1, anything(1));
    let want = bench.engine.wants().expect("there is something");
    assert_eq!(bench.engine.wants(), None);
    bench.engine.scan_failed(0);
    assert_eq!(bench.engine.wants(), Some(want));
}

#[test]
fn records_not_durably_settled_are_delivered_again_after_a_crash() {
    let (mut bench, leases) = bench(5);
    bench.accept(&leases[1]);
    bench.accept(&leases[2]);
    bench.release(&leases[4]);
    let durable = bench.drain().partitions.remove(0);
    assert_eq!((&durable.settled[..], &durable.attempts[..]), (&[(1, 2)][..], &[(4, 1)][..]));
    bench.accept(&leases[0]);
    let start = PartitionStart {
        settled: [(1, 3)].into_iter().collect(),
        attempts: durable.attempts,
        end: 5,
        ..PartitionStart::default()
    };
    bench.engine =
        Dispatch::new(Policy::default(), Stripe::ALL, vec![start], bench.engine.next_token());
    bench.join(2, anything(6));
    let again = bench.assign();
    let places: Vec<_> = again.iter().map(|it| (it.offset, it.attempt)).collect();
    assert_eq!(places, [(0, 1), (3, 1), (4, 2)]);
    assert!(again.iter().all(|it| leases.iter().all(|old| old.token < it.token)));
}

#[test]
fn dead_letters_of_a_settle_are_known_beforehand() {
    let policy = Policy { dead_letters: true, attempts_max: Some(2), ..Policy::default() };
    let mut bench = Bench::new(policy, vec![record(); 4]);
    bench.join(1, anything(1));
    let leases = bench.assign();
    bench.release(&leases[1]);
    let again = bench.assign()[0];
    assert_eq!((again.offset, again.attempt), (1, 2));
    let all = Selection::UpTo { partition: 0, last: 3 };
    let dies = |settlement| bench.engine.dead_letters_of_settle(1, all, settlement);
    let counted = Settlement::Release { delay_ms: None, count: true };
    assert_eq!(dies(Settlement::Reject), [(0, 0), (0, 1), (0, 2), (0, 3)]);
    assert_eq!(dies(counted), [(0, 1)], "it was its last attempt");
    assert_eq!(dies(Settlement::Release { delay_ms: None, count: false }), []);
    assert_eq!(dies(Settlement::Accept), []);
    let others = again.selection();
    assert_eq!(
        bench.engine.dead_letters_of_settle(2, others, Settlement::Reject),
        [],
        "it is not his"
    );
    // The query had no effect.
    bench.settle(&again, counted);
    assert_eq!(bench.dead_letter(), [(1, DeadReason::Attempts)]);
}
