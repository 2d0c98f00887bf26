//! Maps errors of Amazon's client to the suite's terms.

use std::error::Error;

use aws_sdk_sqs::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_sqs::types::BatchResultErrorEntry;
use driver::Failure;

use super::access::Access;

pub(super) fn failure<E>(error: &SdkError<E>) -> Failure
where
    E: ProvideErrorMetadata + Error + 'static,
{
    match error {
        SdkError::ServiceError(context) if context.raw().status().as_u16() < 500 => {
            Failure::Refused(said(error))
        }
        SdkError::ServiceError(_) => Failure::Unknown(said(error)),
        SdkError::ConstructionFailure(_) => Failure::Refused(innermost(error)),
        _ => Failure::Unknown(innermost(error)),
    }
}

/// Maps the error of the first call, which shows whether the server is up and accepts the login.
pub(super) fn unreached<E>(error: &SdkError<E>, access: &Access) -> Failure
where
    E: ProvideErrorMetadata + Error + 'static,
{
    let endpoint = access.endpoint.clone();
    match error {
        SdkError::ServiceError(_) if error.code().is_some_and(is_about_keys) => {
            let user = access.user().to_owned();
            Failure::NotAllowed { endpoint, user, why: said(error) }
        }
        SdkError::ServiceError(_) => failure(error),
        _ => Failure::Unreachable { endpoint, why: innermost(error) },
    }
}

pub(super) fn is_called(error: &impl ProvideErrorMetadata, names: &[&str]) -> bool {
    error.code().is_some_and(|code| names.contains(&code))
}

fn is_about_keys(code: &str) -> bool {
    matches!(
        code,
        "AccessDenied"
            | "AccessDeniedException"
            | "IncompleteSignature"
            | "InvalidAccessKeyId"
            | "InvalidClientTokenId"
            | "MissingAuthenticationToken"
            | "SignatureDoesNotMatch"
            | "UnrecognizedClientException"
    )
}

fn said(error: &impl ProvideErrorMetadata) -> String {
    let code = error.code().unwrap_or("an error without a code");
    error.message().map_or_else(|| code.to_owned(), |message| format!("{code}: {message}"))
}

/// The innermost cause; the outer errors carry no detail.
fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

/// Error of one entry of a batch.
pub(super) fn entry_failure(entry: &BatchResultErrorEntry) -> Failure {
    let code = entry.code();
    let why = entry.message().map_or_else(|| code.to_owned(), |why| format!("{code}: {why}"));
    if entry.sender_fault() { Failure::Refused(why) } else { Failure::Unknown(why) }
}
