//! Links over the kernel's loopback.

mod common;

use std::sync::atomic::Ordering;

use bytes::Bytes;
use common::{Node, SHARD, directory, eventually, in_ms, request_until_answered, send_request};
use futures_util::FutureExt;
use links::limits::{LINK_APPENDS_BYTES_MAX, LINK_APPENDS_MAX, LINK_GOSSIP_BYTES_MAX};
use links::{AppendError, Declined, Lane, Message, NodeId, RequestError};
use tasks::{EndConsequence, Task};
use tokio::runtime::Handle;

/// A message whose body follows from its head.
fn append(head: &str, bytes: usize) -> Message {
    let body = Bytes::from(vec![head.as_bytes()[0]; bytes]);
    Message {
        head: head.to_owned().into(),
        body: vec![body.slice(..bytes / 2), body.slice(bytes / 2..)],
    }
}

#[tokio::test]
async fn request_is_answered_on_each_lane() {
    let (one, other) = (Node::local(directory(1)).await, Node::local(directory(2)).await);
    let peer = one.peer_of(&other);
    for lane in Lane::ALL {
        let message = append("x", 100_000);
        let answer = peer.request(lane, SHARD, message, in_ms(10_000)).await.expect("answered");
        assert_eq!((&answer.head[..], answer.body.len()), (&b"x"[..], 100_000));
        assert!(answer.body.iter().all(|byte| *byte == b'x'));
    }
}

#[tokio::test]
async fn declined_or_unsent_request_returns_the_reason() {
    let (one, other) = (Node::local(directory(1)).await, Node::local(directory(2)).await);
    let peer = one.peer_of(&other);
    let declined = |why| Err(RequestError::Declined(why));
    assert_eq!(send_request(&peer, Lane::Control, "busy", 5_000).await, declined(Declined::Busy));
    assert_eq!(
        send_request(&peer, Lane::Control, "long", 5_000).await,
        declined(Declined::AnswerTooLong)
    );
    let max = Lane::Control.message_bytes_max();
    let too_long = peer.request(Lane::Control, SHARD, Message::from_head(vec![0; max]), in_ms(1));
    let error = too_long.await.expect_err("too long");
    assert_eq!(error, RequestError::TooLong { bytes: max + 12, max });
    assert!(error.is_not_sent());
    let shard = base::ShardId(70_000);
    let error = peer.request(Lane::Control, shard, Message::default(), in_ms(1)).await;
    assert_eq!(error.expect_err("no such shard"), RequestError::NoSuchShard(shard));
    assert!(one.links.set_peer(NodeId(1), "localhost:1").is_none(), "no link to itself");
    let bytes = LINK_GOSSIP_BYTES_MAX + 1;
    assert!(one.links.gossip(vec![0; bytes].into()).is_err());
}

#[tokio::test]
async fn deadline_ends_the_request_on_both_sides() {
    let (one, other) = (Node::local(directory(1)).await, Node::local(directory(2)).await);
    let peer = one.peer_of(&other);
    let within: u64 = send_request(&peer, Lane::Proxy, "within", 5_000)
        .await
        .expect("answered")
        .parse()
        .expect("ms");
    assert!((1..=5_000).contains(&within));
    let error = send_request(&peer, Lane::Proxy, "hang", 50).await.expect_err("nobody answers");
    assert_eq!(error, RequestError::TooLate);
    assert!(!error.is_not_sent());
    eventually("the peer gives up as well", || {
        other.behaviour.requests.load(Ordering::SeqCst) == 0
    })
    .await;
}

#[tokio::test]
async fn appends_and_their_replies_arrive_in_order() {
    let (one, other) = (Node::local(directory(1)).await, Node::local(directory(2)).await);
    let peer = one.peer_of(&other);
    let (mut appends, mut replies) = peer.appends(SHARD, in_ms(5_000)).await.expect("connected");
    let sending = async {
        for number in 0..200 {
            appends.send(append(&number.to_string(), 50_000)).await.expect("sent");
        }
        drop(appends);
    };
    let taking = async {
        for number in 0..200 {
            let reply = replies.next().await.expect("an answer").expect("no error");
            assert_eq!(&reply.head[..], number.to_string().as_bytes());
        }
        assert!(replies.next().await.is_none());
    };
    tokio::join!(sending, taking);
    eventually("the stream ends by itself", || {
        other.behaviour.finished.load(Ordering::SeqCst) == 1
    })
    .await;
}

#[tokio::test]
async fn sender_waits_at_a_full_window_until_replies_are_taken() {
    let (one, other) = (Node::local(directory(1)).await, Node::local(directory(2)).await);
    let peer = one.peer_of(&other);
    other.behaviour.hang();
    let (mut appends, mut replies) = peer.appends(SHARD, in_ms(5_000)).await.expect("connected");
    for _ in 0..LINK_APPENDS_MAX {
        appends.send(append("a", 10)).await.expect("sent");
    }
    assert!(appends.ready().now_or_never().is_none(), "the window is full");
    other.behaviour.resume();
    replies.next().await.expect("an answer").expect("no error");
    appends.ready().await.expect("one more has room");
    appends.send(append("a", 10)).await.expect("sent");
    for _ in 0..LINK_APPENDS_MAX {
        replies.next().await.expect("an answer").expect("no error");
    }

    // Also by bytes. A message larger than the window is sent alone.
    other.behaviour.hang();
    appends.send(append("b", LINK_APPENDS_BYTES_MAX * 2)).await.expect("sent");
    appends.ready().await.expect("there is a place");
    assert!(appends.send(append("b", 1)).now_or_never().is_none(), "and no room");
    other.behaviour.resume();
    replies.next().await.expect("an answer").expect("no error");
    appends.send(append("b", 1)).await.expect("sent");
}

#[tokio::test]
async fn later_stream_of_a_shard_replaces_the_earlier_one() {
    let (one, other) = (Node::local(directory(1)).await, Node::local(directory(2)).await);
    let peer = one.peer_of(&other);
    other.behaviour.hang();
    let (mut old, mut old_replies) = peer.appends(SHARD, in_ms(5_000)).await.expect("connected");
    for _ in 0..3 {
        old.send(append("a", 10)).await.expect("sent");
    }
    eventually("it arrives", || other.behaviour.streams.load(Ordering::SeqCst) == 1).await;
    let (mut new, mut replies) = peer.appends(SHARD, in_ms(5_000)).await.expect("connected");
    let superseded = Some(Err(AppendError::Superseded));
    assert_eq!(old_replies.next().await.map(|it| it.map(drop)), superseded);
    assert_eq!(old.send(append("a", 10)).await, Err(AppendError::Superseded));
    // A full window, though no append of the old stream was answered.
    for _ in 0..LINK_APPENDS_MAX {
        new.send(append("b", 10)).await.expect("sent");
    }
    drop(old);
    other.behaviour.resume();
    for _ in 0..LINK_APPENDS_MAX {
        assert_eq!(&replies.next().await.expect("an answer").expect("no error").head[..], b"b");
    }
    eventually("only the new one is left", || other.behaviour.streams.load(Ordering::SeqCst) == 1)
        .await;
}

#[tokio::test]
async fn stream_ended_by_the_follower_can_be_followed_by_another() {
    let (one, other) = (Node::local(directory(1)).await, Node::local(directory(2)).await);
    let peer = one.peer_of(&other);
    let (mut appends, mut replies) = peer.appends(SHARD, in_ms(5_000)).await.expect("connected");
    appends.send(append("end", 10)).await.expect("sent");
    let ended = Some(Err(AppendError::StreamEnded));
    assert_eq!(replies.next().await.map(|it| it.map(drop)), ended);
    assert_eq!(appends.send(append("a", 10)).await, Err(AppendError::StreamEnded));
    let (mut appends, mut replies) = peer.appends(SHARD, in_ms(5_000)).await.expect("connected");
    appends.send(append("a", 10)).await.expect("sent");
    replies.next().await.expect("an answer").expect("no error");
}

#[tokio::test]
async fn append_fails_after_its_replies_are_dropped() {
    let (one, other) = (Node::local(directory(1)).await, Node::local(directory(2)).await);
    let peer = one.peer_of(&other);
    let (mut appends, replies) = peer.appends(SHARD, in_ms(5_000)).await.expect("connected");
    appends.send(append("a", 10)).await.expect("sent");
    drop(replies);
    assert_eq!(appends.send(append("a", 10)).await, Err(AppendError::StreamEnded));
}

#[tokio::test]
async fn stalled_replication_lane_does_not_delay_a_vote() {
    let (one, other) = (Node::local(directory(1)).await, Node::local(directory(2)).await);
    let peer = one.peer_of(&other);
    other.behaviour.hang();
    let mut streams = Vec::new();
    // Full windows of many shards: far more than a socket buffers.
    for shard in 0..8 {
        let shard = base::ShardId(shard);
        let (mut appends, replies) = peer.appends(shard, in_ms(5_000)).await.expect("connected");
        for _ in 0..LINK_APPENDS_MAX {
            appends.send(append("a", 2_000_000)).await.expect("sent");
        }
        streams.push((appends, replies));
    }
    for _ in 0..50 {
        assert_eq!(send_request(&peer, Lane::Control, "vote", 200).await.as_deref(), Ok("vote"));
    }
    other.behaviour.resume();
    for (_, replies) in &mut streams {
        for _ in 0..LINK_APPENDS_MAX {
            replies.next().await.expect("an answer").expect("no error");
        }
    }
}

#[tokio::test]
async fn panic_in_a_request_closes_only_its_connection() {
    assert_eq!(
        (Task::PeerRequest.end(), Task::PeerSession.end()),
        (EndConsequence::Session, EndConsequence::Session)
    );
    let (one, other) = (Node::local(directory(1)).await, Node::local(directory(2)).await);
    let peer = one.peer_of(&other);
    request_until_answered(&peer, Lane::Control).await;
    let error = send_request(&peer, Lane::Proxy, "panic", 5_000).await.expect_err("no answer");
    assert!(matches!(error, RequestError::Ended(_)), "{error:?}");
    assert_eq!(send_request(&peer, Lane::Control, "vote", 500).await.as_deref(), Ok("vote"));
    request_until_answered(&peer, Lane::Proxy).await;
    assert_eq!(one.failure.reason().or(other.failure.reason()), None);
}

#[tokio::test]
async fn gossip_is_sent_when_it_changes_and_each_second() {
    let (one, other) = (Node::local(directory(1)).await, Node::local(directory(2)).await);
    one.links.gossip(Bytes::from_static(b"before")).expect("short");
    let peer = one.peer_of(&other);
    request_until_answered(&peer, Lane::Control).await;
    let heard = |text: &'static [u8]| {
        let gossip = other.behaviour.gossip.lock();
        gossip.iter().filter(|heard| **heard == (NodeId(1), Bytes::from_static(text))).count()
    };
    eventually("it is told once there is a link", || heard(b"before") == 1).await;
    one.links.gossip(Bytes::from_static(b"after")).expect("short");
    eventually("it is told again", || heard(b"after") > 1).await;
    assert_eq!(heard(b"before"), 1);
}

fn tasks_alive() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

#[tokio::test]
async fn dropped_links_leave_no_task_running() {
    let before = tasks_alive();
    let (one, other) = (Node::local(directory(1)).await, Node::local(directory(2)).await);
    let (to, fro) = (one.peer_of(&other), other.peer_of(&one));
    for lane in Lane::ALL {
        request_until_answered(&to, lane).await;
        request_until_answered(&fro, lane).await;
    }
    let (_appends, mut replies) = {
        other.behaviour.hang();
        let (mut appends, replies) = to.appends(SHARD, in_ms(5_000)).await.expect("connected");
        appends.send(append("a", 10)).await.expect("sent");
        (appends, replies)
    };
    let asking = tokio::spawn({
        let to = to.clone();
        async move { send_request(&to, Lane::Proxy, "hang", 60_000).await }
    });
    eventually("both are at work", || {
        let (streams, requests) = (&other.behaviour.streams, &other.behaviour.requests);
        streams.load(Ordering::SeqCst) == 1 && requests.load(Ordering::SeqCst) == 1
    })
    .await;
    let (failure, behaviour) = (one.failure.clone(), other.behaviour.clone());
    drop((one, other));
    // Waiting callers get an error.
    assert!(asking.await.expect("no panic").is_err());
    assert!(replies.next().await.expect("an answer").is_err());
    eventually("no task is left", || tasks_alive() == before).await;
    assert_eq!(behaviour.streams.load(Ordering::SeqCst), 0);
    assert_eq!(behaviour.requests.load(Ordering::SeqCst), 0);
    assert_eq!(failure.reason(), None);
    assert_eq!(send_request(&to, Lane::Proxy, "late", 1_000).await, Err(RequestError::Gone));
}
