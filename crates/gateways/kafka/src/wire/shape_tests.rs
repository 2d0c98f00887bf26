//! Compares shapes with the message crate's decoder, for every request in every version.

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::*;
use proptest::prelude::*;

use crate::authorization::Caller;
use crate::messages::Preamble;
use crate::messages::frames::Frame;
use crate::produce::request::ProduceRequest;
use crate::request::Request;
use crate::state::Session;
use crate::wire::request_codec::{RequestCodec, requests};
use kafka_wire::layout::{Fields, Kind, MessageShape};
use kafka_wire::primitives::PutPrimitives;
use kafka_wire::shape::{DECODED_BYTES_MAX, ShapeError, examine};
use kafka_wire::shapes;

/// Writes a request of a shape, with contents derived from some bytes.
struct Scribe<'a> {
    out: BytesMut,
    version: i16,
    flexible: bool,
    entropy: std::iter::Cycle<std::slice::Iter<'a, u8>>,
}

impl Scribe<'_> {
    fn byte(&mut self) -> u8 {
        self.entropy.next().copied().unwrap_or(0)
    }

    fn fields(&mut self, fields: &Fields) {
        for field in fields.plain {
            if (field.since..=field.until).contains(&self.version) {
                self.kind(&field.kind);
            }
        }
        if self.flexible {
            self.tagged_fields(fields);
        }
    }

    fn tagged_fields(&mut self, fields: &Fields) {
        let version = self.version;
        let known = fields.tagged.iter().filter(|(_, field)| field.since <= version);
        let known: Vec<_> = known.filter(|_| self.byte().is_multiple_of(2)).collect();
        let with_unknown = self.byte().is_multiple_of(3);
        self.out.put_unsigned_varint(known.len() as u32 + u32::from(with_unknown));
        for (tag, field) in known {
            self.out.put_unsigned_varint(*tag);
            let rest = std::mem::take(&mut self.out);
            self.kind(&field.kind);
            let value = std::mem::replace(&mut self.out, rest);
            self.out.put_unsigned_varint(value.len() as u32);
            self.out.put_slice(&value);
        }
        if with_unknown {
            self.out.put_unsigned_varint(5_000);
            self.out.put_unsigned_varint(3);
            self.out.put_slice(b"new");
        }
    }

    fn kind(&mut self, kind: &Kind) {
        match kind {
            Kind::Fixed(size) => {
                for _ in 0..*size {
                    let byte = self.byte();
                    self.out.put_u8(byte);
                }
            }
            Kind::Text => {
                let text = "x".repeat(usize::from(self.byte() % 20));
                self.out.put_nullable_text(Some(&text), self.flexible);
            }
            Kind::Blob => {
                let len = usize::from(self.byte() % 20);
                self.out.put_count(len, self.flexible);
                self.out.put_bytes(7, len);
            }
            Kind::List(element) => {
                let count = self.count();
                (0..count).for_each(|_| self.kind(element));
            }
            Kind::Rows(fields) => {
                let count = self.count();
                (0..count).for_each(|_| self.fields(fields));
            }
            Kind::Row(fields) => self.fields(fields),
            Kind::Maybe(fields) => {
                let present = self.byte().is_multiple_of(2);
                self.out.put_i8(if present { 1 } else { -1 });
                if present {
                    self.fields(fields);
                }
            }
        }
    }

    fn count(&mut self) -> usize {
        let count = usize::from(self.byte() % 4);
        self.out.put_count(count, self.flexible);
        count
    }
}

fn write(shape: &MessageShape, version: i16, entropy: &[u8]) -> BytesMut {
    let flexible = version >= shape.flexible_since;
    let entropy = entropy.iter().cycle();
    let mut scribe = Scribe { out: BytesMut::new(), version, flexible, entropy };
    scribe.fields(&shape.fields);
    scribe.out
}

fn each_version(mut check: impl FnMut(&RequestCodec, &'static MessageShape, i16)) {
    for known in requests() {
        let shape = shapes::of(known.api).expect("the request is in the table");
        for version in known.versions.clone() {
            check(&known, shape, version);
        }
    }
}

#[test]
fn every_handled_request_has_a_shape() {
    for api in ApiKey::iter().filter(|api| *api != ApiKey::Produce) {
        let handled = crate::api_keys::handled(api).is_some();
        assert_eq!(handled, shapes::of(api).is_some(), "{api:?}");
        assert_eq!(handled, requests().iter().any(|known| known.api == api), "{api:?}");
    }
}

#[test]
fn default_messages_have_their_shape() {
    each_version(|known, _, version| {
        // Some have fields set that a version lacks, and cannot be encoded.
        let Some(bytes) = (known.default)(version) else { return };
        let examined = examine(known.api, version, &bytes);
        assert!(examined.is_ok(), "{:?} {version}: {examined:?}", known.api);
    });
}

#[test]
fn a_request_of_gigantic_arrays_is_refused_before_it_is_decoded() {
    // Fetch: four numbers, then an array that claims to have 2^31 - 1 topics.
    let mut body = BytesMut::new();
    body.put_bytes(0, 4 * 4 + 1);
    body.put_i32(i32::MAX);
    assert!(matches!(
        examine(ApiKey::Fetch, 4, &body),
        Err(ShapeError::Malformed { field: "topics", .. })
    ));
}

#[test]
fn request_too_large_when_decoded_is_refused() {
    // A topic's name takes two bytes here and a struct when it is decoded.
    let topics = DECODED_BYTES_MAX / 128;
    let mut body = BytesMut::new();
    body.put_i32(topics as i32);
    body.put_bytes(0, topics * 2);
    body.put_bytes(0, 3);
    assert_eq!(examine(ApiKey::Metadata, 8, &body), Err(ShapeError::TooHeavy));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn request_of_the_right_shape_is_decoded_to_its_last_byte(
        entropy in proptest::collection::vec(any::<u8>(), 1..200),
    ) {
        each_version(|known, shape, version| {
            let bytes = write(shape, version, &entropy);
            let examined = examine(known.api, version, &bytes);
            assert!(examined.is_ok(), "{:?} {version}: {examined:?}", known.api);
            let left = (known.decode)(bytes.clone().freeze(), version);
            assert_eq!(left, Some(0), "{:?} {version}: {bytes:?}", known.api);
        });
    }

    #[test]
    fn damaged_request_is_refused_or_decoded_without_harm(
        entropy in proptest::collection::vec(any::<u8>(), 1..100),
        cut in any::<prop::sample::Index>(),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
    ) {
        each_version(|known, shape, version| {
            let mut bytes = write(shape, version, &entropy);
            bytes.truncate(cut.index(bytes.len() + 1));
            for (at, byte) in &damage {
                if !bytes.is_empty() {
                    let at = at.index(bytes.len());
                    bytes[at] = *byte;
                }
            }
            // Decoding may still fail (a null where none is allowed), but it must terminate.
            if examine(known.api, version, &bytes).is_ok() {
                let _ = (known.decode)(bytes.freeze(), version);
            }
        });
    }

    #[test]
    fn garbage_is_refused_or_decoded_without_harm(
        bytes in proptest::collection::vec(prop_oneof![0u8..4, any::<u8>()], 0..80),
    ) {
        each_version(|known, _, version| {
            if examine(known.api, version, &bytes).is_ok() {
                let _ = (known.decode)(Bytes::from(bytes.clone()), version);
            }
        });
    }
}

/// Requests as stock clients sent them: api key, version, and the frame in hexadecimal.
fn corpus() -> impl Iterator<Item = (i16, i16, BytesMut)> {
    let java = include_str!("../../tests/corpus/java.txt");
    let librdkafka = include_str!("../../tests/corpus/librdkafka.txt");
    java.lines().chain(librdkafka.lines()).map(|line| {
        let mut words = line.split(' ');
        let mut word = || words.next().expect("a line has three words");
        let (key, version) = (word().parse().unwrap(), word().parse().unwrap());
        let hex = word();
        let bytes = (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16));
        (key, version, bytes.map(Result::unwrap).collect())
    })
}

/// A completely read frame.
fn whole_frame(bytes: BytesMut) -> Frame {
    Frame { bytes, permit: None, queued: 0 }
}

fn decodes(api: ApiKey, version: i16, body: BytesMut) -> bool {
    if api == ApiKey::Produce {
        return ProduceRequest::parse(version, body).is_ok();
    }
    let requests = requests();
    let known = requests.iter().find(|known| known.api == api).expect("it is handled");
    examine(api, version, &body).is_ok() && (known.decode)(body.freeze(), version) == Some(0)
}

#[test]
fn requests_of_stock_clients_are_decoded_and_truncated_ones_refused() {
    for (key, version, frame) in corpus() {
        let preamble = Preamble::parse(&frame).unwrap();
        assert_eq!((preamble.api_key, preamble.version), (key, version));
        let api = ApiKey::try_from(key).unwrap();
        let range = crate::api_keys::handled(api).expect("clients ask only for what is advertised");
        assert!(range.contains(&version), "{api:?} {version}");
        let whole = Request::parse(
            api,
            &preamble,
            whole_frame(frame.clone()),
            Session::without_client(),
            Caller::unrestricted(api),
        )
        .unwrap();
        let body = whole.body;
        assert!(decodes(api, version, body.clone()), "{api:?} {version}");
        for cut in 0..body.len() {
            let mut part = body.clone();
            part.truncate(cut);
            assert!(!decodes(api, version, part), "{api:?} {version} cut to {cut} bytes");
        }
    }
}
