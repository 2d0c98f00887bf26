//! Operations on virtual hosts, policies and users, the entities of AMQP: a family of operations, sent in the request
//! `Operate`.
//!
//! Unknown fields of a request are rejected and those of a reply ignored, so that a reply may gain fields.

use std::collections::BTreeMap;
use std::net::IpAddr;

use access_rules::Permissions;
use access_rules::acl::{Action, Resource};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Name of the operation family.
pub const FAMILY: &str = "amqp";

/// A requested operation. The name of the variant is the key of the document.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Operation {
    /// Returns [`CreateResult`].
    AddVhost { name: String },
    /// Lists by name, after the given one. Returns [`VhostPage`].
    ListVhosts { after: Option<String> },
    /// Deletes a vhost with all its contents; its connections are closed. Returns [`EmptyDocument`].
    DeleteVhost { name: String },
    /// Creates or replaces a policy. Returns [`CreateResult`].
    SetPolicy { vhost: String, name: String, policy: PolicyDefinition },
    /// Lists by vhost and name, after the given ones. Returns [`PolicyPage`].
    ListPolicies {
        /// `None`: of all vhosts.
        vhost: Option<String>,
        after: Option<(String, String)>,
    },
    /// Returns [`EmptyDocument`].
    ClearPolicy { vhost: String, name: String },
    /// Returns [`EmptyDocument`].
    AddUser {
        name: String,
        /// Computed by `passwords::hash_password`: the password itself is never sent.
        password_hash: String,
        /// In the format of `passwords::Verifiers`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        scram: Vec<String>,
    },
    /// Returns [`EmptyDocument`].
    SetPassword {
        name: String,
        password_hash: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        scram: Vec<String>,
    },
    /// Lists by name, after the given one. Returns [`UserPage`].
    ListUsers { after: Option<String> },
    /// Deletes a user; its connections are closed. Returns [`EmptyDocument`].
    DeleteUser { name: String },
    /// Replaces the user's permissions in the vhost. Returns [`EmptyDocument`].
    Allow { user: String, vhost: String, permissions: Permissions },
    /// Returns [`EmptyDocument`].
    Deny { user: String, vhost: String },
    /// Explains whether a user is authorized for an action of Kafka's protocol. Returns [`AccessExplanation`].
    Explain {
        user: String,
        /// The client's address.
        host: IpAddr,
        action: Action,
        resource: Resource,
        name: String,
    },
}

// -------------------------------------------------------------------------------------- policies

/// Settings by RabbitMQ's names, without `x-`.
pub type Definition = BTreeMap<String, Value>;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum ApplyTo {
    #[default]
    #[serde(rename = "all")]
    All,
    #[serde(rename = "queues")]
    Queues,
    #[serde(rename = "classic_queues")]
    ClassicQueues,
    #[serde(rename = "quorum_queues")]
    QuorumQueues,
    #[serde(rename = "streams")]
    Streams,
    #[serde(rename = "exchanges")]
    Exchanges,
}

/// A policy as it is set and listed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PolicyDefinition {
    pub pattern: String,
    #[serde(rename = "apply-to", default)]
    pub apply_to: ApplyTo,
    #[serde(default)]
    pub priority: i64,
    pub definition: Definition,
}

// --------------------------------------------------------------------------------------- answers

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct EmptyDocument {}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct AddedUser {
    /// Effect on clients that have not logged in so far. Older nodes leave it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_ins: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AccessExplanation {
    pub allowed: bool,
    /// The reason as text.
    pub why: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CreateResult {
    /// False if one of that name existed already.
    pub created: bool,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VhostPage {
    pub vhosts: Vec<VhostSummary>,
    /// Whether there are more after the last one.
    pub more: bool,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VhostSummary {
    pub name: String,
    pub queues: u64,
    /// Includes the predeclared ones.
    pub exchanges: u64,
    pub policies: u64,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PolicyPage {
    pub policies: Vec<NamedPolicy>,
    pub more: bool,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct NamedPolicy {
    pub vhost: String,
    pub name: String,
    #[serde(flatten)]
    pub policy: PolicyDefinition,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct UserPage {
    pub users: Vec<UserSummary>,
    pub more: bool,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct UserSummary {
    pub name: String,
    /// Defined in the node's settings: has all permissions in every vhost, and is changed only there.
    pub of_settings: bool,
    /// May connect from the node's machine only.
    pub loopback_only: bool,
    pub permissions: Vec<VhostPermissions>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VhostPermissions {
    pub vhost: String,
    #[serde(flatten)]
    pub permissions: Permissions,
}
