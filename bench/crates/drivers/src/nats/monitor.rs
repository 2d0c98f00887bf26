//! Whether a server syncs before it acknowledges, asked at its HTTP port.

use driver::Failure;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::PATIENCE;

/// Whether `sync_interval` is `always`.
pub(super) async fn syncs_always(address: &str) -> Result<bool, Failure> {
    let unreachable = |why: String| Failure::Unreachable { endpoint: address.to_owned(), why };
    let fetched = timeout(PATIENCE, fetch(address)).await;
    let text = fetched
        .map_err(|_| unreachable(format!("no answer within {PATIENCE:?}")))?
        .map_err(|error| unreachable(error.to_string()))?;
    let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    let said: Value = serde_json::from_str(body)
        .map_err(|error| unreachable(format!("/jsz is no JSON: {error}")))?;
    Ok(said["config"]["sync_always"].as_bool().unwrap_or(false))
}

async fn fetch(address: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request =
        format!("GET /jsz?config=true HTTP/1.0\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}
