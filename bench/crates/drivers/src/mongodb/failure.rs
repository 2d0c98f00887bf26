//! Maps errors of MongoDB's client to the suite's terms.

use driver::Failure;
use mongodb::error::{Error, ErrorKind, WriteFailure};

/// Server codes for missing permissions.
const UNAUTHORIZED: i32 = 13;
const AUTHENTICATION_FAILED: i32 = 18;

pub(super) fn failure(error: &Error) -> Failure {
    match &*error.kind {
        ErrorKind::Command(said) => {
            Failure::Refused(format!("{}: {}", said.code_name, said.message))
        }
        ErrorKind::Write(WriteFailure::WriteError(said)) => Failure::Refused(said.message.clone()),
        // Written, but less safely than requested.
        ErrorKind::Write(WriteFailure::WriteConcernError(said)) => {
            Failure::Unknown(said.message.clone())
        }
        ErrorKind::Io(_)
        | ErrorKind::ConnectionPoolCleared { .. }
        | ErrorKind::ServerSelection { .. }
        | ErrorKind::InvalidResponse { .. } => Failure::unknown(&error.kind),
        _ => Failure::refused(&error.kind),
    }
}

/// Maps the error of the first call, which shows whether the server is up and accepts the login.
pub(super) fn unreached(error: &Error, endpoint: &str, user: &str) -> Failure {
    let (endpoint, user) = (endpoint.to_owned(), user.to_owned());
    match &*error.kind {
        ErrorKind::Authentication { message, .. } => {
            Failure::NotAllowed { endpoint, user, why: message.clone() }
        }
        ErrorKind::Command(said) if matches!(said.code, UNAUTHORIZED | AUTHENTICATION_FAILED) => {
            Failure::NotAllowed { endpoint, user, why: said.message.clone() }
        }
        _ => match failure(error) {
            Failure::Unknown(why) => Failure::Unreachable { endpoint, why },
            other => other,
        },
    }
}

/// Outcome of each of `count` documents that are inserted in order.
pub(super) fn outcomes(count: usize, error: Option<&Error>) -> Vec<Result<(), Failure>> {
    let Some(error) = error else { return vec![Ok(()); count] };
    let ErrorKind::InsertMany(said) = &*error.kind else {
        return vec![Err(failure(error)); count];
    };
    let inserted = match &said.write_concern_error {
        None => Ok(()),
        Some(said) => Err(Failure::Unknown(said.message.clone())),
    };
    let first = said.write_errors.iter().flatten().min_by_key(|failed| failed.index);
    match first {
        None => vec![inserted; count],
        // The server stops at the first failure.
        Some(failed) => {
            let refused = Err(Failure::Refused(failed.message.clone()));
            let outcome = |index| if index < failed.index { &inserted } else { &refused };
            (0..count).map(outcome).cloned().collect()
        }
    }
}
