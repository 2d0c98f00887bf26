use std::collections::HashMap;

use async_trait::async_trait;
use bytes::Bytes;
use driver::{DeliveryId, Failure, RECEIVE_WAIT, Received, Receiver as DriverReceiver, Settle};
use fe2o3_amqp::Receiver;
use fe2o3_amqp::link::delivery::DeliveryInfo;
use fe2o3_amqp::link::receiver::{CreditMode, ReceiverDisposer};
use fe2o3_amqp::types::messaging::{Data, Source};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::{Open, queue};

/// A delivery and the index of its link.
type Arrived = Result<(usize, DeliveryInfo, Bytes), Failure>;

#[derive(Debug)]
pub(super) struct Amqp1Receiver {
    open: Open,
    disposers: Vec<ReceiverDisposer>,
    /// One task for each link.
    tasks: Vec<JoinHandle<()>>,
    arriving: mpsc::Receiver<Arrived>,
    unsettled: HashMap<u64, (usize, DeliveryInfo)>,
    deliveries: u64,
}

impl Amqp1Receiver {
    pub(super) async fn attach(
        mut open: Open,
        queues: &[String],
        prefetch: u32,
    ) -> Result<Self, Failure> {
        let (arrived, arriving) = mpsc::channel(prefetch.max(1) as usize);
        let (mut disposers, mut tasks) = (Vec::new(), Vec::new());
        for (place, name) in queues.iter().enumerate() {
            let source = Source::builder().address(name.as_str()).capabilities(queue()).build();
            let link = Receiver::builder()
                .name(format!("from-{name}"))
                .source(source)
                .credit_mode(CreditMode::Auto(prefetch));
            let link = link.attach(&mut open.session).await.map_err(Failure::refused)?;
            disposers.push(link.disposer());
            tasks.push(tokio::spawn(read(link, place, arrived.clone())));
        }
        let (unsettled, deliveries) = (HashMap::new(), 0);
        Ok(Self { open, disposers, tasks, arriving, unsettled, deliveries })
    }

    fn hand_out(&mut self, arrived: Arrived) -> Result<Received, Failure> {
        let (place, info, body) = arrived?;
        self.deliveries += 1;
        self.unsettled.insert(self.deliveries, (place, info));
        Ok(Received { id: DeliveryId(self.deliveries), body, redelivered: None })
    }
}

async fn read(mut link: Receiver, place: usize, arrived: mpsc::Sender<Arrived>) {
    loop {
        let next = match link.recv::<Data>().await {
            Ok(delivery) => {
                let (info, message) = delivery.into_parts();
                Ok((place, info, Bytes::from(message.body.0.into_vec())))
            }
            Err(error) => Err(Failure::unknown(error)),
        };
        let ended = next.is_err();
        if arrived.send(next).await.is_err() || ended {
            return;
        }
    }
}

#[async_trait]
impl DriverReceiver for Amqp1Receiver {
    async fn receive(&mut self, max: usize) -> Result<Vec<Received>, Failure> {
        let mut received = Vec::new();
        match timeout(RECEIVE_WAIT, self.arriving.recv()).await {
            Err(_) => return Ok(received),
            Ok(None) => return Err(Failure::unknown("the links ended")),
            Ok(Some(arrived)) => received.push(self.hand_out(arrived)?),
        }
        while received.len() < max
            && let Ok(arrived) = self.arriving.try_recv()
        {
            received.push(self.hand_out(arrived)?);
        }
        Ok(received)
    }

    async fn settle(&mut self, settles: &[(DeliveryId, Settle)]) -> Result<(), Failure> {
        for &(DeliveryId(delivery), settle) in settles {
            let Some((place, info)) = self.unsettled.remove(&delivery) else {
                return Err(Failure::refused(format!("delivery {delivery} is not open")));
            };
            let disposer = &self.disposers[place];
            match settle {
                Settle::Accept => disposer.accept(info).await,
                Settle::Release => disposer.release(info).await,
            }
            .map_err(Failure::unknown)?;
        }
        Ok(())
    }

    /// Unsettled messages return when the session ends.
    async fn close(self: Box<Self>) -> Result<(), Failure> {
        for task in &self.tasks {
            task.abort();
        }
        self.open.close().await
    }
}
