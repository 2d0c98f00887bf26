//! The client's side: it knows the password.

use std::fmt;

use aws_lc_rs::constant_time;

use crate::message::{
    MalformedMessage, attribute, decode_bytes, encode_bytes, encode_name, text, xor,
};
use crate::verifier::{CLIENT_KEY, Hash, SERVER_KEY};

const HEADER: &str = "n,,";
/// A server must not keep its clients busy without bound.
const ITERATIONS_MAX: u32 = 1_000_000;

pub struct Client {
    hash: Hash,
    password: String,
    bare: String,
    nonce: String,
}

/// The signature that the server's last message must carry.
pub struct ExpectedSignature(Vec<u8>);

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("hash", &self.hash).finish_non_exhaustive()
    }
}

impl fmt::Debug for ExpectedSignature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExpectedSignature").finish_non_exhaustive()
    }
}

impl Client {
    /// `nonce` must be random, printable and without commas.
    pub fn new(hash: Hash, name: &str, password: &str, nonce: &str) -> Self {
        let bare = format!("n={},r={nonce}", encode_name(name));
        Self { hash, password: password.to_owned(), bare, nonce: nonce.to_owned() }
    }

    /// The client-first message.
    pub fn first(&self) -> String {
        format!("{HEADER}{}", self.bare)
    }

    /// The client-final message, and the server signature expected in reply to it.
    pub fn answer(
        &self,
        challenge: &[u8],
    ) -> Result<(String, ExpectedSignature), MalformedMessage> {
        self.answer_with_nonce(challenge, str::to_owned)
    }

    pub(crate) fn answer_with_nonce(
        &self,
        challenge: &[u8],
        said: impl FnOnce(&str) -> String,
    ) -> Result<(String, ExpectedSignature), MalformedMessage> {
        let challenge = text(challenge)?;
        let (nonce, rest) = attribute(challenge, "r=", "the server has no nonce")?;
        if !nonce.starts_with(&self.nonce) || nonce.len() == self.nonce.len() {
            return Err(MalformedMessage("the server's reply is for another client"));
        }
        let (salt, rest) = attribute(rest, "s=", "the server has no salt")?;
        let salt = decode_bytes(salt, "the server's salt is none")?;
        let (iterations, _) = attribute(rest, "i=", "the server says no iterations")?;
        let iterations = iterations.parse().unwrap_or(0);
        if !(1..=ITERATIONS_MAX).contains(&iterations) {
            return Err(MalformedMessage("the server asks for too many iterations, or none"));
        }
        let salted = self.hash.salted(&self.password, &salt, iterations);
        let client_key = self.hash.hmac(&salted, CLIENT_KEY);
        let unproved = format!("c={},r={}", encode_bytes(HEADER.as_bytes()), said(nonce));
        let all = format!("{},{challenge},{unproved}", self.bare);
        let signature = self.hash.hmac(&self.hash.digest(&client_key), all.as_bytes());
        let proof = encode_bytes(&xor(&client_key, &signature));
        let server_key = self.hash.hmac(&salted, SERVER_KEY);
        let expected = self.hash.hmac(&server_key, all.as_bytes());
        Ok((format!("{unproved},p={proof}"), ExpectedSignature(expected)))
    }
}

impl ExpectedSignature {
    /// Checks that the server knows the verifier of the password.
    pub fn check(&self, message: &[u8]) -> Result<(), MalformedMessage> {
        let (signature, _) = attribute(text(message)?, "v=", "the server proves nothing")?;
        let signature = decode_bytes(signature, "the server proves nothing")?;
        constant_time::verify_slices_are_equal(&signature, &self.0)
            .map_err(|_| MalformedMessage("the server does not know the password"))
    }
}
