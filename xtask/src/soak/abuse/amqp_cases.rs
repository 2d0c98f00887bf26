//! What AMQP clients can do.

use std::time::{Duration, Instant};

use client_amqp::blocking::Connection;
use client_amqp::{AmqpError, Argument, Mode};

use super::bystanders::{cut_off, failed};
use super::kafka_cases::keep_half_open;
use super::{Abuse, Case, PATIENCE};
use crate::failure::{Context, Failure, Outcome};

pub(super) fn all() -> Vec<Case> {
    let case = |name, what, abuse| Case { name, what, abuse };
    vec![
        case("full-reject", "publish into a full queue (reject-publish)", |abuse: &Abuse| {
            full_queue(abuse, "reject-publish")
        }),
        case("full-reject-dlx", "publish into a full queue (reject-publish-dlx)", |abuse| {
            full_queue(abuse, "reject-publish-dlx")
        }),
        case("full-drop-head", "publish into a full queue (drop-head)", |abuse| {
            full_queue(abuse, "drop-head")
        }),
        case("refused-transactions", "transactions that are refused, in a loop", refused),
        case("fanout-140", "one message of 16 MB to a fanout of 140 queues", |abuse| {
            fanout(abuse, 140)
        }),
        case("fanout-1000", "one message of 16 MB to a fanout of 1,000 queues", |abuse| {
            fanout(abuse, 1_000)
        }),
        case("slow-readers-amqp", "100 consumers that never read", slow_readers),
        case("idle-amqp", "5,000 idle AMQP connections", idle),
        case("half-open-amqp", "2,000 AMQP connections with half a handshake", half_open),
    ]
}

fn connect(abuse: &Abuse, mode: Mode) -> Outcome<Connection> {
    Connection::open(abuse.amqp, PATIENCE, mode).context(|| "cannot connect")
}

fn full_queue(abuse: &Abuse, overflow: &str) -> Outcome {
    const UNCONFIRMED_MAX: usize = 1_000;
    let mut connection = connect(abuse, Mode::Confirms)?;
    connection.declare(&["dead".to_owned()], "classic").context(|| "cannot declare a queue")?;
    let arguments = [
        ("x-max-length", Argument::Number(10)),
        ("x-overflow", Argument::Text(overflow)),
        ("x-dead-letter-exchange", Argument::Text("")),
        ("x-dead-letter-routing-key", Argument::Text("dead")),
    ];
    connection
        .declare_with(&["full".to_owned()], &arguments)
        .context(|| "cannot declare a full queue")?;
    drop(connection);
    let body = vec![b'x'; 1024];
    abuse.in_threads(4, |_| {
        let mut connection = connect(abuse, Mode::Confirms)?;
        while abuse.goes_on() {
            while connection.unconfirmed() < UNCONFIRMED_MAX {
                connection.publish("full", &body);
            }
            let confirms = connection.confirms().map_err(failed("no confirms come"))?;
            confirms.iter().for_each(|confirm| abuse.count(confirm.taken));
        }
        Ok(())
    })
}

/// A message is taken, and in one transaction settled and answered to a queue that is full.
fn refused(abuse: &Abuse) -> Outcome {
    let mut connection = connect(abuse, Mode::Confirms)?;
    let full =
        [("x-max-length", Argument::Number(1)), ("x-overflow", Argument::Text("reject-publish"))];
    connection.declare_with(&["answers".to_owned()], &full).context(|| "cannot declare a queue")?;
    connection.declare(&["work".to_owned()], "classic").context(|| "cannot declare a queue")?;
    connection.publish_to_each(&["answers".to_owned()], b"full")?;
    let work: Vec<String> = std::iter::repeat_n("work".to_owned(), 100).collect();
    connection.publish_to_each(&work, b"work")?;
    drop(connection);
    abuse.in_threads(4, |_| {
        while abuse.goes_on() {
            let mut connection = connect(abuse, Mode::Transactions)?;
            connection.consume("work", 10).map_err(failed("cannot consume"))?;
            loop {
                let Some(delivery) = connection.delivery(Duration::from_secs(5))? else { break };
                connection.publish("answers", b"no room");
                connection.ack(delivery.tag);
                match connection.commit() {
                    Ok(()) => abuse.count(true),
                    // The channel is closed with an error, or the connection is.
                    Err(AmqpError::Closed { .. }) => {
                        abuse.count(false);
                        break;
                    }
                    Err(AmqpError::Io(error)) if cut_off(&error) => {
                        abuse.count(false);
                        break;
                    }
                    Err(error) => return Err(error.into()),
                }
                if !abuse.goes_on() {
                    break;
                }
            }
        }
        Ok(())
    })
}

fn fanout(abuse: &Abuse, count: usize) -> Outcome {
    let queues: Vec<String> = (0..count).map(|number| format!("q{number}")).collect();
    let mut connection = connect(abuse, Mode::Confirms)?;
    connection.declare(&queues, "classic").context(|| "cannot declare the queues")?;
    connection.fan_out("all", &queues).context(|| "cannot bind the queues")?;
    let body = vec![b'x'; (16 << 20) - 1024];
    let begun = Instant::now();
    connection.publish_to("all", "", &body);
    let taken = match connection.confirms() {
        Ok(confirms) => confirms.iter().all(|confirm| confirm.taken),
        // A reply code closes the channel.
        Err(error @ AmqpError::Closed { .. }) => {
            abuse.note(error.to_string());
            false
        }
        Err(error) => return Err(Failure::new(format!("no confirm and no reply code: {error}"))),
    };
    abuse.count(taken);
    abuse.note(format!("answered after {:.1?}", begun.elapsed()));
    drop(connection);
    std::thread::sleep(abuse.left().min(Duration::from_secs(5)));
    let mut connection = connect(abuse, Mode::Confirms)?;
    let mut with = 0;
    for queue in &queues {
        with += connection.ready(queue).map_err(failed("a queue cannot be looked at"))?;
    }
    let expected = if taken { count as u32 } else { 0 };
    match with == expected {
        true => Ok(()),
        false => Err(Failure::new(format!("the message is in {with} queues, not in {expected}"))),
    }
}

fn slow_readers(abuse: &Abuse) -> Outcome {
    let mut connection = connect(abuse, Mode::Confirms)?;
    let queue = "bulk".to_owned();
    connection.declare(std::slice::from_ref(&queue), "classic").context(|| "cannot declare")?;
    let body = vec![b'x'; 100_000];
    for _ in 0..20 {
        connection.publish_to_each(&vec![queue.clone(); 100], &body)?;
    }
    let mut deaf = Vec::new();
    for _ in 0..100 {
        let mut consumer = connect(abuse, Mode::Confirms)?;
        consumer.consume(&queue, 0).map_err(failed("cannot consume"))?;
        abuse.count(true);
        deaf.push(consumer);
    }
    std::thread::sleep(abuse.left());
    Ok(())
}

fn idle(abuse: &Abuse) -> Outcome {
    let mut idle = Vec::new();
    for _ in 0..5_000 {
        // Each logs in, which takes a core for a while: not all come in time.
        if !abuse.goes_on() {
            break;
        }
        idle.push(connect(abuse, Mode::Confirms)?);
        abuse.count(true);
    }
    std::thread::sleep(abuse.left());
    for connection in idle.iter_mut().step_by(100) {
        connection.declare(&["woken".to_owned()], "classic").context(|| "one is not served")?;
    }
    Ok(())
}

fn half_open(abuse: &Abuse) -> Outcome {
    // The protocol header, and a frame of start-ok that is announced and not sent.
    let begun = b"AMQP\x00\x00\x09\x01\x01\x00\x00\x00\x00\x3f\x00\x00\x0a";
    keep_half_open(abuse, abuse.amqp, begun, 2_000)
}
