//! Permits for operations that hold much memory, by class.
//!
//! An operation may wait for seconds: for a shard without a leader, or for a slow disk. Each class therefore
//! has permits of its own, and an operation that holds little needs none. Status and decisions about nodes
//! are answered while all other operations wait.

use operations::document::Operation;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::AdminError;
use crate::families::Families;
use crate::limits::{
    BACKUP_OPERATIONS_AT_ONCE_MAX, GROUP_OPERATIONS_AT_ONCE_MAX, RECORD_OPERATIONS_AT_ONCE_MAX,
};

/// Operations that share permits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Class {
    /// Holds a few rows: status, connections, decisions about nodes. Needs no permit.
    Small,
    /// Holds a page of groups or offsets.
    Groups,
    /// Holds a page of records.
    Records,
    /// Holds a piece of a backup.
    Backups,
}

#[derive(Debug)]
pub(crate) struct OperationPermits {
    groups: Semaphore,
    records: Semaphore,
    backups: Semaphore,
}

impl OperationPermits {
    pub(crate) fn new() -> Self {
        Self {
            groups: Semaphore::new(GROUP_OPERATIONS_AT_ONCE_MAX),
            records: Semaphore::new(RECORD_OPERATIONS_AT_ONCE_MAX),
            backups: Semaphore::new(BACKUP_OPERATIONS_AT_ONCE_MAX),
        }
    }

    /// Waits for the operation's permit.
    pub(crate) async fn wait(
        &self,
        families: &Families,
        operation: &Operation,
    ) -> Result<Option<SemaphorePermit<'_>>, AdminError> {
        let holds_data = |family: &str, operation: &_| families.holds_data(family, operation);
        self.of(class_of(operation, holds_data)).await
    }

    async fn of(&self, class: Class) -> Result<Option<SemaphorePermit<'_>>, AdminError> {
        let permits = match class {
            Class::Small => return Ok(None),
            Class::Groups => &self.groups,
            Class::Records => &self.records,
            Class::Backups => &self.backups,
        };
        // The semaphores are never closed.
        let permit = permits.acquire().await;
        permit.map(Some).map_err(|closed| AdminError::Failed(closed.to_string()))
    }
}

fn class_of(
    operation: &Operation,
    holds_data: impl FnOnce(&str, &serde_json::Value) -> bool,
) -> Class {
    match operation {
        Operation::ListShards {}
        | Operation::ElectLeader {}
        | Operation::ListConnections { .. }
        | Operation::CloseConnection { .. } => Class::Small,
        Operation::DeclareQueue { .. }
        | Operation::ListQueues { .. }
        | Operation::DescribeQueue { .. }
        | Operation::PurgeQueue { .. }
        | Operation::PauseQueue { .. }
        | Operation::SeekQueue { .. }
        | Operation::DeleteQueue { .. }
        | Operation::ListDeadLetterTopics {}
        | Operation::ListOffsetGroups { .. }
        | Operation::DescribeOffsetGroup { .. }
        | Operation::SeekOffsetGroup { .. }
        | Operation::DeleteOffsetGroup { .. } => Class::Groups,
        Operation::PeekQueue { .. }
        | Operation::RemoveRecords { .. }
        | Operation::CountDeadLetters { .. }
        | Operation::ShowDeadLetters { .. }
        | Operation::RedriveDeadLetters { .. }
        | Operation::DeleteDeadLetters { .. }
        | Operation::ListScheduled { .. }
        | Operation::CancelScheduled { .. }
        | Operation::DescribeRecord { .. }
        | Operation::FindRecords { .. } => Class::Records,
        Operation::Family { family, operation } => match holds_data(family, operation) {
            true => Class::Backups,
            false => Class::Small,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use operations::document::QueueName;
    use serde_json::{Value, json};
    use tokio::time::timeout;

    use super::*;

    fn class(operation: &Operation) -> Class {
        class_of(operation, |_, operation: &Value| operation["backup"].is_object())
    }

    #[tokio::test]
    async fn status_is_answered_while_all_other_operations_wait() {
        let permits = OperationPermits::new();
        let mut taken = Vec::new();
        for (class, at_once) in [
            (Class::Groups, GROUP_OPERATIONS_AT_ONCE_MAX),
            (Class::Records, RECORD_OPERATIONS_AT_ONCE_MAX),
            (Class::Backups, BACKUP_OPERATIONS_AT_ONCE_MAX),
        ] {
            for _ in 0..at_once {
                let permit = timeout(Duration::from_secs(5), permits.of(class)).await;
                taken.push(permit.expect("other classes take nothing of it").expect("a permit"));
            }
            assert!(timeout(Duration::from_millis(10), permits.of(class)).await.is_err());
        }
        let family = |operation| Operation::Family { family: "cluster".to_owned(), operation };
        let queue = QueueName { topic: "t".to_owned(), group: "g".to_owned() };
        for (operation, needs) in [
            (Operation::ListShards {}, Class::Small),
            (Operation::CloseConnection { connection: 1 }, Class::Small),
            (family(json!({"status": {}})), Class::Small),
            (family(json!({"drain-node": {"node": 1}})), Class::Small),
            (family(json!({"backup": {}})), Class::Backups),
            (Operation::DescribeQueue { queue }, Class::Groups),
        ] {
            assert_eq!(class(&operation), needs, "{operation:?}");
            let permit = timeout(Duration::from_millis(10), permits.of(needs)).await;
            assert_eq!(permit.is_ok(), needs == Class::Small, "{operation:?}");
        }
    }
}
