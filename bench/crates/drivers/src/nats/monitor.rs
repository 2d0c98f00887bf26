//! Queries a server's HTTP port for whether it syncs before it acknowledges.

use driver::Failure;
use tokio::time::timeout;

use super::PATIENCE;
use crate::http;

/// Whether `sync_interval` is `always`.
pub(super) async fn syncs_always(address: &str) -> Result<bool, Failure> {
    let unreachable = |why: String| Failure::Unreachable { endpoint: address.to_owned(), why };
    let asked = timeout(PATIENCE, http::json(address, "/jsz?config=true", None)).await;
    let said = asked
        .map_err(|_| unreachable(format!("no answer within {PATIENCE:?}")))?
        .map_err(|error| unreachable(error.to_string()))?;
    Ok(said["config"]["sync_always"].as_bool().unwrap_or(false))
}
