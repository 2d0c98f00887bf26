//! Whether a log-in of a while ago still holds, for who does not say its password again: a browser's session.

use std::net::IpAddr;

use aws_lc_rs::digest::{Context, SHA256};

use crate::principal::Principal;
use crate::users::{OPERATOR, Users};

/// What a log-in rests on. Another one once the password is another, or the user was deleted and made anew.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Standing([u8; 32]);

impl Users {
    /// `None`: the user is not there any more.
    pub fn standing(&self, principal: &Principal) -> Option<Standing> {
        let name = &**principal.name();
        let mut context = Context::new(&SHA256);
        let mut add = |part: &str| {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part.as_bytes());
        };
        if name == OPERATOR {
            // Its token stays the same for as long as the node runs.
            add("operator");
        } else if let Some(user) = self.of_settings(name) {
            add("settings");
            add(&user.password);
        } else {
            // Each verifier has a salt of its own, so the same password set again is another one.
            let verifiers = self.account(name)?.secret.verifiers();
            add("account");
            add(verifiers.password_hash.as_deref().unwrap_or_default());
            verifiers.scram.iter().for_each(|verifier| add(verifier));
        }
        let mut digest = [0; 32];
        digest.copy_from_slice(context.finish().as_ref());
        Some(Standing(digest))
    }

    /// Whether somebody who logged in on this standing would be let in now, from there.
    pub fn still_admits(&self, principal: &Principal, standing: Standing, peer: IpAddr) -> bool {
        self.standing(principal) == Some(standing)
            && (&**principal.name() == OPERATOR || self.admitted(principal.name(), peer).is_ok())
    }
}
