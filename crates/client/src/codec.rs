//! The requests of one connection and their replies, without I/O, for a single caller that decides itself what is
//! sent when.
//!
//! Each request is sent once, in the version that the caller names; replies are received in the order of sending. So
//! a checker knows exactly what was sent and what was acknowledged. [`Pipeline`] uses it over an async stream,
//! [`blocking::Connection`] over a blocking socket.
//!
//! [`Pipeline`]: crate::Pipeline
//! [`blocking::Connection`]: crate::blocking::Connection

use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;

use bytes::{Bytes, BytesMut};
use kafka_protocol::protocol::{Request, StrBytes};

use crate::error::{Api, FrameError};
use crate::frame::{
    self, OperateReply, api_of, correlation_of, decode_operated, decode_whole, put_operate,
    put_request,
};

/// Handle of a sent request, by which its reply is received. A plain value: dropping it makes the reply be skipped.
pub struct RequestHandle<R> {
    correlation: i32,
    version: i16,
    request: PhantomData<fn() -> R>,
}

impl<R> Clone for RequestHandle<R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for RequestHandle<R> {}

impl<R: Request> fmt::Debug for RequestHandle<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", api_of::<R>(), self.correlation)
    }
}

#[derive(Debug)]
pub(crate) struct Codec {
    client_id: StrBytes,
    next_correlation: i32,
    /// Correlation ids without a reply yet, in the order of sending.
    unanswered: VecDeque<i32>,
    outgoing: BytesMut,
    arrived: BytesMut,
}

impl Codec {
    pub(crate) fn new(client_id: StrBytes) -> Self {
        Self {
            client_id,
            next_correlation: 1,
            unanswered: VecDeque::new(),
            outgoing: BytesMut::new(),
            arrived: BytesMut::new(),
        }
    }

    pub(crate) fn set_client_id(&mut self, client_id: StrBytes) {
        self.client_id = client_id;
    }

    /// Appends a request to the outgoing bytes.
    pub(crate) fn send<R: Request>(
        &mut self,
        version: i16,
        request: &R,
    ) -> Result<RequestHandle<R>, FrameError> {
        let correlation = self.next_correlation;
        put_request(&mut self.outgoing, &self.client_id, correlation, version, request)?;
        self.sent(correlation);
        Ok(RequestHandle { correlation, version, request: PhantomData })
    }

    /// Appends a request that has no reply (Produce with acks 0).
    pub(crate) fn tell<R: Request>(&mut self, version: i16, request: &R) -> Result<(), FrameError> {
        let correlation = self.next_correlation;
        put_request(&mut self.outgoing, &self.client_id, correlation, version, request)?;
        self.next_correlation = correlation.wrapping_add(1);
        Ok(())
    }

    /// Appends an `Operate`; returns the correlation id of its reply.
    pub(crate) fn operate(&mut self, version: i16, document: &[u8]) -> Result<i32, FrameError> {
        let correlation = self.next_correlation;
        put_operate(&mut self.outgoing, &self.client_id, correlation, version, document)?;
        self.sent(correlation);
        Ok(correlation)
    }

    fn sent(&mut self, correlation: i32) {
        self.unanswered.push_back(correlation);
        self.next_correlation = correlation.wrapping_add(1);
    }

    /// Bytes to be written; the writer removes them.
    pub(crate) fn outgoing(&mut self) -> &mut BytesMut {
        &mut self.outgoing
    }

    /// Buffer for received bytes.
    pub(crate) fn arrived(&mut self) -> &mut BytesMut {
        &mut self.arrived
    }

    /// Number of bytes missing until the next reply is complete, as far as known: at least 1 while it is incomplete.
    pub(crate) fn missing(&self) -> Result<usize, FrameError> {
        frame::missing(&self.arrived)
    }

    /// Takes the reply to `sent`, once it is complete; those to earlier requests are skipped. It must fill its frame,
    /// because checkers of a broker rely on that.
    pub(crate) fn answer<R: Request>(
        &mut self,
        sent: RequestHandle<R>,
    ) -> Result<Option<R::Response>, FrameError> {
        let frame = self.take(api_of::<R>(), sent.correlation)?;
        frame.map(|frame| decode_whole::<R>(frame, sent.version)).transpose()
    }

    pub(crate) fn operated(
        &mut self,
        correlation: i32,
    ) -> Result<Option<OperateReply>, FrameError> {
        let frame = self.take(Api::Operate, correlation)?;
        frame.map(decode_operated).transpose()
    }

    fn take(&mut self, api: Api, correlation: i32) -> Result<Option<Bytes>, FrameError> {
        if !self.unanswered.contains(&correlation) {
            return Err(FrameError::NotDue { api, correlation });
        }
        while let Some(frame) = frame::take_frame(&mut self.arrived)? {
            let got = correlation_of(&frame);
            let due = self.unanswered.pop_front();
            if due != Some(got) {
                return Err(FrameError::OutOfOrder { api, got, due: due.unwrap_or_default() });
            }
            if got == correlation {
                return Ok(Some(frame));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::{ApiVersionsRequest, ApiVersionsResponse};
    use kafka_protocol::protocol::Encodable;
    use proptest::prelude::*;

    use super::*;

    fn codec() -> Codec {
        Codec::new(StrBytes::from_static_str("test"))
    }

    fn send_request(codec: &mut Codec) -> RequestHandle<ApiVersionsRequest> {
        codec.send(0, &ApiVersionsRequest::default()).expect("encodes")
    }

    fn answer(correlation: i32, code: i16) -> Vec<u8> {
        let mut body = BytesMut::new();
        let response = ApiVersionsResponse::default().with_error_code(code);
        response.encode(&mut body, 0).expect("encodes");
        let length = (body.len() + 4) as i32;
        [&length.to_be_bytes()[..], &correlation.to_be_bytes(), &body].concat()
    }

    #[test]
    fn replies_are_received_in_the_order_of_sending() {
        let mut codec = codec();
        let (first, second) = (send_request(&mut codec), send_request(&mut codec));
        let bytes = [answer(1, 11), answer(2, 22)].concat();
        let mut answers = Vec::new();
        // The bytes arrive one by one.
        for byte in bytes {
            codec.arrived().extend_from_slice(&[byte]);
            let due = if answers.is_empty() { first } else { second };
            answers.extend(codec.answer(due).expect("sound").map(|answer| answer.error_code));
            if answers.len() == 2 {
                break;
            }
        }
        assert_eq!(answers, [11, 22]);
    }

    #[test]
    fn skipped_reply_cannot_be_received_later() {
        let mut codec = codec();
        let (first, second) = (send_request(&mut codec), send_request(&mut codec));
        codec.arrived().extend_from_slice(&[answer(1, 11), answer(2, 22)].concat());
        let answered = codec.answer(second).expect("sound").expect("there");
        assert_eq!(answered.error_code, 22);
        assert!(matches!(codec.answer(first), Err(FrameError::NotDue { correlation: 1, .. })));
    }

    #[test]
    fn reply_to_another_request_is_an_error() {
        let mut codec = codec();
        let sent = send_request(&mut codec);
        codec.arrived().extend_from_slice(&answer(7, 0));
        let error = codec.answer(sent).expect_err("out of order");
        assert!(matches!(error, FrameError::OutOfOrder { got: 7, due: 1, .. }), "{error}");
    }

    #[test]
    fn missing_bytes_are_known_once_the_length_has_arrived() {
        let mut codec = codec();
        assert_eq!(codec.missing(), Ok(4));
        codec.arrived().extend_from_slice(&1000_i32.to_be_bytes());
        assert_eq!(codec.missing(), Ok(1000));
        codec.arrived().extend_from_slice(&[0; 999]);
        assert_eq!(codec.missing(), Ok(1));
    }

    proptest! {
        #[test]
        fn arbitrary_replies_to_an_operation_do_not_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let mut codec = codec();
            let correlation = codec.operate(0, b"{}").expect("encodes");
            let length = (bytes.len() + 4) as i32;
            codec.arrived().extend_from_slice(&length.to_be_bytes());
            codec.arrived().extend_from_slice(&correlation.to_be_bytes());
            codec.arrived().extend_from_slice(&bytes);
            let _ = codec.operated(correlation);
        }

        #[test]
        fn arbitrary_bytes_do_not_panic_the_frame_reader(
            bytes in proptest::collection::vec(any::<u8>(), 0..50),
        ) {
            let mut codec = codec();
            let correlation = codec.operate(0, b"{}").expect("encodes");
            codec.arrived().extend_from_slice(&bytes);
            let _ = codec.operated(correlation);
            let _ = codec.missing();
        }
    }
}
