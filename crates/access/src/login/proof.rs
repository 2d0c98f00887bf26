//! Log-in by proof of a password (SCRAM), without revealing which users exist.
//!
//! An unknown user gets the same replies as a known one, at the same step and after the same work: a salt that never
//! changes for the name, and a verifier that no proof matches. The salt is derived from a secret of the cluster, so
//! that all nodes send the same one, also after a restart.

use std::net::IpAddr;
use std::sync::Arc;

use passwords::GUEST_PASSWORD;
use scram::{Challenge, ClientFirst, Hash, ITERATIONS_MADE, ScramError, Verifier};

use super::LoginError;
use crate::principal::Principal;
use crate::users::Users;

/// Random bytes of a nonce.
const NONCE_BYTES: usize = 18;

/// A pending SCRAM exchange.
#[derive(Debug)]
pub struct Proof(Challenge);

impl Users {
    /// Handles the client-first message. Returns the reply.
    pub async fn challenge(
        &self,
        hash: Hash,
        message: &[u8],
        peer: IpAddr,
    ) -> Result<(Proof, String), LoginError> {
        let first = match ClientFirst::parse(message) {
            Ok(first) => first,
            Err(error) => return Err(self.refuse("", peer, LoginError::proof("", &error)).await),
        };
        let verifier = self.verifier(first.name(), hash).await;
        let (challenge, answer) = first.challenge(verifier, &self.nonce());
        Ok((Proof(challenge), answer))
    }

    /// Handles the client-final message. Returns the principal and the reply.
    pub async fn proved(
        &self,
        proof: Proof,
        message: &[u8],
        peer: IpAddr,
    ) -> Result<(Principal, String), LoginError> {
        let name = proof.0.name();
        let proved = match proof.0.finish(message) {
            // The user may have been deleted meanwhile.
            Ok(answer) if self.exists(name) => {
                self.admitted(name, peer).map(|principal| (principal, answer))
            }
            Ok(_) => Err(LoginError::proof(name, &ScramError::Proof)),
            Err(error) => Err(LoginError::proof(name, &error)),
        };
        match proved {
            Ok(proved) => Ok(proved),
            Err(error) => {
                // Replies to parallel guesses wait for each other.
                let _turn = self.0.queue.guess(peer, name).await;
                Err(self.refuse(name, peer, error).await)
            }
        }
    }

    fn nonce(&self) -> String {
        let mut bytes = [0; NONCE_BYTES];
        self.broker().entropy().fill(&mut bytes);
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    async fn verifier(&self, name: &str, hash: Hash) -> Verifier {
        let salt = self.0.derived.salt(self.broker(), name, hash).await;
        let password = match self.settings_user(name) {
            Some(user) => Some(user.password.clone()),
            None => match self.account(name) {
                Some(account) => match account.secret.verifier(hash) {
                    Some(verifier) => return verifier.clone(),
                    None => account.secret.is_guests().then(|| GUEST_PASSWORD.to_owned()),
                },
                None => None,
            },
        };
        match password {
            Some(password) => {
                self.0.derived.verifier(self.broker(), name, password, hash, salt).await
            }
            None => Verifier::decoy(hash, &salt, ITERATIONS_MADE),
        }
    }
}

impl LoginError {
    fn proof(user: &str, error: &ScramError) -> Self {
        Self::NotProved { user: user.to_owned(), reason: Arc::from(error.to_string()) }
    }
}
