//! The four codecs of Kafka. Decompression is bounded: the caller limits the size, and a bomb is
//! refused when it reaches the limit, not when it has filled memory.
//!
//! Each is framed as the Java client frames it, since every other client had to learn to read that:
//! gzip's own format, snappy in the blocks of xerial's `SnappyOutputStream`, LZ4 frames of
//! independent blocks, Zstandard frames.

use std::fmt;
use std::io::{self, Read, Write};
use std::str::FromStr;

use thiserror::Error;

/// The codec of a batch; the number is the one in its attributes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
#[repr(u8)]
pub enum Compression {
    #[default]
    None = 0,
    Gzip = 1,
    Snappy = 2,
    Lz4 = 3,
    Zstd = 4,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CompressionError {
    #[error("it unfolds to more than {limit} bytes")]
    TooLarge { limit: usize },
    #[error("its data is corrupt: {reason}")]
    Corrupt { reason: String },
    #[error("{bytes} bytes follow its end")]
    TrailingBytes { bytes: usize },
}

/// Not the name of a codec.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("unknown compression `{0}`: expected none, gzip, snappy, lz4 or zstd")]
pub struct UnknownCompressionName(pub String);

impl Compression {
    pub const ALL: [Self; 5] = [Self::None, Self::Gzip, Self::Snappy, Self::Lz4, Self::Zstd];

    pub const fn from_id(id: u8) -> Option<Self> {
        match id {
            0 => Some(Self::None),
            1 => Some(Self::Gzip),
            2 => Some(Self::Snappy),
            3 => Some(Self::Lz4),
            4 => Some(Self::Zstd),
            _ => None,
        }
    }

    pub const fn id(self) -> u8 {
        self as u8
    }

    /// The name in Kafka's configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }

    pub const fn is_none(self) -> bool {
        matches!(self, Self::None)
    }

    /// Appends `bytes`, compressed, to `out`.
    pub fn compress(self, bytes: &[u8], out: &mut Vec<u8>) {
        self.compress_at(None, bytes, out);
    }

    /// As [`Compression::compress`], with a level for gzip or Zstandard; the other codecs have no
    /// levels.
    pub fn compress_at(self, level: Option<i32>, bytes: &[u8], out: &mut Vec<u8>) {
        let done = match self {
            Self::None => {
                out.extend_from_slice(bytes);
                Ok(())
            }
            Self::Gzip => gzip(level, bytes, out),
            Self::Snappy => {
                snappy(bytes, out);
                Ok(())
            }
            Self::Lz4 => lz4(bytes, out),
            Self::Zstd => {
                // In one call: a stream of unknown length at a high level takes a gigabyte.
                zstd::bulk::compress(bytes, level.unwrap_or(zstd::DEFAULT_COMPRESSION_LEVEL))
                    .map(|packed| out.extend_from_slice(&packed))
            }
        };
        done.expect("writing to memory does not fail");
    }

    /// Decompresses `bytes` to at most `bytes_max`.
    pub fn decompress(self, bytes: &[u8], bytes_max: usize) -> Result<Vec<u8>, CompressionError> {
        match self {
            Self::None if bytes.len() > bytes_max => {
                Err(CompressionError::TooLarge { limit: bytes_max })
            }
            Self::None => Ok(bytes.to_vec()),
            Self::Gzip => {
                let mut decoder = flate2::bufread::GzDecoder::new(bytes);
                let unpacked = read_bounded(&mut decoder, bytes.len(), bytes_max)?;
                expect_end(decoder.into_inner(), unpacked)
            }
            Self::Snappy => unsnappy(bytes, bytes_max),
            Self::Lz4 => {
                let mut decoder = lz4_flex::frame::FrameDecoder::new(bytes);
                let unpacked = read_bounded(&mut decoder, bytes.len(), bytes_max)?;
                expect_end(decoder.into_inner(), unpacked)
            }
            Self::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(bytes)
                    .map_err(corrupt)?
                    .single_frame();
                let unpacked = read_bounded(&mut decoder, bytes.len(), bytes_max)?;
                expect_end(decoder.finish(), unpacked)
            }
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Compression {
    type Err = UnknownCompressionName;

    /// Kafka's names, and `uncompressed`, the name of none in a topic's `compression.type`.
    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "none" | "uncompressed" => Ok(Self::None),
            "gzip" => Ok(Self::Gzip),
            "snappy" => Ok(Self::Snappy),
            "lz4" => Ok(Self::Lz4),
            "zstd" => Ok(Self::Zstd),
            _ => Err(UnknownCompressionName(name.to_owned())),
        }
    }
}

fn corrupt(reason: impl fmt::Display) -> CompressionError {
    CompressionError::Corrupt { reason: reason.to_string() }
}

fn read_bounded(
    decoder: &mut impl Read,
    packed_len: usize,
    bytes_max: usize,
) -> Result<Vec<u8>, CompressionError> {
    // Guesses the usual ratio; the vector grows with the real output.
    let mut unpacked = Vec::with_capacity(packed_len.saturating_mul(3).min(bytes_max));
    // One byte more than allowed, to distinguish the limit from the end.
    let mut decoder = decoder.take(bytes_max as u64 + 1);
    decoder.read_to_end(&mut unpacked).map_err(corrupt)?;
    if unpacked.len() > bytes_max {
        return Err(CompressionError::TooLarge { limit: bytes_max });
    }
    Ok(unpacked)
}

fn expect_end(rest: &[u8], unpacked: Vec<u8>) -> Result<Vec<u8>, CompressionError> {
    match rest.len() {
        0 => Ok(unpacked),
        bytes => Err(CompressionError::TrailingBytes { bytes }),
    }
}

fn gzip(level: Option<i32>, bytes: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
    let level = match level.and_then(|level| u32::try_from(level).ok()) {
        Some(level) => flate2::Compression::new(level.min(9)),
        None => flate2::Compression::default(),
    };
    let mut encoder = flate2::write::GzEncoder::new(out, level);
    encoder.write_all(bytes)?;
    encoder.finish().map(drop)
}

fn lz4(bytes: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
    use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
    // The Java client's own decoder reads independent blocks only; 64 KB is what it writes.
    let info = FrameInfo::new().block_mode(BlockMode::Independent).block_size(BlockSize::Max64KB);
    let mut encoder = FrameEncoder::with_frame_info(info, out);
    encoder.write_all(bytes)?;
    encoder.finish()?;
    Ok(())
}

/// Header of xerial's stream: its name, then its version and the minimum compatible version, both
/// 1.
const XERIAL_NAME: [u8; 8] = *b"\x82SNAPPY\0";
const XERIAL_VERSIONS: [u8; 8] = [0, 0, 0, 1, 0, 0, 0, 1];
/// Block size of the Java client.
const XERIAL_BLOCK_BYTES: usize = 32 << 10;

fn snappy(bytes: &[u8], out: &mut Vec<u8>) {
    let mut encoder = snap::raw::Encoder::new();
    out.extend_from_slice(&XERIAL_NAME);
    out.extend_from_slice(&XERIAL_VERSIONS);
    for block in bytes.chunks(XERIAL_BLOCK_BYTES) {
        let length_at = out.len();
        let block_at = length_at + 4;
        out.resize(block_at + snap::raw::max_compress_len(block.len()), 0);
        let packed_len = encoder
            .compress(block, &mut out[block_at..])
            .expect("there is room for the longest block");
        out.truncate(block_at + packed_len);
        out[length_at..block_at].copy_from_slice(&(packed_len as u32).to_be_bytes());
    }
}

/// Clients not written in Java may send one bare block instead of xerial's stream.
fn unsnappy(bytes: &[u8], bytes_max: usize) -> Result<Vec<u8>, CompressionError> {
    let mut unpacked = Vec::new();
    let Some(mut rest) = bytes.strip_prefix(&XERIAL_NAME) else {
        unsnappy_block(bytes, bytes_max, &mut unpacked)?;
        return Ok(unpacked);
    };
    rest = rest.get(XERIAL_VERSIONS.len()..).ok_or_else(|| corrupt("snappy header is cut off"))?;
    while !rest.is_empty() {
        // Streams may be concatenated: a header is then in the place of a block's length.
        if let Some(joined) = rest.strip_prefix(&XERIAL_NAME) {
            rest = joined
                .get(XERIAL_VERSIONS.len()..)
                .ok_or_else(|| corrupt("snappy header is cut off"))?;
            continue;
        }
        let (length, blocks) = rest
            .split_first_chunk::<4>()
            .ok_or_else(|| corrupt("length of a snappy block is cut off"))?;
        let (block, blocks) = blocks
            .split_at_checked(u32::from_be_bytes(*length) as usize)
            .ok_or_else(|| corrupt("snappy block is cut off"))?;
        unsnappy_block(block, bytes_max, &mut unpacked)?;
        rest = blocks;
    }
    Ok(unpacked)
}

fn unsnappy_block(
    block: &[u8],
    bytes_max: usize,
    unpacked: &mut Vec<u8>,
) -> Result<(), CompressionError> {
    let block_len = snap::raw::decompress_len(block).map_err(corrupt)?;
    if block_len > bytes_max - unpacked.len() {
        return Err(CompressionError::TooLarge { limit: bytes_max });
    }
    // The length is untrusted. A copy of three bytes produces at most 64, so a larger length is
    // false, and nothing is reserved for it.
    if block_len > block.len().saturating_mul(64) / 3 {
        return Err(corrupt("snappy block claims more than it can hold"));
    }
    let start = unpacked.len();
    unpacked.resize(start + block_len, 0);
    snap::raw::Decoder::new().decompress(block, &mut unpacked[start..]).map_err(corrupt)?;
    Ok(())
}
