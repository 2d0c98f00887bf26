//! Scripts: scenarios of steps, a line each. `tests/compat/amqp-pair/README.md` describes the language.

use std::time::Duration;

use super::methods::{self, Kind, Method};
use super::peer::Argument;
use super::value::{Cursor, Table, hexadecimal};
use crate::failure::{Failure, Outcome};

#[derive(Debug)]
pub(super) struct Scenario {
    pub(super) name: String,
    /// Each step with its line number.
    pub(super) steps: Vec<(usize, String)>,
}

/// Parses a script: `== NAME` begins a scenario, `#` a comment.
pub(super) fn scenarios(text: &str) -> Outcome<Vec<Scenario>> {
    let mut scenarios: Vec<Scenario> = vec![];
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(name) = line.strip_prefix("== ") {
            scenarios.push(Scenario { name: name.to_owned(), steps: vec![] });
            continue;
        }
        let Some(scenario) = scenarios.last_mut() else {
            return Err(Failure::new(format!("line {}: a step before '== NAME'", number + 1)));
        };
        scenario.steps.push((number + 1, line.to_owned()));
    }
    Ok(scenarios)
}

/// A connection of a scenario, and a channel of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChannelRef {
    pub(super) connection: char,
    pub(super) channel: u16,
}

#[derive(Debug)]
pub(super) enum Step {
    Sleep(Duration),
    /// Arguments of the program that sets policies and users.
    Admin(Vec<String>),
    /// Repeats the step until a reply contains the text.
    Until(String, Box<Step>),
    Connect(char),
    /// Connects and takes the server's `connection.start`.
    Greet(char),
    /// Connects and logs in with these capabilities.
    Open(char, OpenOptions),
    /// Turns off automatic replies to closes.
    Manual(char),
    /// Half-closes the socket.
    End(char),
    /// Drops the socket.
    Drop(char),
    /// Waits until the server closes.
    Closed(char, Duration),
    /// Records events until the time is over.
    Quiet(char, Duration),
    Raw(char, Vec<u8>),
    Frame(ChannelRef, u8, Vec<u8>),
    Wait(ChannelRef, String, u32),
    Method(ChannelRef, Call),
}

#[derive(Clone, Debug)]
pub(super) struct OpenOptions {
    pub(super) capabilities: bool,
    pub(super) channel_max: Option<u16>,
    pub(super) frame_max: Option<u32>,
    pub(super) heartbeat: u16,
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions { capabilities: true, channel_max: None, frame_max: None, heartbeat: 0 }
    }
}

/// A method with its arguments and content.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) method: &'static Method,
    pub(super) arguments: Vec<(String, Argument)>,
    pub(super) content: Option<(Table, Vec<u8>)>,
}

/// Long enough to see that no event arrives.
const QUIET: Duration = Duration::from_millis(200);
const CLOSED_WITHIN: Duration = Duration::from_secs(10);

impl Step {
    pub(super) fn parse(line: &str) -> Result<Step, String> {
        let mut cursor = Cursor(line);
        let word = cursor.word();
        match word {
            "sleep" => return Ok(Step::Sleep(millis(&mut cursor, Duration::ZERO)?)),
            "admin" => {
                let words = split_words(cursor.0)?;
                return Ok(Step::Admin(words));
            }
            "until" => {
                cursor.skip_spaces();
                let text = String::from_utf8_lossy(&cursor.text()?).into_owned();
                cursor.skip_spaces();
                return Ok(Step::Until(text, Box::new(Step::parse(cursor.0)?)));
            }
            _ => {}
        }
        let (connection, channel) = word.split_once('.').unwrap_or((word, "0"));
        let connection = match connection.chars().collect::<Vec<_>>()[..] {
            [letter @ 'A'..='Z'] => letter,
            _ => return Err(format!("'{word}' is neither a step nor a connection (A to Z)")),
        };
        let channel = channel.parse().map_err(|_| format!("'{channel}' is no channel"))?;
        let place = ChannelRef { connection, channel };
        cursor.skip_spaces();
        let what = cursor.word();
        let step = match what {
            "connect" => Step::Connect(connection),
            "greet" => Step::Greet(connection),
            "open" => Step::Open(connection, open_options(&mut cursor)?),
            "manual" => Step::Manual(connection),
            "end" => Step::End(connection),
            "drop" => Step::Drop(connection),
            "closed" => Step::Closed(connection, millis(&mut cursor, CLOSED_WITHIN)?),
            "quiet" => Step::Quiet(connection, millis(&mut cursor, QUIET)?),
            "raw" => Step::Raw(connection, bytes(&mut cursor)?),
            "frame" => {
                let kind = number(&mut cursor)? as u8;
                Step::Frame(place, kind, bytes(&mut cursor)?)
            }
            "wait" => {
                cursor.skip_spaces();
                let name = cursor.word().to_owned();
                let count = if cursor.is_at_end() { 1 } else { number(&mut cursor)? as u32 };
                Step::Wait(place, name, count)
            }
            name => {
                let method = methods::named(name).ok_or_else(|| format!("what is '{name}'?"))?;
                Step::Method(place, call(method, &mut cursor)?)
            }
        };
        if cursor.is_at_end() { Ok(step) } else { Err(format!("not understood: {}", cursor.0)) }
    }
}

fn number(cursor: &mut Cursor<'_>) -> Result<u64, String> {
    cursor.skip_spaces();
    let word = cursor.word();
    word.parse().map_err(|_| format!("'{word}' is no number"))
}

fn millis(cursor: &mut Cursor<'_>, default: Duration) -> Result<Duration, String> {
    if cursor.is_at_end() { Ok(default) } else { number(cursor).map(Duration::from_millis) }
}

/// Quoted text, `hex` and digits, or both in turn.
fn bytes(cursor: &mut Cursor<'_>) -> Result<Vec<u8>, String> {
    let mut bytes = vec![];
    while !cursor.is_at_end() {
        if cursor.take("hex") {
            let end = cursor.0.find('"').unwrap_or(cursor.0.len());
            let (digits, rest) = cursor.0.split_at(end);
            bytes.extend(hexadecimal(digits)?);
            cursor.0 = rest;
        } else {
            bytes.extend(cursor.text()?);
        }
    }
    Ok(bytes)
}

fn open_options(cursor: &mut Cursor<'_>) -> Result<OpenOptions, String> {
    let mut options = OpenOptions::default();
    while !cursor.is_at_end() {
        let name = cursor.word();
        if name == "plain" {
            options.capabilities = false;
            continue;
        }
        if !cursor.take("=") {
            return Err(format!("'=' expected after {name}"));
        }
        let value = number(cursor)?;
        match name {
            "channel_max" => options.channel_max = Some(value as u16),
            "frame_max" => options.frame_max = Some(value as u32),
            "heartbeat" => options.heartbeat = value as u16,
            _ => return Err(format!("'{name}' is nothing to open with")),
        }
    }
    Ok(options)
}

fn call(method: &'static Method, cursor: &mut Cursor<'_>) -> Result<Call, String> {
    let mut arguments = vec![];
    let (mut properties, mut body) = (vec![], None);
    while !cursor.is_at_end() {
        let name = cursor.word();
        let kind = method.arguments.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind);
        if kind == Some(Kind::Bit) {
            arguments.push((name.to_owned(), Argument::Bit(true)));
            continue;
        }
        if !cursor.take("=") {
            return Err(format!("{} has no argument '{name}'", method.name));
        }
        let argument = match (kind, name) {
            (None, "properties") if method.has_content => {
                properties = cursor.table()?;
                continue;
            }
            (None, "body") if method.has_content => {
                body = Some(cursor.text()?);
                continue;
            }
            (None, "body_of") if method.has_content => {
                body = Some(vec![b'x'; number(cursor)? as usize]);
                continue;
            }
            (Some(Kind::ShortText | Kind::LongText), _) => Argument::Text(cursor.text()?),
            (Some(Kind::Table), _) => Argument::Table(cursor.table()?),
            (Some(_), _) => Argument::Number(number(cursor)?),
            (None, _) => return Err(format!("{} has no argument '{name}'", method.name)),
        };
        arguments.push((name.to_owned(), argument));
    }
    Ok(Call { method, arguments, content: body.map(|body| (properties, body)) })
}

/// Splits words at spaces; a word in single quotes may contain spaces.
fn split_words(text: &str) -> Result<Vec<String>, String> {
    let mut words = vec![];
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (word, after) = match rest.strip_prefix('\'') {
            Some(quoted) => quoted.split_once('\'').ok_or("a quote has no end")?,
            None => rest.split_once(' ').unwrap_or((rest, "")),
        };
        words.push(word.to_owned());
        rest = after.trim_start();
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_is_split_into_scenarios_and_steps() {
        let text = "# what\n== one\nA.1 basic.get queue=\"q\"\n\n== two\nsleep 5\n";
        let scenarios = scenarios(text).expect("is one");
        assert_eq!(scenarios.len(), 2);
        assert_eq!(scenarios[0].steps, [(3, "A.1 basic.get queue=\"q\"".to_owned())]);
        assert!(super::scenarios("sleep 5\n").is_err());
    }

    #[test]
    fn step_is_parsed_or_rejected() {
        for right in [
            "A.1 queue.declare queue=\"q\" durable arguments={x-max-length: 5}",
            "B.2 basic.publish routing_key=\"q\" mandatory properties={priority: 5} body=\"x\"",
            "A.1 wait basic.deliver 3",
            "A raw \"AMQP\" hex 00 00 09 01",
            "A.0 frame 8 hex 00",
            "until \"message_count=1\" A.1 queue.declare queue=\"q\" passive",
            "admin policy / name '^q$' queues '{\"max-length\": 1}'",
            "A open plain channel_max=5",
        ] {
            assert!(Step::parse(right).is_ok(), "{right}: {:?}", Step::parse(right));
        }
        for wrong in [
            "A.1 queue.declare que=\"q\"",
            "A.1 queue.declare queue",
            "a.1 basic.ack",
            "A.1 basic.acc",
            "A.1 wait basic.deliver x",
            "A.1 basic.ack delivery_tag=1 \"\"",
        ] {
            assert!(Step::parse(wrong).is_err(), "{wrong}");
        }
    }
}
