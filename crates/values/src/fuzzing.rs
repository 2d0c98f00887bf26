//! Invariants of field tables for arbitrary bytes: for fuzz targets, and for tests of their findings.

use crate::{RawFields, Table};

/// A table that decodes can be walked, and encodes to its former length.
pub fn table(data: &[u8]) {
    let walked: Result<Vec<_>, _> = RawFields::new(data).collect();
    let Ok(table) = Table::decode(data) else { return };
    let walked = walked.expect("what is decoded can be walked");
    assert_eq!(walked.len(), table.0.len());
    for (field, (name, value)) in walked.iter().zip(&table.0) {
        assert_eq!(field.name, name.as_bytes());
        let field = field.decode().expect("what is decoded can be decoded by itself");
        // NaN is not equal to itself.
        assert_eq!(format!("{field:?}"), format!("{value:?}"));
        let (_, _, _) = (value.as_integer(), value.as_str(), value.as_bool());
    }
    let written = table.to_bytes();
    assert_eq!(written.len(), data.len());
    let again = Table::decode(&written).expect("what is written can be read");
    assert_eq!(again.to_bytes(), written);
}

#[cfg(test)]
mod tests {
    #[test]
    fn corpus_tables_keep_the_invariants() {
        test_corpus::each("amqp_table", super::table);
    }
}
