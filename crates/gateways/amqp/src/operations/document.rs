//! Request and reply types of this gateway's operations. The gateway and the command line are one workspace and share
//! them.
//!
//! Unknown fields of a request are rejected and those of a reply ignored, so that a reply may gain fields.

use std::net::IpAddr;

use access::Permissions;
use access::acl::{Action, Resource};
use serde::{Deserialize, Serialize};
use topology::PolicyDefinition;

/// A requested operation. The name of the variant is the key of the document.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Operation {
    /// Answers [`Made`].
    AddVhost { name: String },
    /// By name, after the given one. Answers [`VhostPage`].
    ListVhosts { after: Option<String> },
    /// With all that is in it; its connections are closed. Answers [`Done`].
    DeleteVhost { name: String },
    /// Makes or replaces a policy. Answers [`Made`].
    SetPolicy { vhost: String, name: String, policy: PolicyDefinition },
    /// By vhost and name, after the given ones. Answers [`PolicyPage`].
    ListPolicies {
        /// `None`: of all.
        vhost: Option<String>,
        after: Option<(String, String)>,
    },
    /// Answers [`Done`].
    ClearPolicy { vhost: String, name: String },
    /// Answers [`Done`].
    AddUser {
        name: String,
        /// By [`access::hash_password`]: the password itself stays where it is.
        password_hash: String,
        /// As [`access::Verifiers`] has them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        scram: Vec<String>,
    },
    /// Answers [`Done`].
    SetPassword {
        name: String,
        password_hash: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        scram: Vec<String>,
    },
    /// By name, after the given one. Answers [`UserPage`].
    ListUsers { after: Option<String> },
    /// Its connections are closed. Answers [`Done`].
    DeleteUser { name: String },
    /// Instead of what the user may do there now. Answers [`Done`].
    Allow { user: String, vhost: String, permissions: Permissions },
    /// Answers [`Done`].
    Deny { user: String, vhost: String },
    /// Whether a user may do something by Kafka's protocol, and why. Answers [`Explained`].
    Explain {
        user: String,
        /// Where it comes from.
        host: IpAddr,
        action: Action,
        resource: Resource,
        name: String,
    },
}

// --------------------------------------------------------------------------------------- answers

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Done {}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct AddedUser {
    /// Effect on clients that have not logged in so far. Older nodes leave it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_ins: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Explained {
    pub allowed: bool,
    /// In words.
    pub why: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Made {
    /// False when one of that name was there already.
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
    /// Those that every vhost has are among them.
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
    /// May do everything in every vhost; only the node's settings can change that.
    pub of_settings: bool,
    /// Connects from the node's machine only.
    pub loopback_only: bool,
    pub permissions: Vec<VhostPermissions>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VhostPermissions {
    pub vhost: String,
    #[serde(flatten)]
    pub permissions: Permissions,
}
