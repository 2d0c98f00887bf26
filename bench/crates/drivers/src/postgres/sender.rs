use std::fmt;

use async_trait::async_trait;
use driver::{Failure, Message, Topology};
use tokio_postgres::{Client, GenericClient, Statement};

use super::{quoted, refused};
use crate::batching::BatchWriter;
use crate::tables::tables_of;

/// Inserts the rows of a batch in one transaction, in order.
pub(super) struct Writer {
    client: Client,
    /// By destination: an insert for each subscription.
    inserts: Vec<Vec<Statement>>,
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("destinations", &self.inserts.len()).finish_non_exhaustive()
    }
}

impl Writer {
    pub(super) async fn prepare(client: Client, topology: &Topology) -> Result<Self, Failure> {
        let mut inserts = Vec::new();
        for destination in 0..topology.destinations {
            let mut of_each = Vec::new();
            for name in tables_of(topology, destination) {
                let table = quoted(&name);
                let insert = format!(
                    "INSERT INTO {table} (body, next_delivery)
                     SELECT body, now() FROM unnest($1::bytea[]) WITH ORDINALITY AS given (body, turn)
                     ORDER BY turn"
                );
                of_each.push(client.prepare(&insert).await.map_err(refused)?);
            }
            inserts.push(of_each);
        }
        Ok(Self { client, inserts })
    }
}

#[async_trait]
impl BatchWriter for Writer {
    async fn write(
        &mut self,
        batch: &[(u32, Message)],
    ) -> Result<Vec<Result<(), Failure>>, Failure> {
        let mut bodies: Vec<Vec<&[u8]>> = vec![Vec::new(); self.inserts.len()];
        for (destination, message) in batch {
            let bodies = bodies.get_mut(*destination as usize);
            let bodies = bodies.ok_or_else(|| Failure::refused("there is no such destination"))?;
            bodies.push(&message.body);
        }
        let statements: usize = bodies
            .iter()
            .zip(&self.inserts)
            .filter(|(bodies, _)| !bodies.is_empty())
            .map(|(_, inserts)| inserts.len())
            .sum();
        if statements == 1 {
            // A single statement is a transaction by itself.
            insert(&self.client, &bodies, &self.inserts).await?;
        } else {
            let transaction = self.client.transaction().await.map_err(refused)?;
            insert(&transaction, &bodies, &self.inserts).await?;
            transaction.commit().await.map_err(refused)?;
        }
        Ok(batch.iter().map(|_| Ok(())).collect())
    }
}

async fn insert(
    client: &impl GenericClient,
    bodies: &[Vec<&[u8]>],
    inserts: &[Vec<Statement>],
) -> Result<(), Failure> {
    for (bodies, inserts) in bodies.iter().zip(inserts) {
        if bodies.is_empty() {
            continue;
        }
        for insert in inserts {
            client.execute(insert, &[bodies]).await.map_err(refused)?;
        }
    }
    Ok(())
}
