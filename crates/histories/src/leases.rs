//! Rules of queues, which hold whatever happens to their server. Pure: the soak records what it sent, confirmed,
//! received and settled, and gets the first violation.
//!
//! A settle in flight when the server died may have been applied or not, so the record may be redelivered or not.
//! Everything else is certain.

use base::HashMap;
use std::fmt::Display;
use std::net::SocketAddr;

use crate::log::Mark;

/// Final settlement of a record by a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinalSettlement {
    Accepted,
    /// The record becomes a dead letter.
    Rejected,
}

/// State of a record's settle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Open,
    /// Sent, without a reply yet.
    Asked(FinalSettlement),
    /// Confirmed: the record must never be redelivered.
    Settled(FinalSettlement),
}

#[derive(Clone, Copy, Debug)]
struct LedgerEntry {
    queue: u16,
    confirmed: bool,
    progress: Progress,
    past: RecordCounts,
}

/// History of a record, for the diagnosis of a loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordCounts {
    delivered: u8,
    released: u8,
    asked: u8,
    /// Settles that were confirmed after the record had been redelivered.
    confirmed_late: u8,
    /// Acknowledgements since the last delivery.
    acknowledged: u8,
}

/// A consumer: one connection, within one run of the server.
pub type Worker = u32;

#[derive(Debug, Default)]
pub struct Ledger {
    /// By producer, then by sequence.
    records: Vec<Vec<LedgerEntry>>,
    held: HashMap<(u32, u64), Worker>,
    /// The node of each consumer's connection.
    nodes: HashMap<Worker, SocketAddr>,
    /// Whether leases may end without their consumers' knowledge, so that another consumer may get the record.
    leases_may_end: bool,
    pub tally: Tally,
}

/// Counts of operations.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    pub confirmed: u64,
    pub delivered: u64,
    pub accepted: u64,
    pub rejected: u64,
    pub released: u64,
    /// Settles whose reply was lost with the server.
    pub unanswered: u64,
    /// Those of the unanswered settles whose records were redelivered.
    pub unanswered_came_again: u64,
    /// Acknowledgements, which have no reply.
    pub acknowledged: u64,
    /// Those of the acknowledged records that were redelivered.
    pub acknowledged_came_again: u64,
    /// Deliveries of records that another live consumer holds.
    pub taken: u64,
    /// Deliveries from a paused node that arrived after others had settled their records.
    pub late: u64,
}

/// The first violation found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    Foreign { queue: usize, value_bytes: usize },
    WrongQueue { mark: Mark, sent: usize, came: usize },
    SettledCameAgain { mark: Mark, queue: usize, end: FinalSettlement, where_to: String },
    HeldByTwo { mark: Mark, queue: usize, where_to: String },
    Lost { mark: Mark, queue: usize, records: usize, past: RecordCounts },
    NotDead { mark: Mark, queue: usize, records: usize },
    DeadTwice { mark: Mark },
    DeadUnasked { mark: Mark, progress: String },
}

impl Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        use Violation::*;
        match self {
            Foreign { queue, value_bytes } => {
                write!(f, "queue {queue}: a record of {value_bytes} bytes that nobody sent")
            }
            WrongQueue { mark, sent, came } => {
                write!(f, "{mark} was sent to queue {sent} and came out of queue {came}")
            }
            SettledCameAgain { mark, queue, end, where_to } => {
                let end = if *end == FinalSettlement::Accepted { "accepted" } else { "rejected" };
                write!(
                    f,
                    "queue {queue}: {mark} was {end}, which was confirmed, and came again: {where_to}"
                )
            }
            HeldByTwo { mark, queue, where_to } => {
                write!(f, "queue {queue}: {mark} came while another consumer has it: {where_to}")
            }
            Lost { mark, queue, records, past } => write!(
                f,
                "queue {queue} is empty, but {records} confirmed records were not settled, the \
                 first is {mark}: {past:?}"
            ),
            NotDead { mark, queue, records } => write!(
                f,
                "{records} records were rejected, which was confirmed, and are no dead letters; \
                 the first is {mark} of queue {queue}"
            ),
            DeadTwice { mark } => write!(f, "{mark} is a dead letter twice"),
            DeadUnasked { mark, progress } => {
                write!(f, "{mark} is a dead letter, but what is known of its settle is: {progress}")
            }
        }
    }
}

impl Ledger {
    pub fn new(producers: usize) -> Ledger {
        Ledger { records: vec![Vec::new(); producers], ..Ledger::default() }
    }

    /// A ledger for several nodes: leases end with their leader, and only the reply to a settle is certain.
    pub fn for_cluster(producers: usize) -> Ledger {
        Ledger { leases_may_end: true, ..Ledger::new(producers) }
    }

    /// Returns the mark of a record that is about to be sent.
    pub fn send(&mut self, producer: u32, queue: usize) -> Mark {
        let records = &mut self.records[producer as usize];
        let sequence = records.len() as u64;
        let queue = queue as u16;
        let (progress, past) = (Progress::Open, RecordCounts::default());
        records.push(LedgerEntry { queue, confirmed: false, progress, past });
        Mark { producer, sequence }
    }

    pub fn confirm(&mut self, mark: Mark) {
        if let Some(known) = self.known(mark) {
            known.confirmed = true;
            self.tally.confirmed += 1;
        }
    }

    fn known(&mut self, mark: Mark) -> Option<&mut LedgerEntry> {
        let producer = self.records.get_mut(mark.producer as usize)?;
        producer.get_mut(usize::try_from(mark.sequence).ok()?)
    }

    /// Records a delivery to a consumer.
    pub fn deliver(
        &mut self,
        worker: Worker,
        queue: usize,
        value: &[u8],
        place: impl Fn() -> String,
    ) -> Result<Mark, Violation> {
        let foreign = Violation::Foreign { queue, value_bytes: value.len() };
        let mark = Mark::from_value(value).ok_or_else(|| foreign.clone())?;
        let known = self.known(mark).ok_or(foreign)?;
        let sent = usize::from(known.queue);
        if sent != queue {
            return Err(Violation::WrongQueue { mark, sent, came: queue });
        }
        let before = known.progress;
        if let Progress::Settled(end) = before {
            return Err(Violation::SettledCameAgain { mark, queue, end, where_to: place() });
        }
        known.progress = Progress::Open;
        known.past.delivered = known.past.delivered.saturating_add(1);
        let was_acknowledged = std::mem::take(&mut known.past.acknowledged) > 0;
        let was_held = self.held.insert((mark.producer, mark.sequence), worker).is_some();
        if was_held && !self.leases_may_end {
            return Err(Violation::HeldByTwo { mark, queue, where_to: place() });
        }
        self.tally.delivered += 1;
        self.tally.taken += u64::from(was_held);
        match before != Progress::Open {
            true if was_acknowledged => self.tally.acknowledged_came_again += 1,
            came_again => self.tally.unanswered_came_again += u64::from(came_again),
        }
        Ok(mark)
    }

    pub fn set_node(&mut self, worker: Worker, node: SocketAddr) {
        self.nodes.insert(worker, node);
    }

    /// Call before a node fails: other consumers may get the records of its consumers.
    pub fn node_fails(&mut self, node: SocketAddr) {
        let Ledger { held, nodes, .. } = self;
        held.retain(|_, worker| nodes.get(worker) != Some(&node));
    }

    /// Number of records that consumers hold.
    pub fn in_flight(&self) -> usize {
        self.held.len()
    }

    /// Call before a release: from now on any consumer may get the record.
    pub fn release(&mut self, mark: Mark) {
        self.held.remove(&(mark.producer, mark.sequence));
        if let Some(known) = self.known(mark) {
            known.past.released = known.past.released.saturating_add(1);
        }
        self.tally.released += 1;
    }

    /// Call before a settle.
    pub fn request_settle(&mut self, mark: Mark, end: FinalSettlement) {
        let may_be_settled = self.leases_may_end;
        if let Some(known) = self.known(mark) {
            // Another consumer has settled the record; this lease has ended, and its consumer does not know yet.
            let stays = may_be_settled && matches!(known.progress, Progress::Settled(_));
            if !stays {
                known.progress = Progress::Asked(end);
            }
            known.past.asked = known.past.asked.saturating_add(1);
            self.tally.unanswered += 1;
        }
    }

    /// Call before an acknowledgement, which has no reply.
    pub fn acknowledge(&mut self, mark: Mark) {
        self.request_settle(mark, FinalSettlement::Accepted);
        self.held.remove(&(mark.producer, mark.sequence));
        if let Some(known) = self.known(mark) {
            known.past.acknowledged = known.past.acknowledged.saturating_add(1);
        }
        self.tally.unanswered -= 1;
        self.tally.acknowledged += 1;
    }

    /// Records the confirm of a settle.
    pub fn settle(&mut self, mark: Mark, end: FinalSettlement) {
        self.held.remove(&(mark.producer, mark.sequence));
        let may_have_come_again = self.leases_may_end;
        let Some(known) = self.known(mark) else { return };
        match known.progress {
            Progress::Asked(_) => {}
            // With several nodes, a delivery of the failed leader may have reached another consumer after the
            // settle was sent.
            Progress::Open if may_have_come_again => {
                known.past.confirmed_late = known.past.confirmed_late.saturating_add(1);
            }
            Progress::Open | Progress::Settled(_) => return,
        }
        known.progress = Progress::Settled(end);
        self.tally.unanswered -= 1;
        match end {
            FinalSettlement::Accepted => self.tally.accepted += 1,
            FinalSettlement::Rejected => self.tally.rejected += 1,
        }
    }

    /// Call before a consumer closes its connection: others may get its records.
    pub fn leave(&mut self, worker: Worker) {
        self.held.retain(|_, holder| *holder != worker);
        self.nodes.remove(&worker);
    }

    /// Call after the server has died: all leases have ended.
    pub fn crash(&mut self) {
        self.held.clear();
    }

    /// Call when all queues are empty: every confirmed record must be settled. Settles without a reply count as
    /// applied from then on.
    pub fn check_empty(&mut self) -> Result<(), Violation> {
        let mut lost: Option<(Mark, usize, RecordCounts)> = None;
        let mut records = 0;
        for (producer, known) in self.records.iter_mut().enumerate() {
            for (sequence, known) in known.iter_mut().enumerate() {
                match known.progress {
                    Progress::Asked(end) => known.progress = Progress::Settled(end),
                    Progress::Open if known.confirmed => {
                        let mark = Mark { producer: producer as u32, sequence: sequence as u64 };
                        lost = lost.or(Some((mark, usize::from(known.queue), known.past)));
                        records += 1;
                    }
                    Progress::Open | Progress::Settled(_) => {}
                }
            }
        }
        match lost {
            Some((mark, queue, past)) => Err(Violation::Lost { mark, queue, records, past }),
            None => Ok(()),
        }
    }

    /// Checks the values of all dead letters, after [`Ledger::check_empty`]: each rejected record is one of them,
    /// once, and no other record is.
    pub fn check_dead(&self, values: &[bytes::Bytes]) -> Result<(), Violation> {
        let mut dead = HashMap::default();
        for value in values {
            let foreign = Violation::Foreign { queue: usize::MAX, value_bytes: value.len() };
            let mark = Mark::from_value(value).ok_or_else(|| foreign.clone())?;
            let known = self.records.get(mark.producer as usize);
            let known = known.and_then(|of| of.get(mark.sequence as usize)).ok_or(foreign)?;
            if known.progress != Progress::Settled(FinalSettlement::Rejected) {
                let progress = format!("{:?}", known.progress);
                return Err(Violation::DeadUnasked { mark, progress });
            }
            if dead.insert((mark.producer, mark.sequence), ()).is_some() {
                return Err(Violation::DeadTwice { mark });
            }
        }
        let all = self.records.iter().enumerate().flat_map(|(producer, records)| {
            let with_mark = move |(sequence, known)| {
                (Mark { producer: producer as u32, sequence: sequence as u64 }, known)
            };
            records.iter().enumerate().map(with_mark)
        });
        let missing: Vec<(Mark, &LedgerEntry)> = all
            .filter(|(_, known): &(Mark, &LedgerEntry)| {
                known.progress == Progress::Settled(FinalSettlement::Rejected)
            })
            .filter(|(mark, _)| !dead.contains_key(&(mark.producer, mark.sequence)))
            .collect();
        match missing.first() {
            Some(&(mark, known)) => {
                let queue = usize::from(known.queue);
                Err(Violation::NotDead { mark, queue, records: missing.len() })
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(ledger: &mut Ledger) -> (Mark, bytes::Bytes) {
        let mark = ledger.send(0, 3);
        ledger.confirm(mark);
        (mark, mark.to_value(40))
    }

    fn deliver(ledger: &mut Ledger, worker: Worker, value: &[u8]) -> Result<Mark, Violation> {
        ledger.deliver(worker, 3, value, String::new)
    }

    #[test]
    fn record_may_be_redelivered_until_its_settle_is_confirmed() {
        let mut ledger = Ledger::new(1);
        let (mark, value) = sent(&mut ledger);
        deliver(&mut ledger, 1, &value).unwrap();
        ledger.release(mark);
        deliver(&mut ledger, 2, &value).unwrap();
        ledger.request_settle(mark, FinalSettlement::Accepted);
        ledger.crash();
        deliver(&mut ledger, 3, &value).unwrap();
        assert_eq!(ledger.tally.unanswered_came_again, 1);
        ledger.request_settle(mark, FinalSettlement::Accepted);
        ledger.settle(mark, FinalSettlement::Accepted);
        let again = deliver(&mut ledger, 4, &value);
        assert!(matches!(again, Err(Violation::SettledCameAgain { .. })));
    }

    #[test]
    fn second_consumer_of_a_held_record_is_found() {
        let mut ledger = Ledger::new(1);
        let (mark, value) = sent(&mut ledger);
        deliver(&mut ledger, 1, &value).unwrap();
        ledger.request_settle(mark, FinalSettlement::Accepted);
        assert!(matches!(deliver(&mut ledger, 2, &value), Err(Violation::HeldByTwo { .. })));
        ledger.leave(2);
        deliver(&mut ledger, 3, &value).unwrap();
    }

    #[test]
    fn confirmed_record_without_a_settle_is_lost_if_the_queue_is_empty() {
        let mut ledger = Ledger::new(1);
        ledger.send(0, 0);
        assert_eq!(ledger.check_empty(), Ok(()));
        let (mark, value) = sent(&mut ledger);
        let lost = Violation::Lost { mark, queue: 3, records: 1, past: RecordCounts::default() };
        assert_eq!(ledger.check_empty(), Err(lost));
        deliver(&mut ledger, 1, &value).unwrap();
        ledger.request_settle(mark, FinalSettlement::Accepted);
        ledger.crash();
        assert_eq!(ledger.check_empty(), Ok(()));
        // The queue was empty, so the settle was applied.
        assert!(deliver(&mut ledger, 1, &value).is_err());
    }

    /// A client may read the delivery of a failed leader after the next leader's delivery was settled.
    #[test]
    fn late_delivery_of_an_old_leader_does_not_undo_a_confirmed_settle() {
        let mut ledger = Ledger::for_cluster(1);
        let (mark, value) = sent(&mut ledger);
        deliver(&mut ledger, 1, &value).unwrap();
        ledger.request_settle(mark, FinalSettlement::Accepted);
        deliver(&mut ledger, 2, &value).unwrap();
        ledger.settle(mark, FinalSettlement::Accepted);
        // Operations of the consumer with the late delivery have no effect.
        ledger.request_settle(mark, FinalSettlement::Rejected);
        ledger.release(mark);
        assert_eq!(ledger.check_empty(), Ok(()));
        assert!(deliver(&mut ledger, 3, &value).is_err());
        assert_eq!(ledger.check_dead(&[]), Ok(()));
    }

    #[test]
    fn dead_letters_are_the_rejected_records_each_once() {
        let mut ledger = Ledger::new(1);
        let (mark, value) = sent(&mut ledger);
        deliver(&mut ledger, 1, &value).unwrap();
        let dead = [value.clone()];
        assert!(matches!(ledger.check_dead(&dead), Err(Violation::DeadUnasked { .. })));
        ledger.request_settle(mark, FinalSettlement::Rejected);
        ledger.settle(mark, FinalSettlement::Rejected);
        assert!(matches!(ledger.check_dead(&[]), Err(Violation::NotDead { records: 1, .. })));
        assert_eq!(ledger.check_dead(&dead), Ok(()));
        let twice = [value.clone(), value];
        assert_eq!(ledger.check_dead(&twice), Err(Violation::DeadTwice { mark }));
    }

    #[test]
    fn delivery_from_another_queue_or_of_a_foreign_record_is_found() {
        let mut ledger = Ledger::new(1);
        let (_, value) = sent(&mut ledger);
        let wrong = ledger.deliver(1, 2, &value, String::new);
        assert!(matches!(wrong, Err(Violation::WrongQueue { sent: 3, came: 2, .. })));
        assert!(matches!(deliver(&mut ledger, 1, b"?"), Err(Violation::Foreign { .. })));
    }
}
