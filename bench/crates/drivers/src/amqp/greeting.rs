//! The first frame of an AMQP 0-9-1 server, which names its product and version; the client library
//! does not expose it. Sections 2.2.4 (protocol header) and 4.2.5.5 (field tables) of the standard.

use driver::Failure;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::PATIENCE;

const PROTOCOL_HEADER: &[u8] = b"AMQP\x00\x00\x09\x01";
/// Larger than any server's greeting.
const FRAME_BYTES_MAX: usize = 1 << 20;
/// Class and method of `connection.start`, and its two version octets.
const START: [u8; 6] = [0, 10, 0, 10, 0, 9];

/// Product and version, as reported by the server at `host:port`.
pub(super) async fn product(address: &str) -> Result<String, Failure> {
    let unreachable = |why: String| Failure::Unreachable { endpoint: address.to_owned(), why };
    match timeout(PATIENCE, first_payload(address)).await {
        Err(_) => Err(unreachable(format!("no answer within {PATIENCE:?}"))),
        Ok(Err(error)) => Err(unreachable(error.to_string())),
        Ok(Ok(payload)) => {
            parse(&payload).ok_or_else(|| unreachable("it does not speak AMQP 0-9-1".into()))
        }
    }
}

async fn first_payload(address: &str) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(PROTOCOL_HEADER).await?;
    // Type, channel and size.
    let mut header = [0; 7];
    stream.read_exact(&mut header).await?;
    let size = u32::from_be_bytes([header[3], header[4], header[5], header[6]]) as usize;
    let mut payload = vec![0; size.min(FRAME_BYTES_MAX)];
    stream.read_exact(&mut payload).await?;
    Ok(payload)
}

fn parse(payload: &[u8]) -> Option<String> {
    let mut rest = payload.strip_prefix(&START)?;
    let size = u32::from_be_bytes(take(&mut rest, 4)?.try_into().ok()?);
    let mut table = take(&mut rest, size as usize)?;
    let (mut product, mut version) = (None, None);
    while !table.is_empty() {
        let length = take(&mut table, 1)?[0];
        let name = take(&mut table, length.into())?;
        let value = string_value(&mut table)?;
        match name {
            b"product" => product = value,
            b"version" => version = value,
            _ => {}
        }
    }
    Some([product, version].into_iter().flatten().collect::<Vec<_>>().join(" "))
}

/// Reads one field. Servers send strings and tables only; any other type ends the parse.
fn string_value(table: &mut &[u8]) -> Option<Option<String>> {
    let kind = take(table, 1)?[0];
    match kind {
        b'S' | b'F' => {
            let size = u32::from_be_bytes(take(table, 4)?.try_into().ok()?);
            let bytes = take(table, size as usize)?;
            Some((kind == b'S').then(|| String::from_utf8_lossy(bytes).into_owned()))
        }
        b't' | b'b' | b'B' => take(table, 1).map(|_| None),
        b'I' | b'i' => take(table, 4).map(|_| None),
        b'l' => take(table, 8).map(|_| None),
        _ => None,
    }
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(count)?;
    *rest = left;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greeting_is_parsed_unless_truncated() {
        let mut payload = START.to_vec();
        let table = [
            &b"\x0ccapabilitiesF\0\0\0\x04\x01at\x01"[..],
            b"\x07productS\0\0\0\x08RabbitMQ",
            b"\x07versionS\0\0\0\x054.0.5",
        ]
        .concat();
        payload.extend((table.len() as u32).to_be_bytes());
        payload.extend(table);
        assert_eq!(parse(&payload).as_deref(), Some("RabbitMQ 4.0.5"));
        for cut in 0..payload.len() {
            assert_eq!(parse(&payload[..cut]), None, "{cut}");
        }
    }
}
