//! `postroad group list`.

use std::collections::BTreeMap;

use client::Client;
use client::groups::ListedGroup;
use serde::Serialize;

use super::SHARE;
use super::lag::{lags, total_records, total_seconds};
use crate::command_error::CommandError;
use crate::output::{OutputFormat, Table, behind, count};

#[derive(Serialize)]
struct GroupRow {
    group: String,
    state: String,
    kind: String,
    /// `None` for a share group: its members settle records one by one.
    lag_records: Option<u64>,
    lag_seconds: Option<f64>,
}

pub(super) async fn list(client: &Client, output: OutputFormat) -> Result<(), CommandError> {
    let mut rows = Vec::new();
    for ListedGroup { name, state, kind } in client.groups().await? {
        let (lag_records, lag_seconds) = match kind == SHARE {
            true => (None, None),
            false => {
                let committed = client.committed(&name).await?;
                let lags = lags(client, &committed, &BTreeMap::new()).await?;
                (Some(total_records(&lags)), total_seconds(&lags))
            }
        };
        rows.push(GroupRow { group: name, state, kind, lag_records, lag_seconds });
    }
    output.show(&rows, |rows| {
        if rows.is_empty() {
            return "no groups yet; a consumer makes its own\n".into();
        }
        let mut table = Table::new(&["GROUP", "STATE", "KIND", ">LAG", ">BEHIND"]);
        for row in rows {
            let lag = row.lag_records.map_or_else(|| "-".to_owned(), count);
            let behind = behind(row.lag_seconds);
            table.row([row.group.clone(), row.state.clone(), row.kind.clone(), lag, behind]);
        }
        table.render()
    })?;
    Ok(())
}
