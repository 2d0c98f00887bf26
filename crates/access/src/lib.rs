//! Who may log in, and what each may do.
//!
//! A gateway takes what its protocol says of a client ([`Credentials`], by SASL or however else),
//! and asks [`Users`] for a [`Principal`]: a user who is logged in. The principal gives a [`Grant`]
//! for a virtual host, and the grant says whether something may be done to an entity of a name. What
//! a refusal is called and how it is worded is the protocol's; nothing of one is here.
//!
//! * [`users`]: users, and changing them; `account`: one as it is kept
//! * [`login`]: from credentials to a principal; [`sasl`]: credentials as SASL has them
//! * [`principal`], [`permissions`]: what somebody who is logged in may do
//! * [`password`]: what is kept of a password
//! * `store`: the documents of users

mod account;
pub mod login;
pub mod password;
pub mod permissions;
pub mod principal;
pub mod sasl;
mod store;
pub mod users;

#[cfg(test)]
mod tests;

pub use login::{Credentials, LoginError};
pub use password::{PasswordError, hash_password};
pub use permissions::{Grant, PatternError, Permission, Permissions};
pub use principal::Principal;
pub use store::OpenError;
pub use users::{ListedUser, SettingsUser, UserError, Users};
