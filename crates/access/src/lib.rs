//! Authentication and authorization of users.
//!
//! A gateway reads credentials from its protocol ([`Credentials`], by SASL or otherwise), and [`Users`] turns them
//! into a [`Principal`], a logged-in user. The principal gives a [`Grant`] for a virtual host, and the grant decides
//! about permissions on a named entity. The protocols choose codes and texts of a rejection; nothing here is specific
//! to one.
//!
//! * [`users`]: users, and changes of them; `account`: one user in memory
//! * [`admission`]: which ports require a log-in; [`login`]: from credentials to a principal; [`sasl`]: SASL messages
//! * [`principal`], [`permissions`]: a logged-in user and its permissions
//! * [`tags`]: user tags of RabbitMQ's management API
//! * [`proof`]: log-in by SCRAM; `failures`: failed log-ins
//! * [`credentials`]: SCRAM credentials, listed and changed
//! * [`authorizer`]: decisions by rules, permissions and tags; [`operation`]: all operations
//! * [`certificate`], [`token`]: principals by client certificate, or by a token of an external issuer
//! * [`audit`]: audit of changes, log-ins and denials
//! * [`quotas`]: rates of produced, consumed and changed data for each client
//! * [`user_limits`]: limits of connections, channels and queues, by RabbitMQ's names
//! * [`credential_fingerprint`]: whether an earlier log-in is still valid
//! * `store`, `rules`: documents of users and of rules; `following`: keeps memory in step with them

mod account;
pub mod admission;
pub mod audit;
pub mod authorizer;
pub mod certificate;
pub mod credential_fingerprint;
pub mod credentials;
mod failures;
mod fair_queue;
mod following;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod limits;
pub mod login;
pub mod login_ports;
mod login_queue;
pub mod operation;
pub mod permissions;
pub mod principal;
pub mod proof;
pub mod quotas;
mod rules;
pub mod sasl;
mod store;
pub mod tags;
pub mod token;
pub mod user_limits;
pub mod users;

#[cfg(test)]
mod tests;

pub use admission::Admission;
pub use audit::{Audit, RequestContext};
pub use authorizer::{AccessTarget, Decision, Rights};
pub use certificate::{CertificateMapping, CertifiedName};
pub use credential_fingerprint::CredentialFingerprint;
pub use credentials::ScramCredential;
pub use login::{Credentials, LoginError};
pub use operation::Operation;
pub use permissions::{Grant, PatternError, Permission, check_permissions};
pub use principal::Principal;
pub use proof::Proof;
pub use quotas::Quotas;
pub use store::OpenError;
pub use tags::Tags;
pub use users::{ListedUser, SettingsUser, UserError, Users};
