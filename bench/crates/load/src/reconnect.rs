//! A broken connection is made anew.

use std::time::Duration;

use driver::Failure;

/// How long to wait before that.
const AFTER: Duration = Duration::from_millis(200);
/// A server that has just started may leave a question open for a minute, and answer it at once when
/// it is asked again.
const WITHIN: Duration = Duration::from_secs(10);

pub(crate) async fn anew<T>(
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
    async fn who_is_not_answered_does_not_wait_for_ever() {
        let limit = Duration::from_millis(20);
        let never = connected_within(limit, std::future::pending::<Result<(), _>>()).await;
        assert!(never.expect_err("nobody answers").to_string().contains("20ms"));
        assert_eq!(connected_within(limit, async { Ok(7) }).await, Ok(7));
    }
}
