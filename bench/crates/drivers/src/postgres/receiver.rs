use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use driver::{Failure, Topology};
use tokio_postgres::{Client, Statement};

use super::refused;
use crate::tables::{Table, Taken};

/// One table, with its prepared statements.
pub(super) struct PostgresTable {
    client: Arc<Client>,
    lease_seconds: f64,
    take: Statement,
    accept: Statement,
    release: Statement,
}

impl fmt::Debug for PostgresTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lease = &self.lease_seconds;
        f.debug_struct("PostgresTable").field("lease_seconds", lease).finish_non_exhaustive()
    }
}

impl PostgresTable {
    /// `name`: quoted.
    pub(super) async fn prepare(
        client: &Arc<Client>,
        topology: &Topology,
        name: &str,
    ) -> Result<Self, Failure> {
        let order = if topology.ordered { "ORDER BY id" } else { "" };
        let take = format!(
            "WITH due AS MATERIALIZED (
                 SELECT id FROM {name} WHERE next_delivery <= now() {order}
                 LIMIT $1 FOR UPDATE SKIP LOCKED)
             UPDATE {name} AS held
             SET next_delivery = now() + make_interval(secs => $2), deliveries = deliveries + 1
             FROM due WHERE held.id = due.id
             RETURNING held.id, held.body, held.deliveries"
        );
        let accept = format!("DELETE FROM {name} WHERE id = ANY($1)");
        let release = format!("UPDATE {name} SET next_delivery = now() WHERE id = ANY($1)");
        Ok(Self {
            client: Arc::clone(client),
            lease_seconds: topology.lease.as_secs_f64(),
            take: client.prepare(&take).await.map_err(refused)?,
            accept: client.prepare(&accept).await.map_err(refused)?,
            release: client.prepare(&release).await.map_err(refused)?,
        })
    }

    async fn execute(&self, statement: &Statement, ids: &[i64]) -> Result<(), Failure> {
        self.client.execute(statement, &[&ids]).await.map(drop).map_err(refused)
    }
}

#[async_trait]
impl Table for PostgresTable {
    type Key = i64;

    async fn take(&self, max: usize) -> Result<Vec<Taken<i64>>, Failure> {
        let rows = self.client.query(&self.take, &[&(max as i64), &self.lease_seconds]).await;
        let mut rows = rows.map_err(refused)?;
        rows.sort_by_key(|row| row.get::<_, i64>(0));
        let taken = rows.iter().map(|row| Taken {
            key: row.get(0),
            // The row only lends the body.
            body: Bytes::copy_from_slice(row.get(1)),
            redelivered: row.get::<_, i32>(2) > 1,
        });
        Ok(taken.collect())
    }

    async fn accept(&self, ids: Vec<i64>) -> Result<(), Failure> {
        self.execute(&self.accept, &ids).await
    }

    async fn release(&self, ids: Vec<i64>) -> Result<(), Failure> {
        self.execute(&self.release, &ids).await
    }
}
