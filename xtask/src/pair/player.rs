//! Plays a scenario on a broker and records its replies.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::methods;
use super::peer::{Argument, Event, PATIENCE, Peer, ReceivedMethod, frame};
use super::script::{Call, ChannelRef, OpenOptions, Scenario, Step};
use super::transcript::Transcript;
use super::value::Value;
use crate::failure::{Failure, Outcome};

/// Polling interval of repeated methods.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// Line of the transcript for a timeout.
const NOTHING: &str = "(nothing)";

/// Sets policies and users on a broker: the words of `tests/compat/servers/postroad-admin`.
pub(super) type Admin<'a> = dyn Fn(&[String]) -> Outcome + 'a;

/// A broker to play on.
pub(super) struct Stage<'a> {
    pub(super) address: SocketAddr,
    pub(super) admin: &'a Admin<'a>,
}

struct Player<'a> {
    stage: &'a Stage<'a>,
    transcript: Transcript,
    connections: BTreeMap<char, Connection>,
    /// Queues and exchanges to delete at the end.
    queues: BTreeSet<String>,
    exchanges: BTreeSet<String>,
    /// Whether lines are left out of the transcript.
    silent: bool,
}

struct Connection {
    peer: Peer,
    channels: BTreeSet<u16>,
    /// Whether the script replies to closes itself.
    manual: bool,
    /// Whether a close was received or the socket has ended: the next method opens a new connection.
    is_over: bool,
}

/// Plays a scenario and returns its transcript.
pub(super) fn play(scenario: &Scenario, stage: &Stage<'_>) -> Outcome<Vec<String>> {
    let mut player = Player {
        stage,
        transcript: Transcript::default(),
        connections: BTreeMap::new(),
        queues: BTreeSet::new(),
        exchanges: BTreeSet::new(),
        silent: false,
    };
    for (number, line) in &scenario.steps {
        let step = player.transcript.with_names(line);
        let outcome = Step::parse(&step).and_then(|step| {
            player.transcript.send(line);
            player.step(step)
        });
        outcome.map_err(|wrong| {
            Failure::new(format!("{}, line {number}: {wrong}\n  {line}", scenario.name))
        })?;
    }
    player.tidy_up().map_err(|wrong| Failure::new(format!("{}: {wrong}", scenario.name)))?;
    Ok(player.transcript.lines)
}

impl Player<'_> {
    fn step(&mut self, step: Step) -> Result<(), String> {
        match step {
            Step::Sleep(time) => std::thread::sleep(time),
            Step::Admin(words) => (self.stage.admin)(&words).map_err(|error| error.to_string())?,
            Step::Until(text, step) => return self.until(&text, *step),
            Step::Connect(name) => self.connect(name)?,
            Step::Greet(name) => {
                self.connect(name)?;
                let silent = std::mem::replace(&mut self.silent, true);
                let greeted = self.greet(ChannelRef { connection: name, channel: 0 });
                self.silent = silent;
                greeted?;
            }
            Step::Open(name, options) => self.open(name, &options)?,
            Step::Manual(name) => self.connection(name)?.manual = true,
            Step::End(name) => self.connection(name)?.peer.end(),
            Step::Drop(name) => drop(self.connections.remove(&name)),
            Step::Closed(name, within) => self.closed(name, within)?,
            Step::Quiet(name, time) => self.quiet(name, time)?,
            Step::Raw(name, bytes) => {
                let sent = self.connection(name)?.peer.send(&bytes);
                sent.map_err(|error| error.to_string())?;
            }
            Step::Frame(place, kind, payload) => {
                // A frame is sent as it is: its channel is not opened first.
                let bytes = frame(kind, place.channel, &payload);
                let sent = self.connection(place.connection)?.peer.send(&bytes);
                sent.map_err(|error| error.to_string())?;
            }
            Step::Wait(place, name, count) => self.wait(place, &[&name], count)?,
            Step::Method(place, call) => self.call(place, &call)?,
        }
        Ok(())
    }

    /// Repeats a method until its reply contains this text; only the last reply is recorded.
    fn until(&mut self, text: &str, step: Step) -> Result<(), String> {
        let Step::Method(place, call) = step else {
            return Err("only a method can be repeated".to_owned());
        };
        let begun = Instant::now();
        let before = self.transcript.lines.len();
        loop {
            self.call(place, &call)?;
            let said = self.transcript.lines[before..].iter().any(|line| line.contains(text));
            if said || begun.elapsed() > PATIENCE {
                return Ok(());
            }
            self.transcript.lines.truncate(before);
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    fn connection(&mut self, name: char) -> Result<&mut Connection, String> {
        self.connections.get_mut(&name).ok_or_else(|| format!("there is no connection {name}"))
    }

    fn connect(&mut self, name: char) -> Result<(), String> {
        let peer = Peer::connect(self.stage.address).map_err(|error| error.to_string())?;
        let connection =
            Connection { peer, channels: BTreeSet::new(), manual: false, is_over: false };
        self.connections.insert(name, connection);
        Ok(())
    }

    /// Connects and logs in as guest. The handshake is recorded only if it fails.
    fn open(&mut self, name: char, options: &OpenOptions) -> Result<(), String> {
        self.connect(name)?;
        let place = ChannelRef { connection: name, channel: 0 };
        let silent = std::mem::replace(&mut self.silent, true);
        let opened = self.log_in(place, options);
        self.silent = silent;
        opened
    }

    fn greet(&mut self, place: ChannelRef) -> Result<(), String> {
        let connection = self.connection(place.connection)?;
        connection.peer.send(b"AMQP\x00\x00\x09\x01").map_err(|error| error.to_string())?;
        let start = self.receive(place, &["connection.start"])?;
        start.map(drop).ok_or_else(|| "no connection.start came".to_owned())
    }

    fn log_in(&mut self, place: ChannelRef, options: &OpenOptions) -> Result<(), String> {
        self.greet(place)?;
        let able = |name: &str| (name.to_owned(), Value::Boolean(true));
        let capabilities = ["consumer_cancel_notify", "basic.nack", "publisher_confirms"]
            .into_iter()
            .chain(["authentication_failure_close", "connection.blocked"])
            .map(able)
            .collect();
        let properties = match options.capabilities {
            true => vec![("capabilities".to_owned(), Value::Table(capabilities))],
            false => vec![],
        };
        let text = |text: &[u8]| Argument::Text(text.to_vec());
        let start_ok = [
            ("client_properties", Argument::Table(properties)),
            ("mechanism", text(b"PLAIN")),
            ("response", text(b"\0guest\0guest")),
            ("locale", text(b"en_US")),
        ];
        self.send_method(place, "connection.start_ok", start_ok)?;
        let tune = self.receive(place, &["connection.tune"])?.ok_or("no connection.tune came")?;
        let offered = |name| tune.number(name).unwrap_or_default();
        let channel_max = options.channel_max.map_or(offered("channel_max"), u64::from);
        let frame_max = options.frame_max.map_or(offered("frame_max"), u64::from);
        self.connection(place.connection)?.peer.frame_max = frame_max as usize;
        let tune_ok = [
            ("channel_max", Argument::Number(channel_max)),
            ("frame_max", Argument::Number(frame_max)),
            ("heartbeat", Argument::Number(options.heartbeat.into())),
        ];
        self.send_method(place, "connection.tune_ok", tune_ok)?;
        self.send_method(place, "connection.open", [("virtual_host", text(b"/"))])?;
        let opened = self.receive(place, &["connection.open_ok"])?;
        opened.map(drop).ok_or_else(|| "no connection.open_ok came".to_owned())
    }

    fn send_method<const N: usize>(
        &mut self,
        place: ChannelRef,
        method: &str,
        arguments: [(&str, Argument); N],
    ) -> Result<(), String> {
        let method = methods::named(method).expect("a method of the table");
        let arguments = arguments.map(|(name, argument)| (name.to_owned(), argument));
        self.connection(place.connection)?.peer.method(place.channel, method, &arguments)
    }

    /// Opens the connection and the channel that the next method needs.
    fn prepare(&mut self, place: ChannelRef, opens_channel: bool) -> Result<(), String> {
        if self.connections.get(&place.connection).is_none_or(|connection| connection.is_over) {
            self.open(place.connection, &OpenOptions::default())?;
        }
        let connection = self.connection(place.connection)?;
        if place.channel == 0 || !opens_channel || connection.channels.contains(&place.channel) {
            return Ok(());
        }
        let silent = std::mem::replace(&mut self.silent, true);
        self.send_method(place, "channel.open", [])?;
        let opened = self.receive(place, &["channel.open_ok"])?;
        self.silent = silent;
        opened.map(drop).ok_or_else(|| format!("channel {} was not opened", place.channel))
    }

    fn call(&mut self, place: ChannelRef, call: &Call) -> Result<(), String> {
        let opens_channel = !call.method.name.starts_with("channel.");
        let handshake = call.method.name.starts_with("connection.");
        if !handshake || !self.connections.contains_key(&place.connection) {
            self.prepare(place, opens_channel)?;
        }
        self.note_names(call);
        let connection = self.connection(place.connection)?;
        connection.peer.method(place.channel, call.method, &call.arguments)?;
        if let Some((properties, body)) = &call.content {
            connection.peer.content(place.channel, properties, body)?;
        }
        let no_wait = call.arguments.iter().any(|(name, _)| name == "no_wait");
        if !call.method.answers.is_empty() && !no_wait {
            self.wait(place, &call.method.answers, 1)?;
        }
        Ok(())
    }

    fn note_names(&mut self, call: &Call) {
        let name = |argument: &str| {
            let found = call.arguments.iter().find(|(name, _)| name == argument);
            found.and_then(|(_, value)| match value {
                Argument::Text(text) => Some(String::from_utf8_lossy(text).into_owned()),
                _ => None,
            })
        };
        match &call.method.name[..] {
            "queue.declare" => self.queues.extend(name("queue")),
            "exchange.declare" => self.exchanges.extend(name("exchange")),
            _ => {}
        }
    }

    /// Records events until this number of these methods was received.
    fn wait(&mut self, place: ChannelRef, names: &[&str], count: u32) -> Result<(), String> {
        for _ in 0..count {
            if self.receive(place, names)?.is_none() {
                break;
            }
        }
        Ok(())
    }

    /// Records events until one of these methods was received; `None` after the end of the connection or a timeout.
    fn receive(
        &mut self,
        place: ChannelRef,
        names: &[&str],
    ) -> Result<Option<ReceivedMethod>, String> {
        let until = Instant::now() + PATIENCE;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let Some(received) = self.event(place.connection, left, true)? else { return Ok(None) };
            let here = received.channel == place.channel;
            if here && names.contains(&&received.method.name[..]) {
                return Ok(Some(received));
            }
            let name = &received.method.name;
            if here && name == "channel.close" || name == "connection.close" {
                return Ok(None);
            }
        }
    }

    /// Receives the next event, replies to closes and records it. `None`: not a method.
    fn event(
        &mut self,
        name: char,
        within: Duration,
        expects: bool,
    ) -> Result<Option<ReceivedMethod>, String> {
        let until = Instant::now() + within;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let connection = self.connection(name)?;
            let event = connection.peer.next(left).map_err(|error| error.to_string())?;
            let said = match event {
                // The number of heartbeats depends on timing.
                Event::Heartbeat => continue,
                Event::Method(received) => {
                    self.answer(name, &received)?;
                    let from = format!("{name}.{}", received.channel);
                    if !self.silent || received.method.name.ends_with(".close") {
                        self.transcript.receive(&from, &received.show());
                    }
                    return Ok(Some(received));
                }
                Event::Nothing if !expects => return Ok(None),
                Event::Nothing => NOTHING.to_owned(),
                Event::ProtocolHeader(header) => format!("protocol header {header:?}"),
                // Bytes in flight decide between an orderly end and a reset.
                Event::End | Event::Reset => {
                    connection.is_over = true;
                    "(end)".to_owned()
                }
            };
            self.transcript.receive(&name.to_string(), &said);
            return Ok(None);
        }
    }

    /// Updates the open channels, and replies to closes as a client library does.
    fn answer(&mut self, name: char, received: &ReceivedMethod) -> Result<(), String> {
        let place = ChannelRef { connection: name, channel: received.channel };
        let connection = self.connection(name)?;
        match &received.method.name[..] {
            "channel.open_ok" => drop(connection.channels.insert(received.channel)),
            "channel.close_ok" => drop(connection.channels.remove(&received.channel)),
            "connection.close_ok" => connection.is_over = true,
            "channel.close" if !connection.manual => {
                connection.channels.remove(&received.channel);
                self.send_method(place, "channel.close_ok", [])?;
            }
            "connection.close" if !connection.manual => {
                connection.is_over = true;
                self.send_method(place, "connection.close_ok", [])?;
            }
            "queue.declare_ok" => self.queues.extend(received.text("queue")),
            _ => {}
        }
        Ok(())
    }

    fn quiet(&mut self, name: char, time: Duration) -> Result<(), String> {
        let until = Instant::now() + time;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || self.event(name, left, false)?.is_none() {
                return Ok(());
            }
        }
    }

    /// Records events until the server closes its side.
    fn closed(&mut self, name: char, within: Duration) -> Result<(), String> {
        let until = Instant::now() + within;
        while self.event(name, until.saturating_duration_since(Instant::now()), true)?.is_some() {}
        Ok(())
    }

    /// Deletes queues and exchanges and closes connections, so that the next scenario starts clean.
    fn tidy_up(&mut self) -> Result<(), String> {
        self.silent = true;
        let open: Vec<char> = self.connections.keys().copied().collect();
        for name in open {
            let connection = self.connection(name)?;
            if connection.is_over || connection.manual {
                continue;
            }
            let place = ChannelRef { connection: name, channel: 0 };
            let channels: Vec<u16> = connection.channels.iter().copied().collect();
            if channels.is_empty() {
                continue;
            }
            self.send_method(place, "connection.close", [("reply_code", Argument::Number(200))])?;
            self.receive(place, &["connection.close_ok"])?;
        }
        self.connections.clear();
        let lines = self.transcript.lines.len();
        let place = ChannelRef { connection: 'A', channel: 1 };
        for (method, argument, names) in [
            ("queue.delete", "queue", std::mem::take(&mut self.queues)),
            ("exchange.delete", "exchange", std::mem::take(&mut self.exchanges)),
        ] {
            for name in names.iter().filter(|name| !name.is_empty()) {
                self.prepare(place, true)?;
                self.send_method(
                    place,
                    method,
                    [(argument, Argument::Text(name.clone().into_bytes()))],
                )?;
                let answers = methods::named(method).expect("a method").answers.clone();
                self.receive(place, &answers)?;
            }
        }
        self.transcript.lines.truncate(lines);
        Ok(())
    }
}
