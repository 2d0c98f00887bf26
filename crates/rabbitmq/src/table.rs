//! Field tables: the typed maps of arguments and message headers. They are the broker's own typed values
//! ([`values`]), whose encoding is that of AMQP 0-9-1.

pub use values::{
    Malformed as MalformedTable, RawField, RawFields, Table as FieldTable, Value as FieldValue,
    decode_value, put_with_length,
};

/// RabbitMQ's name of a value's type in its texts.
pub fn kind_name(value: &FieldValue) -> &'static str {
    match value {
        FieldValue::Boolean(_) => "bool",
        FieldValue::I8(_) => "byte",
        FieldValue::U8(_) => "unsignedbyte",
        FieldValue::I16(_) => "short",
        FieldValue::U16(_) => "unsignedshort",
        FieldValue::I32(_) => "signedint",
        FieldValue::U32(_) => "unsignedint",
        FieldValue::I64(_) => "long",
        FieldValue::F32(_) => "float",
        FieldValue::F64(_) => "double",
        FieldValue::Decimal(..) => "decimal",
        FieldValue::LongString(_) => "longstr",
        FieldValue::Array(_) => "array",
        FieldValue::Timestamp(_) => "timestamp",
        FieldValue::Table(_) => "table",
        FieldValue::Void => "void",
        FieldValue::ByteArray(_) => "binary",
    }
}
