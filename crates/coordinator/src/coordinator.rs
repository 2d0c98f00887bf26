//! The owner of groups and their tasks.

use std::ops::Deref;
use std::sync::{Arc, Weak};

use tokio::task::JoinHandle;

use crate::Registry;
use crate::registry::Totals;

/// All groups of a coordinator, and their tasks, for as long as the node is their coordinator. Dropping it ends
/// both at once: waiting requests find their other end closed, and tasks are cancelled.
#[derive(Debug, Default)]
pub struct Coordinator {
    registry: Arc<Registry>,
    tasks: Vec<JoinHandle<()>>,
}

impl Coordinator {
    /// One of several coordinators that share the bounds of groups.
    #[must_use]
    pub fn among(totals: &Arc<Totals>) -> Self {
        Self { registry: Arc::new(Registry::new(Arc::clone(totals))), tasks: Vec::new() }
    }

    /// A reference to the groups for a task that has to end with the coordinator.
    #[must_use]
    pub fn registry(&self) -> Weak<Registry> {
        Arc::downgrade(&self.registry)
    }

    /// Cancels the task when the coordinator ends.
    pub fn own(&mut self, task: JoinHandle<()>) {
        self.tasks.push(task);
    }
}

impl Deref for Coordinator {
    type Target = Registry;

    fn deref(&self) -> &Registry {
        &self.registry
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::oneshot::error::TryRecvError;

    use super::*;
    use crate::Group;
    use crate::classic::{ClassicGroup, JoinLimits};
    use crate::registry::watch_deadlines;
    use crate::text;

    #[tokio::test]
    async fn waiting_requests_and_timers_end_with_the_coordinator() {
        let mut coordinator = Coordinator::default();
        let limits = JoinLimits { initial_delay: Duration::ZERO, members_max: 1 };
        let timers = tokio::spawn(watch_deadlines(coordinator.registry(), move || limits));
        let cancelled = timers.abort_handle();
        coordinator.own(timers);
        let mut answer = coordinator.visit_and_wait("g", |visit, _| {
            *visit.group = Some(Group::Classic(ClassicGroup::new(text("g"))));
        });
        tokio::task::yield_now().await;
        assert_eq!(answer.try_recv().map(drop), Err(TryRecvError::Empty));
        drop(coordinator);
        assert_eq!(answer.try_recv().map(drop), Err(TryRecvError::Closed));
        tokio::task::yield_now().await;
        assert!(cancelled.is_finished());
    }
}
