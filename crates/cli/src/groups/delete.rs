//! `postroad group delete`.

use clap::Args;
use client::Client;
use serde::Serialize;

use crate::command_error::CommandError;
use crate::output::OutputFormat;

#[derive(Args, Debug)]
pub(super) struct Delete {
    #[arg(required = true, value_name = "GROUP")]
    groups: Vec<String>,
}

#[derive(Serialize)]
struct DeletedGroup {
    group: String,
    deleted: bool,
}

impl Delete {
    pub(super) async fn run(
        &self,
        client: &Client,
        output: OutputFormat,
    ) -> Result<(), CommandError> {
        let mut deleted = Vec::new();
        let mut outcome = Ok(());
        for group in &self.groups {
            match client.delete_group(group).await {
                Ok(()) => deleted.push(DeletedGroup { group: group.clone(), deleted: true }),
                Err(error) => {
                    outcome = Err(error.into());
                    break;
                }
            }
        }
        output.show(&deleted, |deleted| {
            deleted.iter().map(|gone| format!("deleted group {}\n", gone.group)).collect()
        })?;
        outcome
    }
}
