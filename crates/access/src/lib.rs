//! Who may log in, and what each may do.
//!
//! A gateway takes what its protocol says of a client ([`Credentials`], by SASL or however else),
//! and asks [`Users`] for a [`Principal`]: a user who is logged in. The principal gives a [`Grant`]
//! for a virtual host, and the grant says whether something may be done to an entity of a name. What
//! a refusal is called and how it is worded is the protocol's; nothing of one is here.
//!
//! * [`users`]: users, and changing them; `account`: one as it is kept
//! * [`admission`]: who must log in; [`login`]: from credentials to a principal; [`sasl`]: credentials as SASL has them
//! * [`principal`], [`permissions`]: what somebody who is logged in may do
//! * [`tags`]: what RabbitMQ's management API goes by besides
//! * [`proof`]: the same by SCRAM; `failures`: log-ins that failed
//! * [`credentials`]: what is kept for SCRAM, listed and changed
//! * [`password`], [`rabbitmq_hash`], `secret`: what is kept of a password
//! * [`acl`], [`authorizer`]: Kafka's access lists, and what somebody may do by all that there is; [`operation`]: what
//!   there is to be done
//! * [`certificate`], [`token`]: who a client is by its certificate, or by a token of somebody else
//! * [`audit`]: who did what, written down
//! * [`quotas`]: how much each may send, take and change in a second
//! * [`limits`]: how many connections, channels and queues there may be, by RabbitMQ's names
//! * [`standing`]: whether a log-in of a while ago still holds
//! * `store`, `rules`: the documents of users, and of rules; `following`: memory goes after them

mod account;
pub mod acl;
pub mod admission;
pub mod audit;
pub mod authorizer;
pub mod certificate;
pub mod credentials;
mod failures;
mod following;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod limits;
pub mod login;
pub mod login_ports;
mod login_queue;
pub mod operation;
pub mod password;
pub mod permissions;
pub mod principal;
pub mod proof;
pub mod quotas;
pub mod rabbitmq_hash;
mod rules;
pub mod sasl;
mod secret;
pub mod standing;
mod store;
pub mod tags;
pub mod token;
mod turns;
pub mod users;

#[cfg(test)]
mod tests;

pub use admission::Admission;
pub use audit::{Audit, Said};
pub use authorizer::{Decision, Rights, Target};
pub use certificate::{CertificateMapping, Certified};
pub use credentials::ScramCredential;
pub use login::{Credentials, LoginError};
pub use operation::Operation;
pub use password::{PasswordError, hash_password, is_same};
pub use permissions::{Grant, PatternError, Permission, Permissions};
pub use principal::Principal;
pub use proof::Proof;
pub use quotas::Quotas;
pub use secret::Verifiers;
pub use standing::Standing;
pub use store::OpenError;
pub use tags::Tags;
pub use users::{ListedUser, OPERATOR, SettingsUser, UserError, Users};
