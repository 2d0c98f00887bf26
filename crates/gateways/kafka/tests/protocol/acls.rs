//! Kafka's requests about access rules.

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::*;

use crate::authorization::{TOPIC_FAILED, app, logged_in, node};
use crate::harness::*;

#[tokio::test]
async fn access_rules_are_created_listed_and_deleted() {
    let node = node().await;
    let mut root = logged_in(&node, b"\0root\0toor").await;
    let creation = |resource: i8, name: &str, pattern: i8, host: &str| {
        create_acls_request::AclCreation::default()
            .with_resource_type(resource)
            .with_resource_name(text(name))
            .with_resource_pattern_type(pattern)
            .with_principal(text("User:app"))
            .with_host(text(host))
            .with_operation(3)
            .with_permission_type(3)
    };
    let request = CreateAclsRequest::default().with_creations(vec![
        creation(2, "t", 4, "*"),
        creation(3, "g", 3, "127.0.0.1"),
        creation(2, "t", 2, "*"),
        creation(2, "", 3, "*"),
        creation(4, "other", 3, "*"),
        creation(2, "t", 3, "somewhere"),
    ]);
    let made: Vec<i16> =
        root.ask(2, &request).await.results.iter().map(|it| it.error_code).collect();
    let invalid = ResponseError::InvalidRequest.code();
    assert_eq!(made, [0, 0, invalid, invalid, invalid, invalid]);
    let filter = |resource: i8, pattern: i8, name: Option<&str>| {
        DescribeAclsRequest::default()
            .with_resource_type_filter(resource)
            .with_pattern_type_filter(pattern)
            .with_resource_name_filter(name.map(text))
            .with_principal_filter(None)
            .with_host_filter(None)
            .with_operation(1)
            .with_permission_type(1)
    };
    let all = root.ask(3, &filter(1, 1, None)).await;
    assert_eq!((all.error_code, all.resources.len()), (0, 2));
    let found = &root.ask(3, &filter(2, 2, Some("t.more"))).await.resources[0];
    assert_eq!((found.resource_type, found.pattern_type), (2, 4));
    assert_eq!((&*found.acls[0].principal, &*found.acls[0].host), ("User:app", "*"));
    assert!(root.ask(3, &filter(2, 3, Some("t"))).await.resources.is_empty());

    let mut client = app(&node).await;
    assert_eq!(client.get("t", 0, 0).await, Vec::<String>::new());
    let delete = delete_acls_request::DeleteAclsFilter::default()
        .with_resource_type_filter(2)
        .with_pattern_type_filter(1)
        .with_resource_name_filter(None)
        .with_principal_filter(None)
        .with_host_filter(None)
        .with_operation(1)
        .with_permission_type(1);
    let request = DeleteAclsRequest::default().with_filters(vec![delete.clone(), delete]);
    let deleted = root.ask(2, &request).await.filter_results;
    assert_eq!(deleted.iter().map(|it| it.matching_acls.len()).collect::<Vec<_>>(), [1, 1]);
    let fetched = client.ask(11, &fetch("t", 0, 0, 0)).await;
    assert_eq!(fetched.responses[0].partitions[0].error_code, TOPIC_FAILED);
}
