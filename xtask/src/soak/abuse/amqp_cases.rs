//! Abuse by AMQP clients.

use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use client_amqp::blocking::Connection;
use client_amqp::{AmqpError, Argument, Mode};

use super::bystanders::{cut_off, failed};
use super::kafka_cases::keep_half_open;
use super::{Abuse, Case, PATIENCE};
use crate::failure::{Context, Failure, Outcome};

const BACKLOG_QUEUES: usize = 20;
const UNREAD_CHANNELS: u16 = 2_000;
/// Methods of AMQP 0-9-1: class and id.
const START_OK: (u16, u16) = (10, 11);
const TUNE_OK: (u16, u16) = (10, 31);
const CONNECTION_OPEN: (u16, u16) = (10, 40);
const CHANNEL_OPEN: (u16, u16) = (20, 10);
const CHANNEL_OPEN_OK: (u16, u16) = (20, 11);
const CONSUME: (u16, u16) = (60, 20);

pub(super) fn all() -> Vec<Case> {
    vec![
        Case::new("full-reject", "publish into a full queue (reject-publish)", |abuse: &Abuse| {
            full_queue(abuse, "reject-publish")
        }),
        Case::new("full-reject-dlx", "publish into a full queue (reject-publish-dlx)", |abuse| {
            full_queue(abuse, "reject-publish-dlx")
        }),
        Case::new("full-drop-head", "publish into a full queue (drop-head)", |abuse| {
            full_queue(abuse, "drop-head")
        }),
        Case::new("refused-transactions", "transactions that are refused, in a loop", refused),
        Case::new("fanout-140", "one message of 16 MB to a fanout of 140 queues", |abuse| {
            fanout(abuse, 140)
        }),
        Case::new("fanout-1000", "one message of 16 MB to a fanout of 1,000 queues", |abuse| {
            fanout(abuse, 1_000)
        }),
        Case::new("slow-readers-amqp", "100 consumers that never read", slow_readers),
        Case::new(
            "unread-channels-amqp",
            "a connection of 2,000 consuming channels that never reads, on a backlog",
            unread_channels,
        )
        .after(backlog),
        Case::new("idle-amqp", "5,000 idle AMQP connections", idle),
        Case::new("half-open-amqp", "2,000 AMQP connections with half a handshake", half_open),
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
        while abuse.continues() {
            while connection.unconfirmed() < UNCONFIRMED_MAX {
                connection.publish("full", &body);
            }
            let confirms = connection.confirms().map_err(failed("no confirms come"))?;
            confirms.iter().for_each(|confirm| abuse.count(confirm.taken));
        }
        Ok(())
    })
}

/// Gets messages and, in one transaction, settles them and publishes replies to a full queue.
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
        while abuse.continues() {
            let mut connection = connect(abuse, Mode::Transactions)?;
            connection.consume("work", 10).map_err(failed("cannot consume"))?;
            loop {
                let Some(delivery) = connection.delivery(Duration::from_secs(5))? else { break };
                connection.publish("answers", b"no room");
                connection.ack(delivery.tag);
                match connection.commit() {
                    Ok(()) => abuse.count(true),
                    // The server closes the channel with an error, or the connection.
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
                if !abuse.continues() {
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
        // The channel is closed with a reply code.
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

fn backlog_queue(number: usize) -> String {
    format!("backlog{}", number % BACKLOG_QUEUES)
}

/// Fills the queues with the bytes of the backlog.
fn backlog(abuse: &Abuse) -> Outcome {
    let names: Vec<String> = (0..BACKLOG_QUEUES).map(backlog_queue).collect();
    connect(abuse, Mode::Confirms)?
        .declare(&names, "classic")
        .context(|| "cannot declare the queues of the backlog")?;
    let body = vec![b'x'; 100_000];
    let threads = 4;
    let messages = abuse.backlog_bytes as usize / body.len() / threads;
    abuse.in_threads(threads, |_| {
        let mut connection = connect(abuse, Mode::Confirms)?;
        for begin in (0..messages).step_by(BACKLOG_QUEUES) {
            let queues: Vec<String> =
                (begin..messages.min(begin + BACKLOG_QUEUES)).map(backlog_queue).collect();
            connection.publish_to_each(&queues, &body)?;
        }
        Ok(())
    })
}

fn unread_channels(abuse: &Abuse) -> Outcome {
    let stream = TcpStream::connect_timeout(&abuse.amqp, PATIENCE)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut open = b"AMQP\x00\x00\x09\x01".to_vec();
    let start_ok =
        [&0_u32.to_be_bytes()[..], b"\x05PLAIN", b"\0\0\0\x0c\0guest\0guest", b"\x05en_US"];
    open.extend(method(0, START_OK, &start_ok.concat()));
    let tune_ok = [&UNREAD_CHANNELS.to_be_bytes()[..], &(128_u32 << 10).to_be_bytes(), &[0, 0]];
    open.extend(method(0, TUNE_OK, &tune_ok.concat()));
    open.extend(method(0, CONNECTION_OPEN, b"\x01/\0\0"));
    for channel in 1..=UNREAD_CHANNELS {
        open.extend(method(channel, CHANNEL_OPEN, b"\0"));
    }
    (&stream).write_all(&open)?;
    let mut reader = BufReader::new(&stream);
    let mut opened = 0;
    while opened < UNREAD_CHANNELS {
        opened += u16::from(next_method(&mut reader)? == CHANNEL_OPEN_OK);
    }
    for channel in 1..=UNREAD_CHANNELS {
        let queue = backlog_queue(channel.into());
        let mut consume = vec![0, 0, queue.len() as u8];
        consume.extend(queue.as_bytes());
        // No consumer tag, no-wait, no arguments.
        consume.extend([0, 0b1000, 0, 0, 0, 0]);
        (&stream).write_all(&method(channel, CONSUME, &consume))?;
        abuse.count(true);
    }
    std::thread::sleep(abuse.left());
    Ok(())
}

/// A frame with a method and its arguments (AMQP 0-9-1, 2.3.5).
fn method(channel: u16, (class, id): (u16, u16), arguments: &[u8]) -> Vec<u8> {
    let mut frame = vec![1];
    frame.extend(channel.to_be_bytes());
    frame.extend((arguments.len() as u32 + 4).to_be_bytes());
    frame.extend(class.to_be_bytes());
    frame.extend(id.to_be_bytes());
    frame.extend(arguments);
    frame.push(0xce);
    frame
}

/// Class and id of the next method; other frames are skipped.
fn next_method(reader: &mut impl Read) -> Outcome<(u16, u16)> {
    loop {
        let mut head = [0; 7];
        reader.read_exact(&mut head)?;
        let [kind, _, _, size @ ..] = head;
        let mut rest = vec![0; u32::from_be_bytes(size) as usize + 1];
        reader.read_exact(&mut rest)?;
        if let (1, [class1, class2, id1, id2, ..]) = (kind, &rest[..]) {
            let pair = |high: &u8, low: &u8| u16::from_be_bytes([*high, *low]);
            return Ok((pair(class1, class2), pair(id1, id2)));
        }
    }
}

fn idle(abuse: &Abuse) -> Outcome {
    let mut idle = Vec::new();
    for _ in 0..5_000 {
        // Each log-in takes a core for a while, so not all fit into the time.
        if !abuse.continues() {
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
    // The protocol header, and the announcement of a start-ok frame whose payload never follows.
    let begun = b"AMQP\x00\x00\x09\x01\x01\x00\x00\x00\x00\x3f\x00\x00\x0a";
    keep_half_open(abuse, abuse.amqp, begun, 2_000)
}
