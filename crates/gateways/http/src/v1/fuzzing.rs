//! Invariants of requests of `/v1`.

use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue};
use bytes::Bytes;
use operations::document::Operation;

use crate::limits::{HTTP_APPENDS_MAX, HTTP_RECORDS_MAX, HTTP_SETTLES_MAX};
use crate::request_input::read;
use crate::v1::leases::token::LeaseName;
use crate::v1::records::filter::Filter;
use crate::v1::records::new_records::records_of;
use crate::v1::transactions;

/// A body, parsed as each document that a body can be.
pub(crate) fn body(bytes: &[u8]) {
    for content in ["application/json", "application/x-ndjson", "text/plain"] {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content));
        if let Ok(records) = records_of(&headers, Bytes::copy_from_slice(bytes)) {
            assert!((1..=HTTP_RECORDS_MAX).contains(&records.len()));
        }
    }
    if let Ok(transaction) = transactions::body::parse(bytes) {
        let records: usize = transaction.appends.iter().map(|append| append.records.len()).sum();
        assert!(records <= HTTP_RECORDS_MAX && transaction.settles.len() <= HTTP_SETTLES_MAX);
        assert!(transaction.appends.len() <= HTTP_APPENDS_MAX);
    }
    if let Ok(filter) = read::<Filter>(bytes) {
        let _ = filter.check().is_ok();
        let written = serde_json::to_vec(&filter).expect("what is read can be written");
        assert_eq!(read::<Filter>(&written).ok(), Some(filter));
    }
    if let Ok(operation) = read::<Operation>(bytes) {
        let written = serde_json::to_vec(&operation).expect("what is read can be written");
        assert_eq!(read::<Operation>(&written).ok(), Some(operation));
    }
}

/// The token of a lease, as it appears in requests.
pub(crate) fn lease(text: &str) {
    if let Some(name) = LeaseName::parse(text) {
        assert_eq!(name.to_text(), text, "a lease has one name");
    }
}
