//! Nodes that request to join the cluster, until a node decides on them.

use std::collections::BTreeMap;
use std::time::Duration;

use links::JoiningNode;
use parking_lot::Mutex;
use tokio::sync::watch;
use uuid::Uuid;
use world::Instant;

/// An applicant without a request for this long has given up.
const ASKS_WITHIN: Duration = Duration::from_secs(10);
/// Limit of concurrent applicants. They are trusted to belong to the cluster's operators, but may still request
/// too often.
const APPLICANTS_MAX: usize = 16;

/// Nodes that request to join.
#[derive(Debug, Default)]
pub(crate) struct Applicants {
    waiting: watch::Sender<BTreeMap<Uuid, Applicant>>,
    turned_down: Mutex<BTreeMap<Uuid, String>>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Applicant {
    joining: JoiningNode,
    asked: Instant,
}

/// The waiting applicants, with their changes.
#[derive(Clone, Debug)]
pub struct ApplicantWatch(watch::Receiver<BTreeMap<Uuid, Applicant>>);

impl ApplicantWatch {
    /// The applicants that wait now.
    pub fn waiting(&mut self) -> Vec<JoiningNode> {
        let applicants = self.0.borrow_and_update();
        let live = applicants.values().filter(|it| it.asked.elapsed() < ASKS_WITHIN);
        live.map(|it| it.joining.clone()).collect()
    }

    /// Waits for a request. Never ends once the node is gone.
    pub async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl Applicants {
    pub(crate) fn watch(&self) -> ApplicantWatch {
        ApplicantWatch(self.waiting.subscribe())
    }

    /// Records an applicant, unless it was turned down: then returns the reason once. A further request is a new
    /// one.
    pub(crate) fn apply(&self, joining: &JoiningNode) -> Result<(), String> {
        if let Some(reason) = self.turned_down.lock().remove(&joining.directory) {
            return Err(reason);
        }
        let applicant = Applicant { joining: joining.clone(), asked: Instant::now() };
        self.waiting.send_if_modified(|waiting| {
            waiting.retain(|_, it| it.asked.elapsed() < ASKS_WITHIN);
            if let Some(known) = waiting.get_mut(&joining.directory) {
                let is_new = known.joining != applicant.joining;
                *known = applicant;
                return is_new;
            }
            let has_room = waiting.len() < APPLICANTS_MAX;
            if has_room {
                waiting.insert(joining.directory, applicant);
            }
            has_room
        });
        Ok(())
    }

    pub(crate) fn turn_down(&self, directory: Uuid, reason: String) {
        let mut turned_down = self.turned_down.lock();
        if turned_down.len() >= APPLICANTS_MAX {
            turned_down.pop_first();
        }
        turned_down.insert(directory, reason);
        drop(turned_down);
        self.let_in(|asks| asks == directory);
    }

    /// Removes applicants that were let in.
    pub(crate) fn let_in(&self, is_in: impl Fn(Uuid) -> bool) {
        self.waiting.send_if_modified(|waiting| {
            waiting.retain(|directory, _| !is_in(*directory));
            // The watchers need not run for that.
            false
        });
    }
}

#[cfg(test)]
mod tests {
    use base::Levels;

    use super::*;

    fn joining(directory: u128) -> JoiningNode {
        let (directory, address) = (Uuid::from_u128(directory), "a:1".to_owned());
        JoiningNode { directory, boot: 1, address, levels: Levels::OURS }
    }

    #[tokio::test(start_paused = true)]
    async fn applicant_waits_until_it_is_let_in_turned_down_or_silent() {
        let applicants = Applicants::default();
        let mut watch = applicants.watch();
        assert_eq!(applicants.apply(&joining(1)), Ok(()));
        watch.changed().await;
        assert_eq!(watch.waiting(), [joining(1)]);
        assert_eq!(applicants.apply(&joining(1)), Ok(()));
        assert_eq!(applicants.apply(&joining(2)), Ok(()));
        applicants.let_in(|directory| directory == Uuid::from_u128(1));
        assert_eq!(watch.waiting(), [joining(2)]);

        applicants.turn_down(Uuid::from_u128(2), "no".to_owned());
        assert_eq!(watch.waiting(), []);
        assert_eq!(applicants.apply(&joining(2)), Err("no".to_owned()));
        assert_eq!(applicants.apply(&joining(2)), Ok(()), "it asks anew");
        tokio::time::advance(ASKS_WITHIN).await;
        assert_eq!(watch.waiting(), []);
    }

    #[tokio::test]
    async fn number_of_applicants_is_bounded() {
        let applicants = Applicants::default();
        for directory in 1..100 {
            assert_eq!(applicants.apply(&joining(directory)), Ok(()));
            applicants.turn_down(Uuid::from_u128(directory + 1_000), String::new());
        }
        assert_eq!(applicants.watch().waiting().len(), APPLICANTS_MAX);
        assert_eq!(applicants.turned_down.lock().len(), APPLICANTS_MAX);
    }
}
