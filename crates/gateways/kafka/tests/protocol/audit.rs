//! Audit events of Kafka requests that change users, rules and quotas.

use std::time::Duration;

use access::{Audit, Users};
use kafka_protocol::messages::*;
use serde_json::Value;

use crate::authorization::logged_in;
use crate::harness::*;

const SOON: Duration = Duration::from_secs(60);

/// Subjects of the audit events of a request.
async fn subjects(client: &mut Client, users: &Users, request: &str) -> Vec<String> {
    users.audit().flush(SOON).await;
    let events = client.get("_postroad.audit", 0, 0).await;
    let events = events.iter().map(|event| serde_json::from_str(event).expect("JSON"));
    let of_request = events.filter(|event: &Value| event["request"] == request);
    of_request.map(|event| event["subject"].as_str().unwrap_or_default().to_owned()).collect()
}

#[tokio::test]
async fn audit_log_names_the_changed_users_rules_and_quotas() {
    let node = Node::with(|options| options.login.plain = access::Admission::Required).await;
    let users = node.users.as_ref().expect("there are some");
    users.set_audit(Audit::open(&node.broker, false));
    let mut root = logged_in(&node, b"\0root\0toor").await;

    let creation = |name: &str| {
        create_acls_request::AclCreation::default()
            .with_resource_type(2)
            .with_resource_name(text(name))
            .with_resource_pattern_type(3)
            .with_principal(text("User:app"))
            .with_host(text("*"))
            .with_operation(3)
            .with_permission_type(3)
    };
    let request = CreateAclsRequest::default().with_creations(vec![creation("t"), creation("u")]);
    root.ask(2, &request).await;
    assert_eq!(
        subjects(&mut root, users, "CreateAcls").await,
        [
            r#"allow User:app read of literal topic "t" from *"#,
            r#"allow User:app read of literal topic "u" from *"#,
        ]
    );

    let filter = delete_acls_request::DeleteAclsFilter::default()
        .with_resource_type_filter(2)
        .with_pattern_type_filter(1)
        .with_resource_name_filter(None)
        .with_principal_filter(Some(text("User:app")))
        .with_host_filter(None)
        .with_operation(1)
        .with_permission_type(1);
    root.ask(2, &DeleteAclsRequest::default().with_filters(vec![filter])).await;
    assert_eq!(
        subjects(&mut root, users, "DeleteAcls").await,
        ["any verdict for User:app any action of any topic of any name from anywhere"]
    );

    let deletion = |name: &str| {
        alter_user_scram_credentials_request::ScramCredentialDeletion::default()
            .with_name(text(name))
            .with_mechanism(1)
    };
    let request = AlterUserScramCredentialsRequest::default()
        .with_deletions(vec![deletion("app"), deletion("other")]);
    root.ask(0, &request).await;
    assert_eq!(
        subjects(&mut root, users, "AlterUserScramCredentials").await,
        [r#"user "app""#, r#"user "other""#]
    );

    let entity = alter_client_quotas_request::EntityData::default()
        .with_entity_type(text("user"))
        .with_entity_name(Some(text("app")));
    let op = alter_client_quotas_request::OpData::default()
        .with_key(text("producer_byte_rate"))
        .with_value(1_000.0);
    let entry = alter_client_quotas_request::EntryData::default()
        .with_entity(vec![entity])
        .with_ops(vec![op]);
    root.ask(1, &AlterClientQuotasRequest::default().with_entries(vec![entry])).await;
    assert_eq!(subjects(&mut root, users, "AlterClientQuotas").await, ["quotas of user app"]);
}
