//! Authentication and authorization of users.
//!
//! A gateway reads credentials from its protocol ([`Credentials`], by SASL or otherwise), and [`Users`] turns them
//! into a [`Principal`], a logged-in user. The principal gives a [`Grant`] for a virtual host, and the grant decides
//! about permissions on a named entity. The protocols choose codes and texts of a rejection; nothing here is specific
//! to one.
//!
//! # Modules, each above the modules that it uses
//!
//! * [`authorizer`]: decisions by rules, permissions and tags
//! * [`login`]: from credentials to a principal: by password, SCRAM, certificate or token
//! * [`principal`]: a logged-in user
//! * [`users`]: users, rules and limits, in memory and as documents
//! * `login_throttle`: delays and queues of log-ins; `derived_verifiers`: SCRAM for users without a stored verifier
//! * [`audit`]: audit of changes, log-ins and denials
//! * [`quotas`]: rates of produced, consumed and changed data for each client
//! * [`operation`]: all operations; [`permissions`], [`tags`]: rights of a user
//! * [`certificate`]: names in client certificates; [`login_ports`]: which ports require a log-in

pub mod audit;
pub mod authorizer;
pub mod certificate;
mod derived_verifiers;
mod error;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod limits;
pub mod login;
pub mod login_ports;
mod login_throttle;
pub mod operation;
pub mod permissions;
pub mod principal;
pub mod quotas;
pub mod tags;
mod user_name;
pub mod users;

#[cfg(test)]
mod tests;

pub use audit::{Audit, RequestContext};
pub use authorizer::{AccessTarget, Decision, Rights};
pub use certificate::{CertificateMapping, CertifiedName};
pub use error::{OpenError, UserError};
pub use login::{CredentialFingerprint, Credentials, LoginError, Proof, sasl};
pub use login_ports::Admission;
pub use operation::Operation;
pub use permissions::{Grant, PatternError, Permission, check_permissions};
pub use principal::Principal;
pub use quotas::Quotas;
pub use tags::Tags;
pub use users::{ListedUser, ScramCredential, SettingsUser, Users, user_limits};
