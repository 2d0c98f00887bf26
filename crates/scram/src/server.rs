//! The server's side: it knows the verifiers of passwords.
//!
//! ```text
//! client   n,,n=user,r=CLIENTNONCE
//! server   r=CLIENTNONCE+SERVERNONCE,s=SALT,i=ITERATIONS
//! client   c=biws,r=CLIENTNONCE+SERVERNONCE,p=PROOF
//! server   v=SIGNATURE
//! ```

use std::fmt;

use aws_lc_rs::constant_time;
use thiserror::Error;

use crate::message::{
    MalformedMessage, attribute, decode_bytes, decode_name, encode_bytes, is_nonce, text, xor,
};
use crate::verifier::Verifier;

/// Reason of a failed authentication, for the node's log. The client receives the same error for all of them.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ScramError {
    #[error(transparent)]
    Malformed(#[from] MalformedMessage),
    #[error("it binds to a channel, which is not offered")]
    ChannelBinding,
    #[error("it wants to act as another user")]
    OtherIdentity,
    #[error("it comes with a delegation token, and there are none")]
    DelegationToken,
    #[error("it answers another challenge")]
    Nonce,
    #[error("the password is wrong, or there is no such user")]
    Proof,
}

/// A client's first message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientFirst {
    name: String,
    nonce: String,
    /// The GS2 header, which precedes the bare message; the last message repeats it.
    header: String,
    bare: String,
}

impl ClientFirst {
    pub fn parse(message: &[u8]) -> Result<Self, ScramError> {
        let message = text(message)?;
        let short = MalformedMessage("it has no header");
        let (binding, rest) = message.split_once(',').ok_or(short)?;
        let (identity, bare) = rest.split_once(',').ok_or(short)?;
        match binding {
            // "y": the client supports channel binding and believes that the server does not.
            "n" | "y" => {}
            _ if binding.starts_with("p=") => return Err(ScramError::ChannelBinding),
            _ => return Err(MalformedMessage("its header is none").into()),
        }
        let (name, rest) = attribute(bare, "n=", "it names no user")?;
        let name = decode_name(name)?;
        if name.is_empty() {
            return Err(MalformedMessage("the user's name is empty").into());
        }
        let (nonce, extensions) = attribute(rest, "r=", "it has no nonce")?;
        if !is_nonce(nonce) {
            return Err(MalformedMessage("its nonce is none").into());
        }
        match identity.strip_prefix("a=") {
            None if identity.is_empty() => {}
            Some(other) if decode_name(other)? == name => {}
            Some(_) => return Err(ScramError::OtherIdentity),
            None => return Err(MalformedMessage("its header is none").into()),
        }
        // Other extensions have no meaning here; the proof covers them.
        if extensions.split(',').any(|it| it.eq_ignore_ascii_case("tokenauth=true")) {
            return Err(ScramError::DelegationToken);
        }
        let header = message[..message.len() - bare.len()].to_owned();
        Ok(Self { name, nonce: nonce.to_owned(), header, bare: bare.to_owned() })
    }

    /// Name of the user that the client claims to be.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The server-first message, and the state that checks the client's proof. `server_nonce` must be random,
    /// printable and without commas.
    pub fn challenge(self, verifier: Verifier, server_nonce: &str) -> (Challenge, String) {
        let nonce = format!("{}{server_nonce}", self.nonce);
        let salt = encode_bytes(verifier.salt());
        let said = format!("r={nonce},s={salt},i={}", verifier.iterations());
        let challenge = Challenge { first: self, nonce, said: said.clone(), verifier };
        (challenge, said)
    }
}

/// State between the server's challenge and the client's proof.
#[derive(Clone)]
pub struct Challenge {
    first: ClientFirst,
    nonce: String,
    said: String,
    verifier: Verifier,
}

impl fmt::Debug for Challenge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Challenge").field("name", &self.first.name).finish_non_exhaustive()
    }
}

impl Challenge {
    /// Name of the user that the client claims to be.
    pub fn name(&self) -> &str {
        self.first.name()
    }

    /// Checks the client-final message. Returns the server-final message, which proves that the server knows the
    /// verifier.
    pub fn finish(&self, message: &[u8]) -> Result<String, ScramError> {
        let message = text(message)?;
        let no_proof = MalformedMessage("it has no proof");
        let (unproved, proof) = message.rsplit_once(",p=").ok_or(no_proof)?;
        let (header, rest) = attribute(unproved, "c=", "it does not repeat its header")?;
        let (nonce, _) = attribute(rest, "r=", "it has no nonce")?;
        if decode_bytes(header, "its header is none")? != self.first.header.as_bytes() {
            return Err(MalformedMessage("it repeats another header than it sent").into());
        }
        // Compares the end only, though RFC 5802 allows nothing before it: librdkafka before 2.6.1 sends its own part
        // twice. The proof covers the sent nonce, so an attacker gains nothing.
        if !nonce.ends_with(&self.nonce) {
            return Err(ScramError::Nonce);
        }
        let proof = decode_bytes(proof, "its proof is none")?;
        let hash = self.verifier.hash();
        if proof.len() != hash.bytes() {
            return Err(MalformedMessage("its proof is not as long as the hash").into());
        }
        let all = format!("{},{},{unproved}", self.first.bare, self.said);
        let signature = hash.hmac(self.verifier.stored_key(), all.as_bytes());
        let stored = hash.digest(&xor(&proof, &signature));
        constant_time::verify_slices_are_equal(&stored, self.verifier.stored_key())
            .map_err(|_| ScramError::Proof)?;
        let ours = hash.hmac(self.verifier.server_key(), all.as_bytes());
        Ok(format!("v={}", encode_bytes(&ours)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::client::Client;
    use crate::verifier::Hash;

    const OURS: &str = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";

    fn verifier(hash: Hash) -> Verifier {
        Verifier::from_password(hash, "pencil", b"0123456789abcdef", 4_096).expect("made")
    }

    fn first(message: &str) -> Result<ClientFirst, ScramError> {
        ClientFirst::parse(message.as_bytes())
    }

    /// RFC 7677, section 3.
    #[test]
    fn example_of_rfc_7677_verifies() {
        let salt = decode_bytes("W22ZaJ0SNY7soEsUEjb6gQ==", "salt").expect("base64");
        let verifier = Verifier::from_password(Hash::Sha256, "pencil", &salt, 4_096).expect("made");
        let parsed = first("n,,n=user,r=rOprNGfwEbeRWgbNEkqO").expect("well-formed");
        assert_eq!(parsed.name(), "user");
        let (challenge, said) = parsed.challenge(verifier, OURS);
        assert_eq!(
            said,
            "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
        );
        let last = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                    p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
        let answer = challenge.finish(last.as_bytes()).expect("is right");
        assert_eq!(answer, "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
    }

    #[test]
    fn exchange_succeeds_only_with_the_right_password() {
        for hash in Hash::ALL {
            for (name, password, is_right) in [
                ("user", "pencil", true),
                ("a=b,c", "pencil", true),
                ("user", "Pencil", false),
                ("user", "", false),
            ] {
                let client = Client::new(hash, name, password, "clientnonce");
                let parsed = first(&client.first()).expect("well-formed");
                assert_eq!(parsed.name(), name);
                let (challenge, said) = parsed.challenge(verifier(hash), OURS);
                let (last, expected) = client.answer(said.as_bytes()).expect("well-formed");
                match challenge.finish(last.as_bytes()) {
                    Ok(answer) => {
                        assert!(is_right, "{password:?} is taken");
                        expected.check(answer.as_bytes()).expect("the server knows it");
                        assert!(expected.check(b"v=AAAA").is_err());
                    }
                    Err(error) => {
                        assert!(!is_right, "{error}");
                        assert_eq!(error, ScramError::Proof);
                    }
                }
            }
        }
    }

    #[test]
    fn decoy_verifier_rejects_every_proof() {
        let client = Client::new(Hash::Sha256, "nobody", "pencil", "clientnonce");
        let nobody = Verifier::decoy(Hash::Sha256, b"0123456789abcdef", 4_096);
        let (challenge, said) = first(&client.first()).expect("first").challenge(nobody, OURS);
        let (last, _) = client.answer(said.as_bytes()).expect("well-formed");
        assert_eq!(challenge.finish(last.as_bytes()), Err(ScramError::Proof));
    }

    /// librdkafka before 2.6.1 sends `r=CLIENTNONCE` followed by the whole nonce.
    #[test]
    fn repeated_client_nonce_is_accepted_and_a_nonce_without_the_servers_part_is_not() {
        let client = Client::new(Hash::Sha512, "user", "pencil", "clientnonce");
        let (challenge, said) =
            first(&client.first()).expect("first").challenge(verifier(Hash::Sha512), OURS);
        let old = client.answer_with_nonce(said.as_bytes(), |whole| format!("clientnonce{whole}"));
        assert!(challenge.finish(old.expect("well-formed").0.as_bytes()).is_ok());
        for wrong in ["clientnonce", OURS, "", "clientnoncE%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"] {
            let last = client.answer_with_nonce(said.as_bytes(), |_| wrong.to_owned());
            let refused = challenge.finish(last.expect("well-formed").0.as_bytes());
            assert_eq!(refused, Err(ScramError::Nonce), "{wrong}");
        }
    }

    #[test]
    fn unsupported_features_and_malformed_first_messages_are_rejected() {
        assert_eq!(first("p=tls-unique,,n=u,r=x"), Err(ScramError::ChannelBinding));
        assert_eq!(first("n,a=other,n=u,r=x"), Err(ScramError::OtherIdentity));
        assert_eq!(first("n,,n=u,r=x,tokenauth=true"), Err(ScramError::DelegationToken));
        for fine in ["y,,n=u,r=x", "n,a=u,n=u,r=x", "n,,n=u,r=x,ext=1", "n,a==3D,n==3D,r=x"] {
            assert!(first(fine).is_ok(), "{fine}");
        }
        for malformed in [
            "",
            "n",
            "n,",
            "n,,",
            "n,,x",
            "n,,n=,r=x",
            "n,,n=u",
            "n,,n=u,",
            "n,,n=u,r=",
            "n,,n=u=,r=x",
            "n,,n=u=2D,r=x",
            "n,b,n=u,r=x",
            "q,,n=u,r=x",
            "n,,m=1,n=u,r=x",
            "n,,n=u,r=a b",
        ] {
            assert!(matches!(first(malformed), Err(ScramError::Malformed(_))), "{malformed}");
        }
        assert!(first(&format!("n,,n=u,r={}", "x".repeat(5_000))).is_err());
    }

    #[test]
    fn last_message_with_another_header_is_rejected() {
        let client = Client::new(Hash::Sha256, "user", "pencil", "clientnonce");
        let (challenge, said) =
            first(&client.first()).expect("first").challenge(verifier(Hash::Sha256), OURS);
        let (last, _) = client.answer(said.as_bytes()).expect("well-formed");
        for wrong in [last.replace("c=biws", "c=eSws"), last.replace("c=biws", "c=*")] {
            assert!(matches!(challenge.finish(wrong.as_bytes()), Err(ScramError::Malformed(_))));
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(bytes: Vec<u8>) {
            if let Ok(first) = ClientFirst::parse(&bytes) {
                let _ = first.challenge(Verifier::decoy(Hash::Sha256, &[0; 16], 4_096), "x");
            }
            let parsed = first("n,,n=u,r=x").expect("well-formed");
            let nobody = Verifier::decoy(Hash::Sha512, &[0; 16], 4_096);
            prop_assert!(parsed.challenge(nobody, "y").0.finish(&bytes).is_err());
        }

        #[test]
        fn text_like_a_message_does_not_panic(
            text in "[nyp]?=?,?(a=)?[a-z=,]{0,4},?(n=)?[a-z=23CD,]{0,9}(,r=)?[!-~]{0,9}(,p=)?[A-Za-z=]{0,9}"
        ) {
            let _ = first(&text);
            let parsed = first("n,,n=u,r=x").expect("well-formed");
            let nobody = Verifier::decoy(Hash::Sha256, &[0; 16], 4_096);
            prop_assert!(parsed.challenge(nobody, "y").0.finish(text.as_bytes()).is_err());
        }
    }
}
