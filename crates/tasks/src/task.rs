//! The table of tasks and threads.

use std::cell::Cell;

/// What the end of a task or thread means, if it was not asked to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The node cannot do without it: the process ends.
    Process,
    /// The connection that it belongs to is closed; nothing else is.
    Session,
    /// What it was asked for fails; the session goes on.
    Request,
}

impl End {
    pub fn name(self) -> &'static str {
        match self {
            End::Process => "process",
            End::Session => "session",
            End::Request => "request",
        }
    }
}

macro_rules! table {
    ($($task:ident: $name:literal, $end:ident;)*) => {
        /// A task or thread of a node, by what it does.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Task {
            $($task,)*
        }

        impl Task {
            pub const ALL: &[Task] = &[$(Task::$task,)*];

            /// As messages, the documentation and [`crate::inject`] call it.
            pub fn name(self) -> &'static str {
                match self {
                    $(Task::$task => $name,)*
                }
            }

            pub fn end(self) -> End {
                match self {
                    $(Task::$task => End::$end,)*
                }
            }
        }
    };
}

table! {
    Main: "main", Process;
    Sequencer: "sequencer", Process;
    Adoption: "adoption", Process;
    Moves: "moves", Process;
    FeatureLevel: "feature-level", Process;
    Channels: "channels", Process;
    Delivery: "delivery", Process;
    DeliveryDecoding: "delivery-decoding", Process;
    Housekeeping: "housekeeping", Process;
    HousekeepingDisk: "housekeeping-disk", Process;
    DiskWatchdog: "disk-watchdog", Process;
    Scrub: "scrub", Process;
    Consensus: "consensus", Process;
    ConsensusEnd: "consensus-end", Process;
    ConsensusDisk: "consensus-disk", Process;
    ConsensusRole: "consensus-role", Process;
    Apply: "apply", Process;
    Snapshots: "snapshots", Process;
    SnapshotWriting: "snapshot-writing", Process;
    SnapshotFetching: "peer-snapshot-fetching", Request;
    Repair: "peer-repair", Process;
    JournalWriter: "journal-writer", Process;
    JournalPreparer: "journal-preparer", Process;
    JournalSealer: "journal-sealer", Process;
    JournalReader: "journal-reader", Process;
    JournalClosing: "journal-closing", Process;
    Leading: "peer-leading", Process;
    GroupsHeard: "peer-groups-heard", Process;
    WatchedElsewhere: "peer-watching", Process;
    Registration: "peer-registration", Process;
    Admission: "peer-admission", Process;
    Membership: "peer-membership", Process;
    PeerListener: "peer-listener", Process;
    PeerLink: "peer-link", Process;
    Succession: "peer-succession", Process;
    Founding: "peer-founding", Process;
    NodeDirectory: "peer-directory", Process;
    Epochs: "peer-epochs", Process;
    PeerSession: "peer-session", Session;
    PeerRequest: "peer-request", Session;
    RemoteRequest: "peer-proxy-request", Session;
    Forwarding: "peer-forwarding", Process;
    SlowDisk: "peer-slow-disk", Process;
    LeaseRelay: "peer-lease-relay", Process;
    Certificates: "certificates", Process;
    CertificateFiles: "certificate-files", Request;
    TokenKeys: "token-keys", Process;
    TokenKeyFile: "token-key-file", Request;
    KafkaListener: "kafka-listener", Process;
    KafkaLeaders: "peer-kafka-leaders", Process;
    KafkaGroupTimers: "kafka-group-timers", Process;
    KafkaGroupMembers: "kafka-group-members", Process;
    KafkaOffsetExpiry: "kafka-offset-expiry", Process;
    KafkaSession: "kafka-session", Session;
    KafkaLateProduce: "kafka-late-produce", Request;
    Unpacking: "unpacking", Session;
    AmqpListener: "amqp-listener", Process;
    AmqpQueueExpiry: "amqp-queue-expiry", Process;
    AmqpDiskAlarm: "amqp-disk-alarm", Process;
    AmqpSession: "amqp-session", Session;
    AmqpStreamReader: "amqp-stream-reader", Session;
    AmqpOperation: "amqp-operation", Session;
    AmqpTopology: "amqp-topology", Process;
    AmqpProjection: "amqp-projection", Process;
    AmqpSweep: "amqp-sweep", Process;
    AmqpUsers: "amqp-users", Process;
    Quotas: "quotas", Process;
    Audit: "audit", Process;
    TraceWriting: "trace-writing", Process;
    TraceCollecting: "trace-collecting", Process;
    TraceExporting: "trace-exporting", Process;
    TraceAuthorities: "trace-authorities", Request;
    AmqpSessionEnd: "amqp-session-end", Request;
    AmqpPassword: "amqp-password", Request;
    OverviewEnd: "overview-end", Request;
    HttpListener: "http-listener", Process;
    HttpSession: "http-session", Session;
}

impl Task {
    pub fn of_name(name: &str) -> Option<Task> {
        Task::ALL.iter().copied().find(|task| task.name() == name)
    }
}

thread_local! {
    static CURRENT: Cell<Option<Task>> = const { Cell::new(None) };
}

/// Whose code this thread runs now.
pub(crate) fn current() -> Option<Task> {
    // A thread that is ending has no such value any more.
    CURRENT.try_with(Cell::get).ok().flatten()
}

/// For code that has a name of its own within another task.
#[must_use = "the task is left when this is dropped"]
pub fn enter(task: Task) -> Entered {
    Entered::new(task)
}

/// Until it is dropped this thread runs a task's code.
#[derive(Debug)]
pub struct Entered {
    before: Option<Task>,
}

impl Entered {
    pub(crate) fn new(task: Task) -> Self {
        Self { before: CURRENT.replace(Some(task)) }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        for task in Task::ALL {
            assert_eq!(Task::of_name(task.name()), Some(*task));
        }
    }

    #[test]
    fn a_task_within_a_task_gives_way_to_the_outer_one() {
        assert_eq!(current(), None);
        let outer = Entered::new(Task::Apply);
        drop(Entered::new(Task::KafkaSession));
        assert_eq!(current(), Some(Task::Apply));
        drop(outer);
        assert_eq!(current(), None);
    }
}
