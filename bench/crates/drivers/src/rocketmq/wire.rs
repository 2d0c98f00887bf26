//! Frames of the remoting protocol: a length, a header as JSON, and a body.

use std::collections::BTreeMap;
use std::time::Instant;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use driver::Failure;
use serde::{Deserialize, Serialize};

/// Request codes.
pub(super) mod code {
    pub(crate) const CREATE_TOPIC: i32 = 17;
    pub(crate) const GET_BROKER_CONFIG: i32 = 26;
    pub(crate) const GET_BROKER_RUNTIME_INFO: i32 = 28;
    pub(crate) const CREATE_GROUP: i32 = 200;
    pub(crate) const DELETE_GROUP: i32 = 207;
    pub(crate) const DELETE_TOPIC: i32 = 215;
    pub(crate) const SEND_MESSAGE: i32 = 310;
    pub(crate) const POP_MESSAGE: i32 = 200_050;
    pub(crate) const ACK_MESSAGE: i32 = 200_051;
    pub(crate) const CHANGE_INVISIBLE_TIME: i32 = 200_053;
}

/// Response codes.
pub(super) mod status {
    pub(crate) const SUCCESS: i32 = 0;
    pub(crate) const SYSTEM_BUSY: i32 = 2;
    pub(crate) const FLUSH_DISK_TIMEOUT: i32 = 10;
    pub(crate) const SLAVE_NOT_AVAILABLE: i32 = 11;
    pub(crate) const FLUSH_SLAVE_TIMEOUT: i32 = 12;
    pub(crate) const PULL_NOT_FOUND: i32 = 19;
    pub(crate) const POLLING_FULL: i32 = 209;
    pub(crate) const POLLING_TIMEOUT: i32 = 210;
}

/// Largest frame that is accepted.
const FRAME_BYTES_MAX: usize = 256 << 20;
/// Size of each of the two lengths; the frame's length does not include its own.
const LENGTH_BYTES: usize = 4;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Request {
    code: i32,
    fields: BTreeMap<&'static str, String>,
    body: Bytes,
}

impl Request {
    pub(super) fn new(code: i32) -> Self {
        Self { code, fields: BTreeMap::new(), body: Bytes::new() }
    }

    pub(super) fn field(mut self, name: &'static str, value: impl ToString) -> Self {
        self.fields.insert(name, value.to_string());
        self
    }

    pub(super) fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// Appends the frame. `number` identifies its reply.
    pub(super) fn encode(&self, number: i32, to: &mut BytesMut) -> Result<(), Failure> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Header<'a> {
            code: i32,
            language: &'a str,
            version: i32,
            opaque: i32,
            flag: i32,
            ext_fields: &'a BTreeMap<&'static str, String>,
        }
        let header = Header {
            code: self.code,
            language: "OTHER",
            version: 0,
            opaque: number,
            flag: 0,
            ext_fields: &self.fields,
        };
        let header = serde_json::to_vec(&header).map_err(Failure::refused)?;
        let length = LENGTH_BYTES + header.len() + self.body.len();
        let length = u32::try_from(length).map_err(Failure::refused)?;
        to.put_u32(length);
        // The highest byte is the header's encoding: 0 is JSON.
        to.put_u32(header.len() as u32);
        to.put_slice(&header);
        to.put_slice(&self.body);
        Ok(())
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Answer {
    pub(super) code: i32,
    /// Number of its request.
    pub(super) number: i32,
    pub(super) arrived: Instant,
    remark: String,
    fields: BTreeMap<String, String>,
    pub(super) body: Bytes,
}

impl Answer {
    /// Takes the next frame, if it is complete.
    pub(super) fn take(from: &mut BytesMut) -> Result<Option<Self>, Failure> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Header {
            code: i32,
            opaque: i32,
            #[serde(default)]
            remark: Option<String>,
            #[serde(default)]
            ext_fields: Option<BTreeMap<String, String>>,
        }
        let strange = |what: &str| Failure::unknown(format!("an answer with {what}"));
        let Some(length) = from.first_chunk().map(|bytes| u32::from_be_bytes(*bytes) as usize)
        else {
            return Ok(None);
        };
        if !(LENGTH_BYTES..=FRAME_BYTES_MAX).contains(&length) {
            return Err(strange("an impossible length"));
        }
        if from.len() < LENGTH_BYTES + length {
            return Ok(None);
        }
        from.advance(LENGTH_BYTES);
        let mut frame = from.split_to(length).freeze();
        let header_length = frame.get_u32();
        let (kind, header_length) = (header_length >> 24, (header_length & 0xff_ffff) as usize);
        if kind != 0 || header_length > frame.len() {
            return Err(strange("a header that is no JSON"));
        }
        let header: Header = serde_json::from_slice(&frame.split_to(header_length))
            .map_err(|error| strange(&format!("a header that cannot be read: {error}")))?;
        Ok(Some(Self {
            code: header.code,
            number: header.opaque,
            arrived: Instant::now(),
            remark: header.remark.unwrap_or_default(),
            fields: header.ext_fields.unwrap_or_default(),
            body: frame,
        }))
    }

    pub(super) fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }

    /// Maps any code other than success to an error.
    pub(super) fn succeeded(self) -> Result<Self, Failure> {
        match self.code {
            status::SUCCESS => Ok(self),
            _ => Err(self.refusal()),
        }
    }

    pub(super) fn refusal(&self) -> Failure {
        Failure::refused(format!("code {}: {}", self.code, self.remark))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(header: &str, body: &[u8]) -> BytesMut {
        let mut frame = BytesMut::new();
        frame.put_u32((LENGTH_BYTES + header.len() + body.len()) as u32);
        frame.put_u32(header.len() as u32);
        frame.put_slice(header.as_bytes());
        frame.put_slice(body);
        frame
    }

    #[test]
    fn request_encodes_to_a_frame() {
        let mut bytes = BytesMut::new();
        let request = Request::new(code::SEND_MESSAGE).field("b", "topic").body("body");
        request.encode(7, &mut bytes).expect("is short");
        let header = r#"{"code":310,"language":"OTHER","version":0,"opaque":7,"flag":0,"extFields":{"b":"topic"}}"#;
        assert_eq!(bytes, framed(header, b"body"));
    }

    #[test]
    fn answer_is_taken_once_complete() {
        let header =
            r#"{"code":1,"flag":1,"language":"JAVA","opaque":3,"remark":"no","version":5}"#;
        let whole = framed(header, b"x");
        let mut part = BytesMut::from(&whole[..whole.len() - 1]);
        assert_eq!(Answer::take(&mut part), Ok(None));
        part.put_slice(b"x\0\0");
        let answer = Answer::take(&mut part).expect("is one").expect("is there");
        assert_eq!((answer.code, answer.number, &answer.body[..]), (1, 3, &b"x"[..]));
        assert_eq!(part.len(), 2, "what follows is left");
        let refused = answer.succeeded().expect_err("is no success").to_string();
        assert_eq!(refused, "refused: code 1: no");
    }

    #[test]
    fn malformed_answers_are_errors() {
        assert!(Answer::take(&mut BytesMut::from(&b"HTTP/1.1 400"[..])).is_err());
        assert!(Answer::take(&mut framed("no json", b"")).is_err());
        let mut binary = framed("{}", b"");
        binary[4] = 1;
        assert!(Answer::take(&mut binary).is_err());
    }
}
