//! Reopens broken connections.

use std::time::Duration;

use driver::Failure;

/// Delay before a reconnect.
const AFTER: Duration = Duration::from_millis(200);
/// Time limit of a reconnect. A server that has just started may leave a request unanswered for a
/// minute, and answer a second one at once.
const WITHIN: Duration = Duration::from_secs(10);

pub(crate) async fn reconnect<T>(
    connecting: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    tokio::time::sleep(AFTER).await;
    connected_within(WITHIN, connecting).await
}

async fn connected_within<T>(
    limit: Duration,
    connecting: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    match tokio::time::timeout(limit, connecting).await {
        Ok(connected) => connected,
        Err(_) => Err(Failure::unknown(format!("not connected within {limit:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn reconnect_without_a_reply_times_out() {
        let limit = Duration::from_millis(20);
        let never = connected_within(limit, std::future::pending::<Result<(), _>>()).await;
        assert!(never.expect_err("nobody answers").to_string().contains("20ms"));
        assert_eq!(connected_within(limit, async { Ok(7) }).await, Ok(7));
    }
}
