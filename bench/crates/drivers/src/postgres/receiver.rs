use std::fmt;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use driver::{DeliveryId, Failure, RECEIVE_WAIT, Received, Receiver, Settle, Topology};
use tokio_postgres::{Client, Statement};

use super::refused;
use crate::opened::{Opened, by_place, take_settled};

/// What is done to one table.
struct Statements {
    take: Statement,
    accept: Statement,
    release: Statement,
}

pub(super) struct PostgresReceiver {
    client: Client,
    tables: Vec<Statements>,
    /// The table to look into first, so that none of them starves.
    next: usize,
    lease_seconds: f64,
    poll: Duration,
    /// By delivery: the table and the row.
    open: Opened<i64>,
    deliveries: u64,
}

impl fmt::Debug for PostgresReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tables = self.tables.len();
        f.debug_struct("PostgresReceiver").field("tables", &tables).finish_non_exhaustive()
    }
}

impl PostgresReceiver {
    pub(super) async fn prepare(
        client: Client,
        topology: &Topology,
        tables: &[String],
        poll: Duration,
    ) -> Result<Self, Failure> {
        let order = if topology.ordered { "ORDER BY id" } else { "" };
        let mut prepared = Vec::new();
        for table in tables {
            let take = format!(
                "WITH due AS MATERIALIZED (
                     SELECT id FROM {table} WHERE next_delivery <= now() {order}
                     LIMIT $1 FOR UPDATE SKIP LOCKED)
                 UPDATE {table} AS held
                 SET next_delivery = now() + make_interval(secs => $2), deliveries = deliveries + 1
                 FROM due WHERE held.id = due.id
                 RETURNING held.id, held.body, held.deliveries"
            );
            let accept = format!("DELETE FROM {table} WHERE id = ANY($1)");
            let release = format!("UPDATE {table} SET next_delivery = now() WHERE id = ANY($1)");
            prepared.push(Statements {
                take: client.prepare(&take).await.map_err(refused)?,
                accept: client.prepare(&accept).await.map_err(refused)?,
                release: client.prepare(&release).await.map_err(refused)?,
            });
        }
        Ok(Self {
            client,
            tables: prepared,
            next: 0,
            lease_seconds: topology.lease.as_secs_f64(),
            poll,
            open: Opened::new(),
            deliveries: 0,
        })
    }

    async fn take(&mut self, max: usize) -> Result<Vec<Received>, Failure> {
        let mut received = Vec::new();
        for turn in 0..self.tables.len() {
            let left = (max - received.len()) as i64;
            if left == 0 {
                break;
            }
            let index = (self.next + turn) % self.tables.len();
            let take = &self.tables[index].take;
            let rows = self.client.query(take, &[&left, &self.lease_seconds]).await;
            let mut rows = rows.map_err(refused)?;
            rows.sort_by_key(|row| row.get::<_, i64>(0));
            for row in rows {
                self.deliveries += 1;
                self.open.insert(self.deliveries, (index, row.get(0)));
                received.push(Received {
                    id: DeliveryId(self.deliveries),
                    // The row lends the body.
                    body: Bytes::copy_from_slice(row.get(1)),
                    redelivered: Some(row.get::<_, i32>(2) > 1),
                });
            }
        }
        self.next += 1;
        Ok(received)
    }

    async fn release(&self, rows: impl IntoIterator<Item = (usize, i64)>) -> Result<(), Failure> {
        for (table, ids) in by_place(rows) {
            let release = &self.tables[table].release;
            self.client.execute(release, &[&ids]).await.map_err(refused)?;
        }
        Ok(())
    }
}

#[async_trait]
impl Receiver for PostgresReceiver {
    async fn receive(&mut self, max: usize) -> Result<Vec<Received>, Failure> {
        let deadline = Instant::now() + RECEIVE_WAIT;
        loop {
            let received = self.take(max).await?;
            if !received.is_empty() || Instant::now() >= deadline {
                return Ok(received);
            }
            tokio::time::sleep(self.poll).await;
        }
    }

    async fn settle(&mut self, settles: &[(DeliveryId, Settle)]) -> Result<(), Failure> {
        let (accepted, released) = take_settled(&mut self.open, settles)?;
        for (table, ids) in by_place(accepted) {
            let accept = &self.tables[table].accept;
            self.client.execute(accept, &[&ids]).await.map_err(refused)?;
        }
        self.release(released).await
    }

    async fn close(self: Box<Self>) -> Result<(), Failure> {
        self.release(self.open.values().copied()).await
    }
}
