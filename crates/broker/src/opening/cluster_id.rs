//! The cluster's identity. A node that is alone creates it once, with its data directory, and stores it there.

use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;

use base::checksum::crc32c;
use uuid::Uuid;
use world::disk::replace;
use world::{Disk, World};

use crate::error::OpenError;

const FILE: &str = "cluster";
const MAGIC: &[u8; 8] = b"PRclust1";
/// Magic, id, checksum of both.
const LEN: usize = 8 + 16 + 4;

/// Returns the id in the form of Kafka's cluster ids: a UUID in unpadded URL-safe base64, 22 characters. A member of
/// a cluster returns that cluster's id.
pub(crate) fn open(
    world: &World,
    dir: &Path,
    member: Option<&cluster::Node>,
) -> Result<Arc<str>, OpenError> {
    if let Some(member) = member {
        return Ok(base64_url(member.identity().at.cluster.as_bytes()).into());
    }
    let disk = &*world.disk;
    let path = dir.join(FILE);
    let names =
        disk.list(dir).map_err(|source| io_error(format!("reading {}", dir.display()), source))?;
    if names.iter().any(|name| name == cluster::MEMBER_FILE) {
        return Err(OpenError::Member { dir: dir.to_path_buf() });
    }
    let known = names.iter().any(|name| name == FILE);
    let id = if known { load(disk, &path)? } else { create(world, dir, &path)? };
    Ok(base64_url(id.as_bytes()).into())
}

fn load(disk: &dyn Disk, path: &Path) -> Result<Uuid, OpenError> {
    let damaged = |reason: &str| OpenError::Cluster {
        path: path.display().to_string(),
        reason: format!("{reason}; restore the file, or remove it to give the node a new identity"),
    };
    let reading = |source| io_error(format!("reading {}", path.display()), source);
    let file = disk.open(path, false).map_err(reading)?;
    let mut bytes = [0; LEN];
    if file.read_at(&mut bytes, 0).map_err(reading)? != LEN {
        return Err(damaged("it is too short"));
    }
    let (content, checksum) = bytes.split_at(LEN - 4);
    if checksum != crc32c(content).to_le_bytes() {
        return Err(damaged("its checksum does not hold"));
    }
    if !content.starts_with(MAGIC) {
        return Err(damaged("it is something else"));
    }
    Uuid::from_slice(&content[MAGIC.len()..]).map_err(|_| damaged("it holds no id"))
}

fn create(world: &World, dir: &Path, path: &Path) -> Result<Uuid, OpenError> {
    let disk = &*world.disk;
    let writing = |source| io_error(format!("writing {}", path.display()), source);
    let id = world.entropy.uuid();
    let mut content = MAGIC.to_vec();
    content.extend_from_slice(id.as_bytes());
    content.extend_from_slice(&crc32c(&content).to_le_bytes());
    // A crash in between leaves no identity: the next start creates another.
    replace(disk, dir, FILE, &mut [IoSlice::new(&content)]).map_err(writing)?;
    Ok(id)
}

fn io_error(doing: String, source: std::io::Error) -> OpenError {
    OpenError::Io { doing, source }
}

/// RFC 4648 section 5, without padding.
fn base64_url(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0_u32, |word, byte| word << 8 | u32::from(*byte));
        let word = word << (8 * (3 - chunk.len()));
        for place in 0..=chunk.len() {
            text.push(char::from(ALPHABET[(word >> (18 - 6 * place) & 63) as usize]));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_follows_the_test_vectors_of_rfc_4648() {
        for (plain, coded) in
            [("", ""), ("f", "Zg"), ("fo", "Zm8"), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            assert_eq!(base64_url(plain.as_bytes()), coded);
        }
        assert_eq!(base64_url(&[0xfb, 0xff]), "-_8");
    }
}
