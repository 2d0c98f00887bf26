//! Who somebody is by a token that somebody else signed (the crate `tokens`).
//!
//! Whom a token names need not be a user, as with certificates: the issuer knows who there is. What it may do is what
//! rules and permissions say of the name. It goes on until the token ends.

use std::net::IpAddr;
use std::sync::Arc;

use tokens::{TokenError, Tokens};

use crate::certificate::{NameError, check_name};
use crate::login::LoginError;
use crate::principal::Principal;
use crate::users::Users;

/// What is wrong with a token, without a word of it.
#[derive(Debug, thiserror::Error)]
enum UnnamedError {
    #[error("its token is refused: {0}")]
    Token(#[from] TokenError),
    #[error("the name that its token gives is none: {0}")]
    Name(#[from] NameError),
    #[error("nobody logs in by tokens here")]
    None,
}

impl Users {
    /// Has these tokens say who somebody is; once, before anybody connects.
    pub fn believe_tokens(&self, tokens: Tokens) {
        let believed = self.0.tokens.set(tokens);
        debug_assert!(believed.is_ok(), "they were believed before");
    }

    /// Whether somebody may log in by a token.
    pub fn takes_tokens(&self) -> bool {
        self.0.tokens.get().is_some()
    }

    /// Whether a password is to be taken for a token.
    pub fn is_token(&self, password: &str) -> bool {
        self.takes_tokens() && tokens::is_like_one(password)
    }

    /// Logs in whom a token names. Somebody who fails often waits for the answer.
    pub async fn log_in_by_token(
        &self,
        token: &str,
        peer: IpAddr,
    ) -> Result<Principal, LoginError> {
        let refused = match self.named_by(token).await {
            Ok((name, ends_ms)) => match self.admitted(&name, peer) {
                Ok(principal) => return Ok(principal.vouched_for().until(ends_ms)),
                Err(error) => error,
            },
            Err(error) => LoginError::Token { reason: Arc::from(error.to_string()) },
        };
        Err(self.refuse("", peer, refused).await)
    }

    async fn named_by(&self, token: &str) -> Result<(String, i64), UnnamedError> {
        let tokens = self.0.tokens.get().ok_or(UnnamedError::None)?;
        let verified = tokens.verify(token).await?;
        check_name(&verified.name)?;
        Ok((verified.name, verified.ends_ms))
    }
}
