//! Topics are made and deleted.

use base::TopicId;
use broker::{ExecuteError, NewTopic};

use super::{Client, Ended};
use crate::checkers::topics::Topic;

const NAMES: u64 = 5;

pub async fn come_and_go(mut client: Client) -> Ended {
    loop {
        let name = format!("passing-{}", client.random.below(NAMES));
        let found = client.broker.catalog().topic_id(&name);
        let done = match found {
            Some(id) => delete(&mut client, &name, id).await,
            None => create(&mut client, &name).await,
        };
        if done == Err(Ended) {
            return Ended;
        }
        client.think(500).await;
    }
}

async fn create(client: &mut Client, name: &str) -> Result<(), Ended> {
    client.knowledge.lock().topics.set(name, Topic::Unknown);
    let uuid = client.broker.entropy().uuid();
    let partitions = client.random.between(1, 9) as u32;
    let topic = NewTopic { name: name.to_owned(), uuid, partitions, config: Default::default() };
    let made = client.broker.create_topic(topic).await;
    let answer = client.changed(made).await?;
    client.trace.note(format_args!("create {name}: {answer:?}"));
    match answer {
        Ok(_) => client.knowledge.lock().topics.set(name, Topic::There),
        Err(ExecuteError::Unavailable(_)) => {}
        other => client.refused("creating a topic", &other),
    }
    Ok(())
}

async fn delete(client: &mut Client, name: &str, topic: TopicId) -> Result<(), Ended> {
    client.knowledge.lock().topics.set(name, Topic::Unknown);
    let deleted = client.broker.delete_topic(topic).await;
    let answer = client.changed(deleted).await?;
    client.trace.note(format_args!("delete {name}: {answer:?}"));
    match answer {
        Ok(_) => client.knowledge.lock().topics.set(name, Topic::Gone),
        Err(ExecuteError::Unavailable(_)) => {}
        other => client.refused("deleting a topic", &other),
    }
    Ok(())
}
