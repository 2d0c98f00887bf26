use async_trait::async_trait;
use driver::{Failure, Message as Sent, Receipt, Sender as DriverSender, Tier, Topology};
use fe2o3_amqp::Sender;
use fe2o3_amqp::types::messaging::{Data, Header, Message, Outcome, Target};
use fe2o3_amqp::types::primitives::Binary;

use super::{Open, queue};
use crate::pending::{Confirmer, Outstanding, Window, send_by_post};

#[derive(Debug)]
pub(super) struct Amqp1Sender {
    open: Open,
    /// By destination.
    links: Vec<Sender>,
    durable: bool,
    window: Window,
    confirmer: Confirmer,
}

impl Amqp1Sender {
    pub(super) async fn attach(
        mut open: Open,
        topology: &Topology,
        window: u32,
    ) -> Result<Self, Failure> {
        let mut links = Vec::new();
        for destination in 0..topology.destinations {
            let name = topology.destination(destination);
            let target = Target::builder().address(name.as_str()).capabilities(queue()).build();
            let link = Sender::builder().name(format!("to-{name}")).target(target);
            links.push(link.attach(&mut open.session).await.map_err(Failure::refused)?);
        }
        let durable = is_durable(topology);
        let (window, confirmer) = (Window::new(window), Confirmer::spawn());
        Ok(Self { open, links, durable, window, confirmer })
    }
}

/// Whether messages survive a restart of the broker.
pub(super) fn is_durable(topology: &Topology) -> bool {
    topology.tier != Tier::T0
}

fn accepted(outcome: Outcome) -> Result<(), Failure> {
    match outcome {
        Outcome::Accepted(_) => Ok(()),
        other => Err(Failure::refused(format!("{other:?}"))),
    }
}

#[async_trait]
impl DriverSender for Amqp1Sender {
    async fn send(&mut self, destination: u32, messages: &[Sent]) -> Result<(), Failure> {
        send_by_post(self, destination, messages).await
    }

    async fn post(&mut self, destination: u32, message: Sent, receipt: Receipt) {
        let outstanding = Outstanding { receipt, room: self.window.enter().await };
        let Some(link) = self.links.get_mut(destination as usize) else {
            return outstanding.resolve(Err(Failure::refused("there is no such destination")));
        };
        let header = Header { durable: self.durable, ..Header::default() };
        // The client requires an owned body.
        let body = Data(Binary::from(message.body.to_vec()));
        let transfer = Message::builder().header(header).data(body).build();
        match link.send_batchable(transfer).await {
            Err(error) => outstanding.resolve(Err(Failure::unknown(error))),
            Ok(settled) => {
                let confirmation =
                    async move { settled.await.map_err(Failure::unknown).and_then(accepted) };
                self.confirmer.begin(confirmation, outstanding).await;
            }
        }
    }

    async fn close(self: Box<Self>) -> Result<(), Failure> {
        let Self { open, links, confirmer, .. } = *self;
        confirmer.close().await;
        for link in links {
            link.close().await.map_err(Failure::unknown)?;
        }
        open.close().await
    }
}
