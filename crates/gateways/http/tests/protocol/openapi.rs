//! The OpenAPI document: as served, and as documented.

use std::path::Path;

use serde_json::Value;

use crate::harness::open_node;

/// Run with `UPDATE_OPENAPI=1` to rewrite the documented copy.
#[tokio::test]
async fn documented_openapi_document_is_the_served_one() {
    let (server, _broker) = open_node().await;
    let served = server.get("/v1/openapi.json").await.json();
    assert_eq!(served["openapi"].as_str().map(|it| &it[..3]), Some("3.1"));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/user/openapi.json");
    let text = serde_json::to_string_pretty(&served).expect("JSON") + "\n";
    if std::env::var_os("UPDATE_OPENAPI").is_some() {
        std::fs::write(&path, &text).expect("is written");
    }
    let written = std::fs::read_to_string(&path).expect("docs/user/openapi.json");
    let written: Value = serde_json::from_str(&written).expect("JSON");
    assert_eq!(served, written, "run this test with UPDATE_OPENAPI=1");
}

#[tokio::test]
async fn every_reference_of_the_openapi_document_resolves() {
    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(map) => {
                if let Some(Value::String(to)) = map.get("$ref") {
                    found.push(to.clone());
                }
                map.values().for_each(|value| references(value, found));
            }
            Value::Array(all) => all.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }
    let (server, _broker) = open_node().await;
    let document = server.get("/v1/openapi.json").await.json();
    let mut found = Vec::new();
    references(&document, &mut found);
    assert!(found.len() > 10, "{found:?}");
    for reference in found {
        let pointer = reference.strip_prefix('#').expect("within it");
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
}
