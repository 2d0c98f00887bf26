//! The live view at work: keys, looks and the terminal, one after the other, in one task.
//!
//! The terminal is another one while this runs, and is put back whatever ends it: a key, an error, a signal, a panic.

use std::future::{Future, pending};
use std::io;
use std::pin::Pin;
use std::time::Duration;

use client::Client;
use crossterm::event::{Event, EventStream};
use futures_util::StreamExt;
use operations::overview::{Look, Overview};
use ratatui::DefaultTerminal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;
use world::Instant;

use super::view::{Then, View};
use super::{FIRST_AFTER, ask, screen};
use crate::commands::{ClientOptions, CommandError};
use crate::time::human_duration;

/// Afterwards the connection is taken for dead, and another one is made.
const ANSWERED_WITHIN: Duration = Duration::from_secs(20);

/// Whom to ask, and how to get there anew.
struct Source {
    options: ClientOptions,
    /// `None`: the last one could not be asked any more.
    client: Option<Client>,
}

impl Source {
    async fn ask(&mut self, look: Look) -> Result<Overview, CommandError> {
        let client = match self.client.take() {
            Some(client) => client,
            None => self.options.connect().await?,
        };
        let Ok(answer) = timeout(ANSWERED_WITHIN, ask(&client, look)).await else {
            let waited = human_duration(ANSWERED_WITHIN);
            return Err(CommandError::server(format!("the node did not answer within {waited}")));
        };
        let overview = answer?;
        self.client = Some(client);
        Ok(overview)
    }
}

/// A question under way, with whom it is asked.
type Asking = Pin<Box<dyn Future<Output = (Source, Result<Overview, CommandError>)>>>;

fn asking(mut source: Source, look: Look) -> Asking {
    Box::pin(async move {
        let answer = source.ask(look).await;
        (source, answer)
    })
}

pub(super) async fn run(
    options: ClientOptions,
    client: Client,
    look: Look,
    every: Duration,
) -> Result<(), CommandError> {
    let mut source = Source { options, client: Some(client) };
    // What cannot be asked at all is said on the terminal as it was.
    let first = source.ask(look.clone()).await?;
    let mut view = View::new(look, every);
    view.overview = Some(first);
    let terminal = ratatui::try_init().map_err(of_terminal)?;
    let restored = Restored;
    let outcome = watch(source, view, terminal).await;
    drop(restored);
    outcome
}

/// Puts the terminal back when it is dropped.
struct Restored;

impl Drop for Restored {
    fn drop(&mut self) {
        // Whoever closed it does not see what is left.
        let _ = ratatui::try_restore();
    }
}

fn of_terminal(error: io::Error) -> CommandError {
    CommandError::server(format!("the terminal cannot be used: {error}"))
}

async fn watch(
    source: Source,
    mut view: View,
    mut terminal: DefaultTerminal,
) -> Result<(), CommandError> {
    let mut events = EventStream::new();
    let told = |kind| signal(kind).map_err(of_terminal);
    let (mut terminate, mut hangup) = (told(SignalKind::terminate())?, told(SignalKind::hangup())?);
    let mut idle = Some(source);
    let mut under_way: Option<Asking> = None;
    // What was asked first has no rates.
    let mut next = Instant::now() + view.every.min(FIRST_AFTER);
    loop {
        terminal.draw(|frame| screen::draw(frame, &mut view)).map_err(of_terminal)?;
        let is_due = idle.is_some() && (!view.is_paused || view.is_stale);
        let answered = async {
            match &mut under_way {
                Some(asking) => asking.await,
                None => pending().await,
            }
        };
        let then = tokio::select! {
            biased;
            _ = terminate.recv() => Then::Quit,
            _ = hangup.recv() => Then::Quit,
            event = events.next() => match event {
                Some(Ok(Event::Key(key))) => view.key(key),
                // Another size is found out by drawing.
                Some(Ok(_)) => Then::Draw,
                Some(Err(error)) => return Err(of_terminal(error)),
                None => Then::Quit,
            },
            (source, answer) = answered => {
                (under_way, idle) = (None, Some(source));
                view.take(answer)?;
                Then::Draw
            }
            () = tokio::time::sleep_until(next), if is_due => {
                view.is_stale = false;
                next = Instant::now() + view.every;
                under_way = idle.take().map(|source| asking(source, view.look()));
                Then::Draw
            }
        };
        match then {
            Then::Quit => return Ok(()),
            Then::Ask => {
                // At once, or as soon as what was asked before is answered.
                view.is_stale = true;
                next = Instant::now();
            }
            Then::Draw | Then::Nothing => {}
        }
    }
}
