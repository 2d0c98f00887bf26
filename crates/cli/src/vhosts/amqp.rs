//! Operations on AMQP's entities: vhosts, policies, users. They are an operation family of that gateway, sent in
//! Postroad's own request. Lists come in pages.

use client::{Client, ClientError};
use operations::amqp::FAMILY;
use operations::amqp::{
    NamedPolicy, Operation, PolicyPage, UserPage, UserSummary, VhostPage, VhostSummary,
};
use serde::de::DeserializeOwned;

/// Sends an operation to the AMQP gateway.
pub(crate) async fn operate<A: DeserializeOwned>(
    client: &Client,
    operation: &Operation,
) -> Result<A, ClientError> {
    client.operate_family(FAMILY, operation).await
}

/// All vhosts, by name.
pub(crate) async fn vhosts(client: &Client) -> Result<Vec<VhostSummary>, ClientError> {
    let mut vhosts: Vec<VhostSummary> = Vec::new();
    loop {
        let after = vhosts.last().map(|last| last.name.clone());
        let operation = Operation::ListVhosts { after };
        let page: VhostPage = operate(client, &operation).await?;
        let more = page.more && !page.vhosts.is_empty();
        vhosts.extend(page.vhosts);
        if !more {
            return Ok(vhosts);
        }
    }
}

/// All policies of a vhost, or of all, by vhost and name.
pub(crate) async fn policies(
    client: &Client,
    vhost: Option<&str>,
) -> Result<Vec<NamedPolicy>, ClientError> {
    let mut policies: Vec<NamedPolicy> = Vec::new();
    loop {
        let after = policies.last().map(|last| (last.vhost.clone(), last.name.clone()));
        let vhost = vhost.map(str::to_owned);
        let operation = Operation::ListPolicies { vhost, after };
        let page: PolicyPage = operate(client, &operation).await?;
        let more = page.more && !page.policies.is_empty();
        policies.extend(page.policies);
        if !more {
            return Ok(policies);
        }
    }
}

/// All users, by name.
pub(crate) async fn users(client: &Client) -> Result<Vec<UserSummary>, ClientError> {
    let mut users: Vec<UserSummary> = Vec::new();
    loop {
        let after = users.last().map(|last| last.name.clone());
        let operation = Operation::ListUsers { after };
        let page: UserPage = operate(client, &operation).await?;
        let more = page.more && !page.users.is_empty();
        users.extend(page.users);
        if !more {
            return Ok(users);
        }
    }
}
