//! `postroad user`: users, and their permissions in vhosts.

use access_rules::Permissions;
use clap::{Args, Subcommand};
use client::Client;
use operations::amqp::{AddedUser, EmptyDocument, Operation, UserSummary};
use serde::Serialize;

use super::password;
use crate::client_options::ClientOptions;
use crate::command_error::CommandError;
use crate::output::{OutputFormat, Table};
use crate::vhosts::amqp;
use crate::vhosts::vhost::VhostOption;

#[derive(Args, Debug)]
pub struct UserArguments {
    #[command(flatten)]
    client: ClientOptions,
    #[command(subcommand)]
    command: UserCommand,
}

#[derive(Subcommand, Debug)]
enum UserCommand {
    /// Make a user, who may do nothing before 'allow'
    Add(WithPassword),
    /// List users, and in which vhosts each may do something
    List,
    /// Delete a user; its connections are closed
    Delete(NamedUser),
    /// Change a user's password; connections that are open stay so
    Password(WithPassword),
    /// Set what a user may do in a vhost
    Allow(Allow),
    /// Take all permissions in a vhost from a user; its connections to it are closed
    Deny(Deny),
    /// List what users may do in vhosts
    Permissions(ListPermissions),
}

#[derive(Args, Debug)]
struct NamedUser {
    /// The user
    name: String,
}

#[derive(Args, Debug)]
struct WithPassword {
    /// The user
    name: String,
    /// The password, which others on this machine may see while the command runs [default: a line
    /// of standard input]
    password: Option<String>,
    /// Store no SCRAM verifiers, so that the user logs in by password only: a thief of the stored hash has to work
    /// harder for it, and clients of Kafka need encryption
    #[arg(long)]
    no_scram: bool,
}

pub(crate) async fn run(arguments: UserArguments) -> Result<(), CommandError> {
    let client = arguments.client.connect().await?;
    let output = arguments.client.output();
    match arguments.command {
        UserCommand::Add(user) => add(&client, output, user).await,
        UserCommand::List => list(&client, output).await,
        UserCommand::Delete(user) => delete(&client, output, user.name).await,
        UserCommand::Password(user) => set_password(&client, output, user).await,
        UserCommand::Allow(allow) => allow.run(&client, output).await,
        UserCommand::Deny(deny) => deny.run(&client, output).await,
        UserCommand::Permissions(list) => list.run(&client, output).await,
    }
}

#[derive(Serialize)]
struct ChangedUser {
    user: String,
}

#[derive(Serialize)]
struct CreatedUser {
    user: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    log_ins: Option<String>,
}

async fn add(
    client: &Client,
    output: OutputFormat,
    user: WithPassword,
) -> Result<(), CommandError> {
    let (password_hash, scram) = password::hashed(&user.name, user.password, user.no_scram)?;
    let operation = Operation::AddUser { name: user.name.clone(), password_hash, scram };
    let AddedUser { log_ins } = amqp::operate(client, &operation).await?;
    output.show(&CreatedUser { user: user.name, log_ins }, |added| {
        let notice = added.log_ins.as_ref().map(|notice| format!("note: {notice}\n"));
        format!("created user {}\n{}", added.user, notice.unwrap_or_default())
    })?;
    Ok(())
}

async fn set_password(
    client: &Client,
    output: OutputFormat,
    user: WithPassword,
) -> Result<(), CommandError> {
    let (password_hash, scram) = password::hashed(&user.name, user.password, user.no_scram)?;
    let operation = Operation::SetPassword { name: user.name.clone(), password_hash, scram };
    let _: EmptyDocument = amqp::operate(client, &operation).await?;
    output.show(&ChangedUser { user: user.name }, |changed| {
        format!("changed the password of user {}\n", changed.user)
    })?;
    Ok(())
}

async fn delete(client: &Client, output: OutputFormat, name: String) -> Result<(), CommandError> {
    let _: EmptyDocument =
        amqp::operate(client, &Operation::DeleteUser { name: name.clone() }).await?;
    output
        .show(&ChangedUser { user: name }, |deleted| format!("deleted user {}\n", deleted.user))?;
    Ok(())
}

async fn list(client: &Client, output: OutputFormat) -> Result<(), CommandError> {
    let users = amqp::users(client).await?;
    output.show(&users, |users| users_table(users))?;
    Ok(())
}

fn users_table(users: &[UserSummary]) -> String {
    if users.is_empty() {
        return "no users; make one with 'postroad user add NAME'\n".into();
    }
    let mut table = Table::new(&["USER", "SET BY", "CONNECTS FROM", "VHOSTS"]);
    for user in users {
        let vhosts: Vec<&str> = user.permissions.iter().map(|one| &*one.vhost).collect();
        let vhosts = match (user.of_settings, vhosts.is_empty()) {
            (true, _) => "all".to_owned(),
            (false, true) => "-".to_owned(),
            (false, false) => vhosts.join(", "),
        };
        table.row([
            user.name.clone(),
            if user.of_settings { "settings" } else { "commands" }.to_owned(),
            if user.loopback_only { "this machine" } else { "anywhere" }.to_owned(),
            vhosts,
        ]);
    }
    table.render()
}

// ----------------------------------------------------------------------------------- permissions

#[derive(Args, Debug)]
struct Allow {
    /// The user
    name: String,
    /// Names of queues and exchanges that the user may make and delete: a regular expression that
    /// is found anywhere in them; '' is none, '.*' all
    #[arg(value_name = "CONFIGURE")]
    configure: String,
    /// Those that it may publish to, and bind to something
    #[arg(value_name = "WRITE")]
    write: String,
    /// Those that it may consume, and have something bound to
    #[arg(value_name = "READ")]
    read: String,
    #[command(flatten)]
    vhost: VhostOption,
}

#[derive(Serialize)]
struct GrantOutput {
    user: String,
    vhost: String,
    #[serde(flatten)]
    permissions: Permissions,
}

impl Allow {
    async fn run(self, client: &Client, output: OutputFormat) -> Result<(), CommandError> {
        let permissions =
            Permissions { configure: self.configure, write: self.write, read: self.read };
        let granted = GrantOutput { user: self.name, vhost: self.vhost.vhost, permissions };
        let operation = Operation::Allow {
            user: granted.user.clone(),
            vhost: granted.vhost.clone(),
            permissions: granted.permissions.clone(),
        };
        let _: EmptyDocument = amqp::operate(client, &operation).await?;
        output.show(&granted, |granted| {
            format!("set the permissions of user {} in vhost {}\n", granted.user, granted.vhost)
        })?;
        Ok(())
    }
}

#[derive(Args, Debug)]
struct Deny {
    /// The user
    name: String,
    #[command(flatten)]
    vhost: VhostOption,
}

#[derive(Serialize)]
struct DenyOutput {
    user: String,
    vhost: String,
}

impl Deny {
    async fn run(self, client: &Client, output: OutputFormat) -> Result<(), CommandError> {
        let denied = DenyOutput { user: self.name, vhost: self.vhost.vhost };
        let operation = Operation::Deny { user: denied.user.clone(), vhost: denied.vhost.clone() };
        let _: EmptyDocument = amqp::operate(client, &operation).await?;
        output.show(&denied, |denied| {
            format!("user {} may do nothing in vhost {} now\n", denied.user, denied.vhost)
        })?;
        Ok(())
    }
}

#[derive(Args, Debug)]
struct ListPermissions {
    /// Only this user's
    name: Option<String>,
    /// Only those in this vhost
    #[arg(long, value_name = "VHOST")]
    vhost: Option<String>,
}

impl ListPermissions {
    async fn run(self, client: &Client, output: OutputFormat) -> Result<(), CommandError> {
        let users = amqp::users(client).await?;
        if let Some(name) = &self.name
            && !users.iter().any(|user| user.name == *name)
        {
            return Err(CommandError::user(format!(
                "there is no user {name}; 'postroad user list' names those there are"
            )));
        }
        let wanted = |user: &UserSummary| self.name.as_ref().is_none_or(|name| *name == user.name);
        let mut granted = Vec::new();
        for user in users.into_iter().filter(wanted) {
            granted.extend(user.permissions.into_iter().map(|one| GrantOutput {
                user: user.name.clone(),
                vhost: one.vhost,
                permissions: one.permissions,
            }));
        }
        granted.retain(|one| self.vhost.as_ref().is_none_or(|vhost| *vhost == one.vhost));
        output.show(&granted, |granted| match granted.is_empty() {
            true => "no permissions; users of the settings have all rights\n".into(),
            false => permissions_table(granted),
        })?;
        Ok(())
    }
}

fn permissions_table(granted: &[GrantOutput]) -> String {
    let mut table = Table::new(&["USER", "VHOST", "CONFIGURE", "WRITE", "READ"]);
    for GrantOutput { user, vhost, permissions } in granted {
        let quoted = |pattern: &String| format!("'{pattern}'");
        table.row([
            user.clone(),
            vhost.clone(),
            quoted(&permissions.configure),
            quoted(&permissions.write),
            quoted(&permissions.read),
        ]);
    }
    table.render()
}
