//! Requests as frames, and frames as replies, without I/O.
//!
//! A frame is an `int32` length and as many bytes (Kafka's protocol guide, "Protocol Primitive Types"). The module
//! neither reads nor writes, so that blocking sockets, async sockets and simulated streams share it, and tests need
//! none of them.

use std::ops::RangeInclusive;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use kafka_protocol::messages::{ApiKey, RequestHeader, ResponseHeader};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};

use crate::error::{Api, FrameError};

/// A larger reply is a fault, or text of another protocol read as a length.
pub(crate) const ANSWER_BYTES_MAX: usize = 256 << 20;
pub(crate) const LENGTH_LEN: usize = 4;
/// Length of the correlation id, with which every reply begins.
pub(crate) const CORRELATION_LEN: usize = 4;
/// Size of one read while replies are small.
pub(crate) const READ_LEN: usize = 8 << 10;
/// Upper limit of the bytes before an operation's document, without the client's name.
const OPERATE_HEAD_LEN: usize = 64;

pub(crate) fn api_of<R: Request>() -> Api {
    Api::Kafka(ApiKey::try_from(R::KEY).expect("every request of the message crate has a key"))
}

/// The highest version in both.
pub(crate) fn overlap(theirs: &RangeInclusive<i16>, ours: &RangeInclusive<i16>) -> Option<i16> {
    let (low, high) = (*theirs.start().max(ours.start()), *theirs.end().min(ours.end()));
    (low <= high).then_some(high)
}

/// Appends the whole frame of a request, with its length prefix. After an error `to` is unchanged.
pub(crate) fn put_request<R: Request>(
    to: &mut BytesMut,
    client_id: &StrBytes,
    correlation: i32,
    version: i16,
    request: &R,
) -> Result<(), FrameError> {
    let api = api_of::<R>();
    let unsendable = |reason: String| FrameError::Unsendable { api, reason };
    let header = RequestHeader::default()
        .with_request_api_key(R::KEY)
        .with_request_api_version(version)
        .with_correlation_id(correlation)
        .with_client_id(Some(client_id.clone()));
    let size = request.compute_size(version).map_err(|error| unsendable(error.to_string()))?;
    let begin = to.len();
    to.reserve(size + client_id.len() + 64);
    to.put_i32(0);
    let encoded = header
        .encode(to, R::header_version(version))
        .and_then(|()| request.encode(to, version))
        .map_err(|error| unsendable(error.to_string()));
    encoded.and_then(|()| put_length(to, begin, api)).inspect_err(|_| to.truncate(begin))
}

/// Appends the whole frame of `Operate`, whose format the crate [`operations`] describes.
pub(crate) fn put_operate(
    to: &mut BytesMut,
    client_id: &StrBytes,
    correlation: i32,
    version: i16,
    document: &[u8],
) -> Result<(), FrameError> {
    let too_long = || FrameError::Unsendable {
        api: Api::Operate,
        reason: "it is longer than its length can say".to_owned(),
    };
    let body = i32::try_from(document.len()).map_err(|_| too_long())?;
    let name = i16::try_from(client_id.len()).map_err(|_| too_long())?;
    let begin = to.len();
    to.reserve(document.len() + client_id.len() + OPERATE_HEAD_LEN);
    to.put_i32(0);
    to.put_i16(operations::API_KEY);
    to.put_i16(version);
    to.put_i32(correlation);
    to.put_i16(name);
    to.put_slice(client_id.as_bytes());
    to.put_i32(body);
    to.put_slice(document);
    put_length(to, begin, Api::Operate).inspect_err(|_| to.truncate(begin))
}

fn put_length(frames: &mut BytesMut, begin: usize, api: Api) -> Result<(), FrameError> {
    let length = i32::try_from(frames.len() - begin - LENGTH_LEN)
        .map_err(|_| FrameError::Unsendable { api, reason: "it is over 2 GB".to_owned() })?;
    frames[begin..begin + LENGTH_LEN].copy_from_slice(&length.to_be_bytes());
    Ok(())
}

/// Size of the first frame in `arrived`, its length prefix included; `None` while the prefix is incomplete.
pub(crate) fn frame_len(arrived: &[u8]) -> Result<Option<usize>, FrameError> {
    let Some(length) = arrived.first_chunk() else { return Ok(None) };
    let length = i32::from_be_bytes(*length);
    match usize::try_from(length) {
        Ok(bytes) if (CORRELATION_LEN..=ANSWER_BYTES_MAX).contains(&bytes) => {
            Ok(Some(LENGTH_LEN + bytes))
        }
        _ => Err(FrameError::ImpossibleLength { length }),
    }
}

/// Takes the first frame, without its length prefix; `None` while it is incomplete.
pub(crate) fn take_frame(arrived: &mut BytesMut) -> Result<Option<Bytes>, FrameError> {
    match frame_len(arrived)? {
        Some(length) if arrived.len() >= length => {
            arrived.advance(LENGTH_LEN);
            Ok(Some(arrived.split_to(length - LENGTH_LEN).freeze()))
        }
        _ => Ok(None),
    }
}

/// Number of bytes missing until the first frame is complete, as far as known: at least 1 while it is incomplete.
pub(crate) fn missing(arrived: &[u8]) -> Result<usize, FrameError> {
    let length = frame_len(arrived)?.unwrap_or(LENGTH_LEN);
    Ok(length.saturating_sub(arrived.len()).max(1))
}

/// Reserves memory for the rest of the first frame, or for many small ones.
pub(crate) fn make_room(arrived: &mut BytesMut) -> Result<(), FrameError> {
    let missing = missing(arrived)?;
    if arrived.capacity() - arrived.len() < missing {
        arrived.reserve(missing.max(READ_LEN));
    }
    Ok(())
}

/// The correlation id of a frame from [`take_frame`], which is never shorter than that.
pub(crate) fn correlation_of(frame: &[u8]) -> i32 {
    frame.first_chunk().map_or(0, |id| i32::from_be_bytes(*id))
}

/// Like [`decode`], for a reply that must fill its frame.
pub(crate) fn decode_whole<R: Request>(
    mut frame: Bytes,
    version: i16,
) -> Result<R::Response, FrameError> {
    let answer = decode_part::<R>(&mut frame, version)?;
    match frame.len() {
        0 => Ok(answer),
        bytes => {
            let reason = format!("{bytes} bytes follow it");
            Err(FrameError::Unreadable { api: api_of::<R>(), reason })
        }
    }
}

/// Decodes a reply that begins with its correlation id.
///
/// The message crate reserves memory for as many elements as an array claims to have. A gateway checks requests
/// before it decodes them. Replies come from a broker that the caller chose, and are bounded by their frame alone: a
/// hostile broker can make the process run out of memory.
pub(crate) fn decode<R: Request>(
    mut frame: Bytes,
    version: i16,
) -> Result<R::Response, FrameError> {
    decode_part::<R>(&mut frame, version)
}

fn decode_part<R: Request>(frame: &mut Bytes, version: i16) -> Result<R::Response, FrameError> {
    ResponseHeader::decode(frame, R::Response::header_version(version))
        .and_then(|_| R::Response::decode(frame, version))
        .map_err(|error| FrameError::Unreadable { api: api_of::<R>(), reason: error.to_string() })
}

/// The reply of `Operate`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct OperateReply {
    /// 0, or the protocol's code of a refusal.
    pub(crate) code: i16,
    pub(crate) message: Option<String>,
    /// A JSON document; empty after a refusal.
    pub(crate) document: Bytes,
}

/// Decodes a reply of `Operate` that begins with its correlation id.
pub(crate) fn decode_operated(frame: Bytes) -> Result<OperateReply, FrameError> {
    let cut_off = || FrameError::Unreadable { api: Api::Operate, reason: "it is cut off".into() };
    operated(frame).ok_or_else(cut_off)
}

fn operated(mut answer: Bytes) -> Option<OperateReply> {
    answer.try_get_i32().ok()?;
    let code = answer.try_get_i16().ok()?;
    let message = match usize::try_from(answer.try_get_i16().ok()?) {
        Err(_) => None,
        Ok(length) => {
            (answer.len() >= length).then_some(())?;
            Some(String::from_utf8_lossy(&answer.split_to(length)).into_owned())
        }
    };
    let length = usize::try_from(answer.try_get_i32().ok()?).ok()?;
    (answer.len() == length).then_some(OperateReply { code, message, document: answer })
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::{ApiVersionsRequest, MetadataRequest};

    use super::*;

    const NAME: StrBytes = StrBytes::from_static_str("test");

    #[test]
    fn highest_common_version_is_used() {
        assert_eq!(overlap(&(0..=9), &(3..=12)), Some(9));
        assert_eq!(overlap(&(4..=18), &(4..=12)), Some(12));
        assert_eq!(overlap(&(0..=2), &(3..=12)), None);
    }

    #[test]
    fn each_frame_has_its_own_length_prefix() {
        let mut frames = BytesMut::new();
        for correlation in [7, 8] {
            let begin = frames.len();
            put_request(&mut frames, &NAME, correlation, 0, &ApiVersionsRequest::default())
                .expect("encodes");
            let frame = &frames[begin..];
            assert_eq!(frame_len(frame).expect("possible"), Some(frame.len()));
            assert_eq!(frame[8..12], correlation.to_be_bytes());
        }
    }

    #[test]
    fn unencodable_request_leaves_the_buffer_unchanged() {
        let mut frames = BytesMut::from(&b"before"[..]);
        let declining = MetadataRequest::default().with_allow_auto_topic_creation(false);
        // Version 0 has no such field.
        assert!(put_request(&mut frames, &NAME, 1, 0, &declining).is_err());
        assert_eq!(&frames[..], b"before");
    }

    #[test]
    fn frame_is_taken_once_it_is_complete() {
        let whole = [&12_i32.to_be_bytes()[..], b"123456789012", b"next"].concat();
        for cut in 0..16 {
            let mut arrived = BytesMut::from(&whole[..cut]);
            assert_eq!(take_frame(&mut arrived), Ok(None), "{cut}");
            assert_eq!(arrived.len(), cut);
        }
        let mut arrived = BytesMut::from(&whole[..]);
        assert_eq!(take_frame(&mut arrived), Ok(Some(Bytes::from_static(b"123456789012"))));
        assert_eq!(&arrived[..], b"next");
    }

    #[test]
    fn impossible_length_is_rejected_before_memory_is_reserved() {
        for length in [-1, 0, 3, (ANSWER_BYTES_MAX + 1) as i32, i32::MAX] {
            let mut arrived = BytesMut::from(&length.to_be_bytes()[..]);
            let refused = FrameError::ImpossibleLength { length };
            assert_eq!(take_frame(&mut arrived), Err(refused));
        }
    }

    #[test]
    fn reply_of_an_operation_is_a_code_a_message_and_a_document() {
        let whole = Bytes::from_static(b"\0\0\0\x07\0\x23\0\x02no\0\0\0\x02{}");
        let read = operated(whole.clone()).expect("whole");
        let document = Bytes::from_static(b"{}");
        assert_eq!(read, OperateReply { code: 35, message: Some("no".to_owned()), document });
        for cut in 0..whole.len() {
            assert_eq!(operated(whole.slice(..cut)), None, "{cut}");
        }
        let silent = operated(Bytes::from_static(b"\0\0\0\x07\0\0\xff\xff\0\0\0\0"));
        let document = Bytes::new();
        assert_eq!(silent, Some(OperateReply { code: 0, message: None, document }));
    }
}
