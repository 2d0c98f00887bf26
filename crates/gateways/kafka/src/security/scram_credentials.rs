//! SCRAM credentials, as Kafka's tools list and change them (KIP-554). Keys are never shown.

use std::collections::{BTreeMap, BTreeSet};

use access::{ScramCredential, UserError, Users};
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::alter_user_scram_credentials_request::{
    ScramCredentialDeletion, ScramCredentialUpsertion,
};
use kafka_protocol::messages::alter_user_scram_credentials_response::AlterUserScramCredentialsResult;
use kafka_protocol::messages::describe_user_scram_credentials_response::{
    CredentialInfo, DescribeUserScramCredentialsResult,
};
use kafka_protocol::messages::{
    AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse,
};
use kafka_protocol::protocol::StrBytes;
use scram::{Hash, Verifier};

use crate::errors::Fault;
use crate::messages::{RequestError, Response};
use crate::operations;
use crate::request::Request;
use crate::state::Gateway;

/// The mechanism of Kafka's number.
fn hash_of(mechanism: i8) -> Result<Hash, Fault> {
    match mechanism {
        1 => Ok(Hash::Sha256),
        2 => Ok(Hash::Sha512),
        _ => Err(Fault::new(ResponseError::UnsupportedSaslMechanism, "Unknown SCRAM mechanism")),
    }
}

fn number_of(hash: Hash) -> i8 {
    match hash {
        Hash::Sha256 => 1,
        Hash::Sha512 => 2,
    }
}

/// Checks that the caller may administer users: by its rights, or on loopback if login is not required.
/// `subject`: the user or rule in question, for the audit log.
pub(crate) fn check(gateway: &Gateway, request: &Request, subject: &str) -> Result<(), Fault> {
    if request.session.login.principal().is_none() {
        operations::access::check(gateway, &request.session, None)?;
    }
    request.caller.cluster_about(subject)
}

/// Returns the user store, if the caller may change this user.
fn users<'a>(gateway: &'a Gateway, request: &Request, name: &str) -> Result<&'a Users, Fault> {
    check(gateway, request, &format!("user {name:?}"))?;
    let none = || Fault::new(ResponseError::SecurityDisabled, "this broker has no users");
    gateway.options.users.as_ref().ok_or_else(none)
}

pub(crate) fn describe(gateway: &Gateway, mut request: Request) -> Result<Response, RequestError> {
    let message: DescribeUserScramCredentialsRequest = request.decode()?;
    let response = DescribeUserScramCredentialsResponse::default().with_error_message(None);
    if let Err(fault) = check(gateway, &request, "") {
        // Each user gets the error too, as in Kafka: librdkafka fails on a response without users.
        let results = message.users.unwrap_or_default().into_iter().map(|user| {
            DescribeUserScramCredentialsResult::default()
                .with_user(user.name)
                .with_error_code(fault.code())
                .with_error_message(fault.message_bytes())
        });
        let response = response
            .with_error_code(fault.code())
            .with_error_message(fault.message_bytes())
            .with_results(results.collect());
        return Response::encode(&request.head, &response);
    }
    let users = gateway.options.users.as_ref();
    let named = message.users.filter(|users| !users.is_empty());
    let results = match named {
        None => {
            let all = users.map(Users::list).unwrap_or_default().into_iter().map(|user| user.name);
            let described = all.map(|name| (name.to_string(), credentials(users, &name)));
            let known =
                described.filter_map(|(name, it)| Some(described_as(name.into(), it.ok()?)));
            known.collect()
        }
        Some(named) => {
            let mut counts: BTreeMap<StrBytes, u32> = BTreeMap::new();
            for user in named {
                *counts.entry(user.name).or_default() += 1;
            }
            let described = counts.into_iter().map(|(name, count)| {
                let found = match count {
                    1 => credentials(users, &name),
                    _ => Err(Fault::new(
                        ResponseError::DuplicateResource,
                        format!(
                            "Cannot describe SCRAM credentials for the same user twice in a \
                                 single request: {name:?}",
                            name = name.as_str()
                        ),
                    )),
                };
                match found {
                    Ok(found) => described_as(name, found),
                    Err(fault) => DescribeUserScramCredentialsResult::default()
                        .with_user(name)
                        .with_error_code(fault.code())
                        .with_error_message(fault.message_bytes()),
                }
            });
            described.collect()
        }
    };
    Response::encode(&request.head, &response.with_results(results))
}

fn credentials(users: Option<&Users>, name: &str) -> Result<Vec<ScramCredential>, Fault> {
    let found = users.and_then(|users| users.scram_credentials(name));
    let found = found.filter(|found| !found.is_empty());
    found.ok_or_else(|| {
        Fault::new(
            ResponseError::ResourceNotFound,
            format!("Attempt to describe a user credential that does not exist: {name}"),
        )
    })
}

fn described_as(name: StrBytes, found: Vec<ScramCredential>) -> DescribeUserScramCredentialsResult {
    let infos = found.into_iter().map(|credential| {
        CredentialInfo::default()
            .with_mechanism(number_of(credential.hash))
            .with_iterations(credential.iterations as i32)
    });
    DescribeUserScramCredentialsResult::default()
        .with_user(name)
        .with_error_message(None)
        .with_credential_infos(infos.collect())
}

/// Change of a user's credential for one mechanism.
enum Change {
    Set(Verifier),
    Delete(Hash),
}

pub(crate) async fn alter(
    gateway: &Gateway,
    mut request: Request,
) -> Result<Response, RequestError> {
    let message: AlterUserScramCredentialsRequest = request.decode()?;
    let names: BTreeSet<StrBytes> = message
        .deletions
        .iter()
        .map(|it| it.name.clone())
        .chain(message.upsertions.iter().map(|it| it.name.clone()))
        .collect();
    let mut results = Vec::with_capacity(names.len());
    for name in names {
        // All changes of a user are valid, or none is made.
        let changed = match users(gateway, &request, &name) {
            Ok(users) => match changes(&name, &message.deletions, &message.upsertions) {
                Ok(changes) => change(users, &name, changes).await,
                Err(fault) => Err(fault),
            },
            Err(fault) => Err(fault),
        };
        let result = AlterUserScramCredentialsResult::default().with_user(name);
        results.push(match changed {
            Ok(()) => result.with_error_message(None),
            Err(fault) => {
                result.with_error_code(fault.code()).with_error_message(fault.message_bytes())
            }
        });
    }
    let response = AlterUserScramCredentialsResponse::default().with_results(results);
    Response::encode(&request.head, &response)
}

fn changes(
    name: &str,
    deletions: &[ScramCredentialDeletion],
    upsertions: &[ScramCredentialUpsertion],
) -> Result<Vec<Change>, Fault> {
    if name.is_empty() {
        return Err(unacceptable("Username must not be empty".into()));
    }
    let mut changes = Vec::new();
    for deletion in deletions.iter().filter(|it| *it.name == *name) {
        changes.push((hash_of(deletion.mechanism)?, None));
    }
    for upsertion in upsertions.iter().filter(|it| *it.name == *name) {
        changes.push((hash_of(upsertion.mechanism)?, Some(upsertion)));
    }
    let hashes: BTreeSet<Hash> = changes.iter().map(|(hash, _)| *hash).collect();
    if hashes.len() < changes.len() {
        let text = "A user credential cannot be altered twice in the same request";
        return Err(Fault::new(ResponseError::DuplicateResource, text));
    }
    changes
        .into_iter()
        .map(|(hash, upsertion)| {
            let Some(set) = upsertion else { return Ok(Change::Delete(hash)) };
            let iterations = u32::try_from(set.iterations).unwrap_or(0);
            Verifier::from_salted_password(hash, &set.salted_password, &set.salt, iterations)
                .map(Change::Set)
                .map_err(|error| unacceptable(error.to_string()))
        })
        .collect()
}

async fn change(users: &Users, name: &str, changes: Vec<Change>) -> Result<(), Fault> {
    for change in changes {
        let changed = match change {
            Change::Set(verifier) => users.set_scram_credential(name, verifier).await,
            Change::Delete(hash) => users.delete_scram_credential(name, hash).await,
        };
        changed.map_err(refused)?;
    }
    Ok(())
}

fn unacceptable(text: String) -> Fault {
    Fault::new(ResponseError::UnacceptableCredential, text)
}

fn refused(error: UserError) -> Fault {
    let code = match &error {
        UserError::NoCredential { .. } | UserError::NotFound(_) => ResponseError::ResourceNotFound,
        UserError::Storage(_) | UserError::Unreadable(_) => ResponseError::UnknownServerError,
        _ => ResponseError::UnacceptableCredential,
    };
    Fault::new(code, error.to_string())
}
