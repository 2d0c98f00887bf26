//! The table of tasks and threads.

use std::cell::Cell;

/// Consequence of an unrequested end of a task or thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EndConsequence {
    /// The task is vital: the process ends.
    Process,
    /// The connection that it belongs to is closed, and nothing else.
    Session,
    /// Its request fails; the session continues.
    Request,
}

impl EndConsequence {
    pub fn name(self) -> &'static str {
        match self {
            EndConsequence::Process => "process",
            EndConsequence::Session => "session",
            EndConsequence::Request => "request",
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

            /// Name in messages, in the documentation and for [`crate::inject`].
            pub fn name(self) -> &'static str {
                match self {
                    $(Task::$task => $name,)*
                }
            }

            pub fn end(self) -> EndConsequence {
                match self {
                    $(Task::$task => EndConsequence::$end,)*
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
    Propagation: "peer-propagation", Process;
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
    pub fn from_name(name: &str) -> Option<Task> {
        Task::ALL.iter().copied().find(|task| task.name() == name)
    }
}

thread_local! {
    static CURRENT: Cell<Option<Task>> = const { Cell::new(None) };
}

/// The task whose code this thread runs now.
pub(crate) fn current() -> Option<Task> {
    // An ending thread has already destroyed its thread-locals.
    CURRENT.try_with(Cell::get).ok().flatten()
}

/// For code with a name of its own within another task.
#[must_use = "the task is left when this is dropped"]
pub fn enter(task: Task) -> TaskGuard {
    TaskGuard::new(task)
}

/// Marks this thread as running a task's code until it is dropped.
#[derive(Debug)]
pub struct TaskGuard {
    before: Option<Task>,
}

impl TaskGuard {
    pub(crate) fn new(task: Task) -> Self {
        Self { before: CURRENT.replace(Some(task)) }
    }
}

impl Drop for TaskGuard {
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
            assert_eq!(Task::from_name(task.name()), Some(*task));
        }
    }

    #[test]
    fn leaving_an_inner_task_restores_the_outer_task() {
        assert_eq!(current(), None);
        let outer = TaskGuard::new(Task::Apply);
        drop(TaskGuard::new(Task::KafkaSession));
        assert_eq!(current(), Some(Task::Apply));
        drop(outer);
        assert_eq!(current(), None);
    }
}
