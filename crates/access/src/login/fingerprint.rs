//! Validity of an earlier log-in, for clients that do not send their password again: browser sessions.

use std::net::IpAddr;

use access_rules::OPERATOR;
use aws_lc_rs::digest::{Context, SHA256};

use crate::principal::Principal;
use crate::users::Users;

/// Fingerprint of the credentials behind a log-in. It changes when the password changes, or when the user is deleted
/// and created again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CredentialFingerprint([u8; 32]);

impl Users {
    /// `None`: the user no longer exists.
    pub fn standing(&self, principal: &Principal) -> Option<CredentialFingerprint> {
        let name = &**principal.name();
        let mut context = Context::new(&SHA256);
        let mut add = |part: &str| {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part.as_bytes());
        };
        if name == OPERATOR {
            // The operators' token stays the same while the node runs.
            add("operator");
        } else if let Some(user) = self.settings_user(name) {
            add("settings");
            add(&user.password);
        } else {
            // Each hash and verifier has its own salt, so setting the same password again changes it.
            let verifiers = self.account(name)?.secret.verifiers();
            add("account");
            add(verifiers.password_hash.as_deref().unwrap_or_default());
            add(verifiers.rabbitmq.as_ref().map_or("", |rabbitmq| &rabbitmq.hash));
            verifiers.scram.iter().for_each(|verifier| add(verifier));
        }
        let mut digest = [0; 32];
        digest.copy_from_slice(context.finish().as_ref());
        Some(CredentialFingerprint(digest))
    }

    /// Whether a principal with this standing would be admitted now, from this address.
    pub fn still_admits(
        &self,
        principal: &Principal,
        standing: CredentialFingerprint,
        peer: IpAddr,
    ) -> bool {
        self.standing(principal) == Some(standing)
            && (&**principal.name() == OPERATOR || self.admitted(principal.name(), peer).is_ok())
    }
}
