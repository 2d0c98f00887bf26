//! Operators' operations on this gateway's entities: vhosts, policies, users.
//!
//! Operators send them to the service of operators' operations, which forwards the document unread. They are a family of
//! operations ([`OperationFamily`]) and have no listener of their own. So the command line has one entry point, and errors
//! read the same whichever gateway carried the request. The documents are those of [`operations::amqp`].

use ::operations::family::{Effect, OperationAnswer, OperationError, OperationFamily};
use access::{UserError, Users};
use base::limits::{OPERATION_PAGE_BYTES_MAX, OPERATION_RECORDS_MAX};
use documents::StoreError;
use operations::amqp::{
    AccessExplanation, AddedUser, CreateResult, EmptyDocument, NamedPolicy, Operation,
    PolicyDefinition, PolicyPage, UserPage, UserSummary, VhostPage, VhostPermissions, VhostSummary,
};
use passwords::Verifiers;
use serde::Serialize;
use topology::{ChangeError, DEFAULT_VHOST, PolicyError, PolicyScope, Topology, VirtualHost};

/// Length limit of a short string on the wire.
const VHOST_NAME_BYTES_MAX: usize = 255;
const POLICY_NAME_BYTES_MAX: usize = 255;

/// Executes operations.
#[derive(Debug)]
pub struct Administration {
    topology: Topology,
    users: Users,
}

impl OperationFamily for Administration {
    fn effect(&self, operation: &[u8]) -> Effect {
        match serde_json::from_slice(operation) {
            Ok(operation) => describe(&operation).map_or(Effect::Look, Effect::Change),
            Err(_) => Effect::Change(String::new()),
        }
    }

    fn carry_out(&self, operation: Vec<u8>) -> OperationAnswer<'_> {
        Box::pin(async move {
            let operation = serde_json::from_slice(&operation).map_err(|error| {
                OperationError::Invalid(format!("the document is no operation: {error}"))
            })?;
            let words = describe(&operation);
            let answer = self.answer(operation).await;
            if let (Some(words), Ok(_)) = (words, &answer) {
                tracing::info!("{words}");
            }
            answer
        })
    }
}

type OperationResponse = Result<Vec<u8>, OperationError>;

impl Administration {
    pub fn new(topology: Topology, users: Users) -> Self {
        Self { topology, users }
    }

    async fn answer(&self, operation: Operation) -> OperationResponse {
        match operation {
            Operation::AddVhost { name } => document(self.add_vhost(&name).await?),
            Operation::ListVhosts { after } => document(self.list_vhosts(after.as_deref())?),
            Operation::DeleteVhost { name } => document(self.delete_vhost(&name).await?),
            Operation::SetPolicy { vhost, name, policy } => {
                document(self.set_policy(&vhost, &name, policy).await?)
            }
            Operation::ListPolicies { vhost, after } => {
                document(self.list_policies(vhost.as_deref(), after).await?)
            }
            Operation::ClearPolicy { vhost, name } => {
                document(self.clear_policy(&vhost, &name).await?)
            }
            Operation::AddUser { name, password_hash, scram } => {
                let verifiers =
                    Verifiers { password_hash: Some(password_hash), rabbitmq: None, scram };
                let added = self.users.add(&name, verifiers).await;
                added.map_err(refused_user)?;
                document(AddedUser { log_ins: self.users.login_notice() })
            }
            Operation::SetPassword { name, password_hash, scram } => {
                let verifiers =
                    Verifiers { password_hash: Some(password_hash), rabbitmq: None, scram };
                done(self.users.set_password(&name, verifiers).await)
            }
            Operation::ListUsers { after } => document(self.list_users(after.as_deref())),
            Operation::DeleteUser { name } => done(self.users.delete(&name).await),
            Operation::Allow { user, vhost, permissions } => {
                done(self.users.allow(&user, &vhost, permissions).await)
            }
            Operation::Explain { user, host, action, resource, name } => {
                let explained = self.users.explain(&user, host, action, resource, &name);
                let (allowed, why) = explained
                    .ok_or_else(|| OperationError::NotFound(format!("there is no user {user}")))?;
                document(AccessExplanation { allowed, why })
            }
            Operation::Deny { user, vhost } => done(self.users.deny(&user, &vhost).await),
        }
    }

    // --------------------------------------------------------------------------------- vhosts

    async fn add_vhost(&self, name: &str) -> Result<CreateResult, OperationError> {
        check_name("vhost", name, VHOST_NAME_BYTES_MAX)?;
        let created = self.topology.vhost(name).is_none();
        self.topology.create_vhost(name).await.map_err(failed)?;
        Ok(CreateResult { created })
    }

    async fn delete_vhost(&self, name: &str) -> Result<EmptyDocument, OperationError> {
        if name == DEFAULT_VHOST {
            return Err(OperationError::Invalid("the default vhost / cannot be deleted".into()));
        }
        if !self.topology.delete_vhost(name).await.map_err(not_deleted)? {
            return Err(no_vhost(name));
        }
        self.users.forget_virtual_host(name).await.map_err(refused_user)?;
        Ok(EmptyDocument {})
    }

    fn list_vhosts(&self, after: Option<&str>) -> Result<VhostPage, OperationError> {
        let vhosts = self.topology.vhosts();
        let rest = vhosts.iter().filter(|vhost| after.is_none_or(|after| vhost.name() > after));
        let (vhosts, more) = page(rest.map(|vhost| VhostSummary {
            name: vhost.name().to_owned(),
            queues: vhost.queues().len() as u64,
            exchanges: vhost.exchanges().len() as u64,
            policies: vhost.policies(PolicyScope::User).len() as u64,
        }));
        Ok(VhostPage { vhosts, more })
    }

    async fn vhost(&self, name: &str) -> Result<VirtualHost, OperationError> {
        let found = self.topology.look_for_vhost(name).await.map_err(failed)?;
        found.ok_or_else(|| no_vhost(name))
    }

    // ------------------------------------------------------------------------------- policies

    async fn set_policy(
        &self,
        vhost: &str,
        name: &str,
        policy: PolicyDefinition,
    ) -> Result<CreateResult, OperationError> {
        check_name("policy", name, POLICY_NAME_BYTES_MAX)?;
        let vhost = self.vhost(vhost).await?;
        let scope = PolicyScope::User;
        let created = vhost.policies(scope).iter().all(|known| *known.name != *name);
        vhost.set_policy(scope, name, policy).await.map_err(|error| match error {
            PolicyError::Storage(fault) => failed(fault),
            error => OperationError::Invalid(error.to_string()),
        })?;
        Ok(CreateResult { created })
    }

    async fn clear_policy(&self, vhost: &str, name: &str) -> Result<EmptyDocument, OperationError> {
        let vhost = self.vhost(vhost).await?;
        let cleared = vhost.delete_policy(PolicyScope::User, name).await;
        cleared.map_err(|error| match error {
            PolicyError::NotFound(name) => OperationError::NotFound(format!(
                "vhost {} has no policy {name}; 'postroad policy list' names those there are",
                vhost.name()
            )),
            PolicyError::Storage(fault) => failed(fault),
            error => OperationError::Invalid(error.to_string()),
        })?;
        Ok(EmptyDocument {})
    }

    async fn list_policies(
        &self,
        vhost: Option<&str>,
        after: Option<(String, String)>,
    ) -> Result<PolicyPage, OperationError> {
        let vhosts = match vhost {
            Some(name) => vec![self.vhost(name).await?],
            None => self.topology.vhosts(),
        };
        let mut found = Vec::new();
        for vhost in &vhosts {
            found.extend(vhost.policies(PolicyScope::User).into_iter().map(|policy| NamedPolicy {
                vhost: vhost.name().to_owned(),
                name: policy.name.to_string(),
                policy: policy.set,
            }));
        }
        found.sort_by(|a, b| (&a.vhost, &a.name).cmp(&(&b.vhost, &b.name)));
        let rest = found.into_iter().filter(|policy| match &after {
            Some((vhost, name)) => (&policy.vhost, &policy.name) > (vhost, name),
            None => true,
        });
        let (policies, more) = page(rest);
        Ok(PolicyPage { policies, more })
    }

    // ---------------------------------------------------------------------------------- users

    fn list_users(&self, after: Option<&str>) -> UserPage {
        let users = self.users.list().into_iter();
        let rest = users.filter(|user| after.is_none_or(|after| &*user.name > after));
        let (users, more) = page(rest.map(|user| {
            UserSummary {
                name: user.name.to_string(),
                of_settings: user.of_settings,
                loopback_only: user.loopback_only,
                permissions: user
                    .permissions
                    .into_iter()
                    .map(|(vhost, permissions)| VhostPermissions {
                        vhost: vhost.to_string(),
                        permissions,
                    })
                    .collect(),
            }
        }));
        UserPage { users, more }
    }
}

/// Text of a change for the log and the audit. Their readers must not see password hashes.
fn describe(operation: &Operation) -> Option<String> {
    Some(match operation {
        Operation::AddVhost { name } => format!("vhost {name:?} is added"),
        Operation::DeleteVhost { name } => format!("vhost {name:?} is deleted"),
        Operation::SetPolicy { vhost, name, .. } => {
            format!("policy {name:?} of vhost {vhost:?} is set")
        }
        Operation::ClearPolicy { vhost, name } => {
            format!("policy {name:?} of vhost {vhost:?} is cleared")
        }
        Operation::AddUser { name, .. } => format!("user {name:?} is added"),
        Operation::SetPassword { name, .. } => format!("the password of user {name:?} is changed"),
        Operation::DeleteUser { name } => format!("user {name:?} is deleted"),
        Operation::Allow { user, vhost, .. } => {
            format!("the permissions of user {user:?} in vhost {vhost:?} are set")
        }
        Operation::Deny { user, vhost } => {
            format!("the permissions of user {user:?} in vhost {vhost:?} are taken away")
        }
        Operation::ListVhosts { .. }
        | Operation::ListPolicies { .. }
        | Operation::ListUsers { .. }
        | Operation::Explain { .. } => return None,
    })
}

/// Takes as many items as a reply holds. Returns whether there are more.
fn page<T: Serialize>(all: impl Iterator<Item = T>) -> (Vec<T>, bool) {
    let (mut taken, mut bytes) = (Vec::new(), 0);
    for one in all {
        if taken.len() >= OPERATION_RECORDS_MAX || bytes >= OPERATION_PAGE_BYTES_MAX {
            return (taken, true);
        }
        bytes += serde_json::to_vec(&one).map_or(0, |document| document.len());
        taken.push(one);
    }
    (taken, false)
}

fn done(outcome: Result<(), UserError>) -> OperationResponse {
    outcome.map_err(refused_user)?;
    document(EmptyDocument {})
}

fn document<T: Serialize>(answer: T) -> OperationResponse {
    serde_json::to_vec(&answer)
        .map_err(|error| OperationError::Failed(format!("the answer is no JSON: {error}")))
}

fn check_name(what: &str, name: &str, bytes_max: usize) -> Result<(), OperationError> {
    if name.is_empty() || name.len() > bytes_max {
        let text = format!("a {what} has a name of 1 to {bytes_max} bytes");
        return Err(OperationError::Invalid(text));
    }
    Ok(())
}

fn no_vhost(name: &str) -> OperationError {
    OperationError::NotFound(format!(
        "there is no vhost {name}; 'postroad vhost list' names those there are, 'postroad vhost \
         add {name}' makes it"
    ))
}

fn not_deleted(error: ChangeError) -> OperationError {
    OperationError::Failed(error.to_string())
}

fn failed(fault: StoreError) -> OperationError {
    OperationError::Failed(fault.to_string())
}

fn refused_user(error: UserError) -> OperationError {
    match error {
        UserError::Storage(fault) => failed(fault),
        UserError::NoSuchVirtualHost(name) => no_vhost(&name),
        UserError::NotFound(name) => OperationError::NotFound(format!(
            "there is no user {name}; 'postroad user list' names those there are, 'postroad user \
             add {name}' makes it"
        )),
        UserError::NoPermissions { .. } => OperationError::NotFound(error.to_string()),
        UserError::Unreadable(_) => OperationError::Failed(error.to_string()),
        UserError::Exists(name) => OperationError::Invalid(format!(
            "user {name} is there already; 'postroad user password {name}' changes the password"
        )),
        error => OperationError::Invalid(error.to_string()),
    }
}
