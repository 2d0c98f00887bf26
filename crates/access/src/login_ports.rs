//! Whether clients of a port must log in.

use crate::users::Users;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Admission {
    /// Log-in is optional.
    #[default]
    Open,
    Required,
    /// Log-in is required as soon as there is a user.
    OpenWithoutUsers,
}

impl Admission {
    /// Whether a client that connects now must log in, given these users.
    pub fn is_log_in_required(self, users: Option<&Users>) -> bool {
        match self {
            Self::Open => false,
            Self::Required => true,
            Self::OpenWithoutUsers => users.is_some_and(Users::has_any),
        }
    }
}
