//! Whether clients of a port must log in.

use crate::users::Users;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Admission {
    /// They may, and need not.
    #[default]
    Open,
    Required,
    /// They must as soon as there is a user.
    OpenWithoutUsers,
}

impl Admission {
    /// Of somebody who comes now, where these are the users that there are.
    pub fn is_log_in_required(self, users: Option<&Users>) -> bool {
        match self {
            Self::Open => false,
            Self::Required => true,
            Self::OpenWithoutUsers => users.is_some_and(Users::has_any),
        }
    }
}
