use proptest::prelude::*;

use super::*;

fn value() -> impl Strategy<Value = Value> {
    let bytes = || proptest::collection::vec(any::<u8>(), 0..20).prop_map(Bytes::from);
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::Boolean),
        any::<i8>().prop_map(Value::I8),
        any::<u8>().prop_map(Value::U8),
        any::<i16>().prop_map(Value::I16),
        any::<u16>().prop_map(Value::U16),
        any::<i32>().prop_map(Value::I32),
        any::<u32>().prop_map(Value::U32),
        any::<i64>().prop_map(Value::I64),
        (-1e30f32..1e30).prop_map(Value::F32),
        (-1e300f64..1e300).prop_map(Value::F64),
        (any::<u8>(), any::<u32>()).prop_map(|(scale, n)| Value::Decimal(scale, n)),
        bytes().prop_map(Value::LongString),
        bytes().prop_map(Value::ByteArray),
        any::<u64>().prop_map(Value::Timestamp),
        Just(Value::Void),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::Array),
            table_of(inner).prop_map(Value::Table),
        ]
    })
}

fn table_of(values: impl Strategy<Value = Value>) -> impl Strategy<Value = Table> {
    proptest::collection::vec(("[a-z-]{0,12}", values), 0..6).prop_map(Table)
}

proptest! {
    #[test]
    fn table_round_trips(table in table_of(value())) {
        let encoded = table.to_bytes();
        prop_assert_eq!(Table::decode(&encoded), Ok(table.clone()));
        let walked: Result<Vec<_>, _> = RawFields::new(&encoded).collect();
        let walked: Vec<_> = walked.expect("walks").iter().map(|f| f.decode()).collect();
        let values: Vec<_> = table.0.into_iter().map(|(_, value)| Ok(value)).collect();
        prop_assert_eq!(walked, values);
    }

    #[test]
    fn arbitrary_bytes_are_decoded_or_rejected(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Table::decode(&bytes);
        let _ = RawFields::new(&bytes).count();
    }

    #[test]
    fn truncated_table_is_rejected_or_has_fewer_fields(table in table_of(value()), cut in 1usize..50) {
        let encoded = table.to_bytes();
        let end = encoded.len().saturating_sub(cut);
        if let Ok(shorter) = Table::decode(&encoded[..end]) {
            prop_assert!(shorter.0.len() <= table.0.len());
        }
    }
}

proptest! {
    #[test]
    fn text_over_the_limit_of_a_short_string_is_cut_in_front_of_a_character(
        text in "[a\u{e9}\u{20ac}\u{1f600}]{0,300}",
    ) {
        let cut = shortened_text(&text);
        prop_assert!(text.starts_with(cut) && cut.len() <= SHORT_STRING_BYTES_MAX);
        let next = text[cut.len()..].chars().next();
        let fits = next.is_none_or(|next| cut.len() + next.len_utf8() > SHORT_STRING_BYTES_MAX);
        prop_assert!(fits, "{} of {} bytes", cut.len(), text.len());
    }
}

#[test]
fn bytes_over_the_limit_of_a_short_string_are_cut_at_the_limit() {
    assert_eq!(shortened(&[0x80; 300]).len(), SHORT_STRING_BYTES_MAX);
    assert_eq!(shortened(&[0x80; 255]).len(), 255);
    assert_eq!(shortened(b""), b"");
    let mut out = BytesMut::new();
    put_short(&[b'a'; 256], &mut out);
    assert_eq!((out[0], out.len()), (255, 256));
}

#[test]
fn table_with_too_many_values_is_rejected() {
    let array = |values: usize| {
        let mut encoded = vec![1, b'a', b'A'];
        encoded.extend((values as u32).to_be_bytes());
        encoded.extend(vec![b'V'; values]);
        Table::decode(&encoded).map(|table| table.0.len())
    };
    assert_eq!(array(VALUES_MAX as usize - 1), Ok(1));
    assert_eq!(array(VALUES_MAX as usize), Err(Malformed::TooMany));
    let fields = [0, b'V'].repeat(VALUES_MAX as usize + 1);
    assert_eq!(Table::decode(&fields), Err(Malformed::TooMany));
}

#[test]
fn nesting_of_tables_is_bounded() {
    let mut encoded = Vec::new();
    for _ in 0..1000 {
        let mut outer = vec![0, b'F'];
        outer.extend((encoded.len() as u32).to_be_bytes());
        outer.extend(encoded);
        encoded = outer;
    }
    assert_eq!(Table::decode(&encoded), Err(Malformed::TooDeep));
}
