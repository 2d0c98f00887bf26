//! Asks the node that leads a shard about its rows, and the next one where that leads no more.

use bytes::Bytes;
use tokio::time::{Duration, Instant, sleep};

use crate::error::{FetchError, Unavailable};
use crate::local_shard::LocalShard;
use crate::question::{Question, Told};
use crate::remote::Remote;

/// A leader is looked for, and waited for, so long: an election takes less.
pub(crate) const ANSWERED_WITHIN: Duration = Duration::from_secs(3);
/// Before the leader of a shard is asked again, or looked for.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(10);

/// Asks until somebody answers who leads. Fails where nobody is known to lead, or nobody answers in time.
pub(crate) async fn ask_leader(
    remote: Option<&Remote>,
    shard: &LocalShard,
    question: &Question,
    within: Duration,
) -> Result<(Told, Bytes), FetchError> {
    let deadline = Instant::now() + within;
    loop {
        let asked = ask_once(remote, shard, question, deadline).await;
        let why = match asked {
            Err(FetchError::Unavailable(
                why @ (Unavailable::NotLeader | Unavailable::Unanswered),
            )) => why,
            answered => return answered,
        };
        if Instant::now() + ASK_AGAIN_AFTER >= deadline {
            return Err(why.into());
        }
        sleep(ASK_AGAIN_AFTER).await;
    }
}

async fn ask_once(
    remote: Option<&Remote>,
    shard: &LocalShard,
    question: &Question,
    deadline: Instant,
) -> Result<(Told, Bytes), FetchError> {
    if shard.is_led_here() {
        let (told, pieces) = shard.tell(question.clone()).await?;
        return Ok((told, pieces.concat().into()));
    }
    match (shard.leader(), remote) {
        (Some(leader), Some(remote)) => {
            remote.ask_about_rows(leader, shard.id(), question, deadline).await
        }
        _ => Err(Unavailable::NotLeader.into()),
    }
}

/// The same, for what `part` takes out of the answer.
pub(crate) async fn ask_leader_for<T>(
    remote: Option<&Remote>,
    shard: &LocalShard,
    question: &Question,
    within: Duration,
    part: impl FnOnce(Told) -> Option<T>,
) -> Result<T, Unavailable> {
    match ask_leader(remote, shard, question, within).await {
        Ok((told, _)) => part(told).ok_or(Unavailable::Unanswered),
        Err(FetchError::Unavailable(why)) => Err(why),
        Err(error) => {
            tracing::warn!(shard = %shard.id(), %error, "a leader does not answer what it is asked");
            Err(Unavailable::Unanswered)
        }
    }
}
