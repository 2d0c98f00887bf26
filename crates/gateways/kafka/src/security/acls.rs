//! Kafka's requests about access rules (ACLs: KIP-11, KIP-140, KIP-290).

use access::{UserError, Users};
use access_rules::acl::{Action, Pattern, PatternFilter, Resource, Rule, RuleFilter, Verdict};
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::create_acls_request::AclCreation;
use kafka_protocol::messages::create_acls_response::AclCreationResult;
use kafka_protocol::messages::delete_acls_request::DeleteAclsFilter;
use kafka_protocol::messages::delete_acls_response::{
    DeleteAclsFilterResult, DeleteAclsMatchingAcl,
};
use kafka_protocol::messages::describe_acls_response::{AclDescription, DescribeAclsResource};
use kafka_protocol::messages::{
    CreateAclsRequest, CreateAclsResponse, DeleteAclsRequest, DeleteAclsResponse,
    DescribeAclsRequest, DescribeAclsResponse,
};
use kafka_protocol::protocol::StrBytes;

use crate::errors::{Fault, code_of};
use crate::messages::{RequestError, Response};
use crate::request::Request;
use crate::security::scram_credentials;
use crate::state::Gateway;

/// Filter code that matches every value.
const ANY: i8 = 1;
/// Pattern filter code that selects every rule whose pattern matches the name.
const MATCH: i8 = 2;

/// Returns the store of users and rules, if the caller may read the rules, or change `rule`.
fn users<'a>(gateway: &'a Gateway, request: &Request, rule: &str) -> Result<&'a Users, Fault> {
    scram_credentials::check(gateway, request, rule)?;
    let none = || {
        Fault::new(ResponseError::SecurityDisabled, "this broker has no users and no access lists")
    };
    gateway.options.users.as_ref().ok_or_else(none)
}

fn invalid(text: impl Into<String>) -> Fault {
    Fault::new(ResponseError::InvalidRequest, text.into())
}

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

pub(crate) fn describe(gateway: &Gateway, mut request: Request) -> Result<Response, RequestError> {
    let message: DescribeAclsRequest = request.decode()?;
    let filter = filter(
        message.resource_type_filter,
        message.pattern_type_filter,
        message.resource_name_filter.as_ref(),
        [message.principal_filter.as_ref(), message.host_filter.as_ref()],
        [message.operation, message.permission_type],
    );
    let found = users(gateway, &request, "").and_then(|users| {
        let filter = filter?;
        Ok(users.rules().iter().filter(|rule| filter.fits(rule)).cloned().collect::<Vec<_>>())
    });
    let response = DescribeAclsResponse::default().with_error_message(None);
    let response = match found {
        Ok(rules) => response.with_resources(by_resource(rules)),
        Err(fault) => {
            response.with_error_code(fault.code()).with_error_message(fault.message_bytes())
        }
    };
    Response::encode(&request.head, &response)
}

/// Groups rules by resource. They are sorted, so rules of one resource are adjacent.
fn by_resource(rules: Vec<Rule>) -> Vec<DescribeAclsResource> {
    let mut resources: Vec<DescribeAclsResource> = Vec::new();
    for rule in rules {
        let is_of = |known: &DescribeAclsResource| {
            known.resource_type == rule.resource.code()
                && known.pattern_type == rule.pattern.code()
                && *known.resource_name == *rule.name
        };
        if !resources.last().is_some_and(is_of) {
            resources.push(
                DescribeAclsResource::default()
                    .with_resource_type(rule.resource.code())
                    .with_pattern_type(rule.pattern.code())
                    .with_resource_name(text(&rule.name)),
            );
        }
        if let Some(resource) = resources.last_mut() {
            resource.acls.push(
                AclDescription::default()
                    .with_principal(text(&rule.principal))
                    .with_host(text(&rule.host))
                    .with_operation(rule.action.code())
                    .with_permission_type(rule.verdict.code()),
            );
        }
    }
    resources
}

pub(crate) async fn create(
    gateway: &Gateway,
    mut request: Request,
) -> Result<Response, RequestError> {
    let message: CreateAclsRequest = request.decode()?;
    let read = |creation: &AclCreation| {
        let rule = rule(creation);
        users(gateway, &request, &describe_read(&rule))?;
        rule
    };
    let mut created: Vec<Result<Rule, Fault>> = message.creations.iter().map(read).collect();
    let rules: Vec<Rule> = created.iter().flatten().cloned().collect();
    if let (Some(users), false) = (&gateway.options.users, rules.is_empty())
        && let Err(error) = users.add_rules(rules).await
    {
        let fault = refused(error);
        created.iter_mut().filter(|it| it.is_ok()).for_each(|it| *it = Err(fault.clone()));
    }
    let results = created.iter().map(|created| {
        let message = created.as_ref().err().and_then(Fault::message_bytes);
        AclCreationResult::default().with_error_code(code_of(created)).with_error_message(message)
    });
    let response = CreateAclsResponse::default().with_results(results.collect());
    Response::encode(&request.head, &response)
}

/// Text of a rule or filter for the audit log; empty for an invalid one.
fn describe_read(read: &Result<impl ToString, Fault>) -> String {
    read.as_ref().map(ToString::to_string).unwrap_or_default()
}

fn rule(creation: &AclCreation) -> Result<Rule, Fault> {
    let unknown = |what: &str| invalid(format!("the {what} is none that a rule can have"));
    let rule = Rule {
        resource: Resource::from_code(creation.resource_type)
            .ok_or_else(|| unknown("resource type"))?,
        pattern: Pattern::from_code(creation.resource_pattern_type)
            .ok_or_else(|| unknown("pattern type"))?,
        name: creation.resource_name.to_string(),
        principal: creation.principal.to_string(),
        host: creation.host.to_string(),
        action: Action::from_code(creation.operation).ok_or_else(|| unknown("operation"))?,
        verdict: Verdict::from_code(creation.permission_type)
            .ok_or_else(|| unknown("permission type"))?,
    };
    rule.check().map_err(|error| invalid(error.to_string()))?;
    Ok(rule)
}

pub(crate) async fn delete(
    gateway: &Gateway,
    mut request: Request,
) -> Result<Response, RequestError> {
    let message: DeleteAclsRequest = request.decode()?;
    let read = |wanted: &DeleteAclsFilter| {
        let filter = filter(
            wanted.resource_type_filter,
            wanted.pattern_type_filter,
            wanted.resource_name_filter.as_ref(),
            [wanted.principal_filter.as_ref(), wanted.host_filter.as_ref()],
            [wanted.operation, wanted.permission_type],
        );
        users(gateway, &request, &describe_read(&filter))?;
        filter
    };
    let filters: Vec<Result<RuleFilter, Fault>> = message.filters.iter().map(read).collect();
    let good: Vec<RuleFilter> = filters.iter().flatten().cloned().collect();
    let removed = match &gateway.options.users {
        Some(users) if !good.is_empty() => users.remove_rules(&good).await.map_err(refused),
        _ => Ok(Vec::new()),
    };
    let mut removed = removed.map(Vec::into_iter);
    let results = filters.into_iter().map(|filter| {
        let removed = filter.and_then(|_| match &mut removed {
            Ok(removed) => Ok(removed.next().unwrap_or_default()),
            Err(fault) => Err(fault.clone()),
        });
        let result = DeleteAclsFilterResult::default().with_error_message(None);
        match removed {
            Ok(rules) => result.with_matching_acls(rules.iter().map(matching).collect()),
            Err(fault) => {
                result.with_error_code(fault.code()).with_error_message(fault.message_bytes())
            }
        }
    });
    let response = DeleteAclsResponse::default().with_filter_results(results.collect());
    Response::encode(&request.head, &response)
}

fn matching(rule: &Rule) -> DeleteAclsMatchingAcl {
    DeleteAclsMatchingAcl::default()
        .with_error_message(None)
        .with_resource_type(rule.resource.code())
        .with_pattern_type(rule.pattern.code())
        .with_resource_name(text(&rule.name))
        .with_principal(text(&rule.principal))
        .with_host(text(&rule.host))
        .with_operation(rule.action.code())
        .with_permission_type(rule.verdict.code())
}

fn filter(
    resource: i8,
    pattern: i8,
    name: Option<&StrBytes>,
    [principal, host]: [Option<&StrBytes>; 2],
    [action, verdict]: [i8; 2],
) -> Result<RuleFilter, Fault> {
    fn some<T>(code: i8, from_code: fn(i8) -> Option<T>, what: &str) -> Result<Option<T>, Fault> {
        match code {
            ANY => Ok(None),
            code => from_code(code)
                .map(Some)
                .ok_or_else(|| invalid(format!("the {what} of the filter is none"))),
        }
    }
    let owned = |text: Option<&StrBytes>| text.map(|text| text.to_string());
    Ok(RuleFilter {
        resource: some(resource, Resource::from_code, "resource type")?,
        pattern: match pattern {
            MATCH => PatternFilter::Match,
            code => some(code, Pattern::from_code, "pattern type")?
                .map_or(PatternFilter::Any, PatternFilter::Is),
        },
        name: owned(name),
        principal: owned(principal),
        host: owned(host),
        action: some(action, Action::from_code, "operation")?,
        verdict: some(verdict, Verdict::from_code, "permission type")?,
    })
}

fn refused(error: UserError) -> Fault {
    let code = match &error {
        UserError::TooManyRules => ResponseError::PolicyViolation,
        _ => ResponseError::UnknownServerError,
    };
    Fault::new(code, error.to_string())
}
