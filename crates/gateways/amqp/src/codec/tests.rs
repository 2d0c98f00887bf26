//! Methods as bytes, and bytes that are not methods.

use bytes::BytesMut;
use proptest::prelude::*;

use super::fields::{EncodedTable, LongString};
use super::methods::*;

fn encoded<'a>(method: impl Into<Method<'a>>) -> BytesMut {
    let mut out = BytesMut::new();
    method.into().encode(&mut out);
    out
}

#[test]
fn methods_are_laid_out_as_the_specification_says() {
    let declare = QueueDeclare {
        queue: "q",
        durable: true,
        auto_delete: true,
        arguments: EncodedTable(b"\x01aV"),
        ..QueueDeclare::default()
    };
    let expected = b"\x00\x32\x00\x0a\x00\x00\x01q\x0a\x00\x00\x00\x03\x01aV";
    assert_eq!(&encoded(declare)[..], expected);
    assert_eq!(Method::decode(expected), Ok(Method::QueueDeclare(declare)));

    let start_ok = ConnectionStartOk {
        mechanism: "PLAIN",
        response: LongString(b"\0guest\0guest"),
        locale: "en_US",
        ..ConnectionStartOk::default()
    };
    let bytes = encoded(start_ok);
    assert_eq!(Method::decode(&bytes), Ok(Method::ConnectionStartOk(start_ok)));
    assert_eq!(Method::from(start_ok).name(), "connection.start_ok");
}

#[test]
fn truncated_or_overlong_method_is_rejected() {
    let bytes = encoded(BasicDeliver { consumer_tag: "tag", ..BasicDeliver::default() });
    for length in 0..bytes.len() {
        assert!(Method::decode(&bytes[..length]).is_err(), "{length}");
    }
    let mut longer = bytes.clone();
    longer.extend_from_slice(&[0]);
    assert!(matches!(Method::decode(&longer), Err(MethodError::Malformed { .. })));
    let unknown = Method::decode(&[0, 60, 0, 99]);
    assert_eq!(unknown, Err(MethodError::Unknown(MethodId { class: 60, method: 99 })));
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_read_or_rejected(
        class in prop_oneof![Just(10u8), Just(20), Just(40), Just(50), Just(60), Just(85), Just(90)],
        method in 0u8..130,
        rest in proptest::collection::vec(any::<u8>(), 0..60),
    ) {
        let mut bytes = vec![0, class, 0, method];
        bytes.extend(rest);
        if let Ok(method) = Method::decode(&bytes) {
            // Unused bits are not kept, so the bytes may differ. The decoded method is the same.
            let again = encoded(method);
            prop_assert_eq!(Method::decode(&again), Ok(method));
        }
    }

    #[test]
    fn written_publish_is_read_back(
        exchange in "\\PC{0,60}",
        routing_key in "\\PC{0,60}",
        mandatory: bool,
        immediate: bool,
    ) {
        let method = BasicPublish {
            exchange: &exchange,
            routing_key: &routing_key,
            mandatory,
            immediate,
            ..BasicPublish::default()
        };
        let bytes = encoded(method);
        prop_assert_eq!(Method::decode(&bytes), Ok(Method::BasicPublish(method)));
    }
}
