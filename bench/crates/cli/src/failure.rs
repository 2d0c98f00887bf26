use thiserror::Error;

/// Error of a command: one line for the user.
#[derive(Debug, Error)]
pub(crate) enum CliError {
    #[error("{0}")]
    User(String),
    #[error(transparent)]
    Store(#[from] results::StoreError),
    #[error(transparent)]
    Driver(#[from] driver::Failure),
    #[error("{path}: {source}")]
    Io { path: String, source: std::io::Error },
}

impl CliError {
    pub(crate) fn user(what: impl std::fmt::Display) -> Self {
        Self::User(what.to_string())
    }

    pub(crate) fn io(path: &std::path::Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.display().to_string();
        move |source| Self::Io { path, source }
    }
}
