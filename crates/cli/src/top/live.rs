//! The live view: one task handles keys, looks and the terminal in turn.
//!
//! The terminal's screen is switched meanwhile, and restored however the view ends: by a key, an error, a signal or a
//! panic.

use std::future::{Future, pending};
use std::io;
use std::pin::Pin;
use std::time::Duration;

use client::Client;
use crossterm::event::{Event, EventStream};
use futures_util::StreamExt;
use operations::overview::{Overview, TableQuery};
use operations::time::human_duration;
use ratatui::DefaultTerminal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;
use world::Instant;

use super::view::{KeyEffect, View};
use super::{FIRST_AFTER, ask, screen};
use crate::client_options::ClientOptions;
use crate::command_error::CommandError;

/// After this time the connection counts as dead, and a new one is made.
const ANSWERED_WITHIN: Duration = Duration::from_secs(20);

/// The node to query, and how to reconnect to it.
struct Source {
    options: ClientOptions,
    /// `None`: the last connection failed.
    client: Option<Client>,
}

impl Source {
    async fn ask(&mut self, look: TableQuery) -> Result<Overview, CommandError> {
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

/// A request in flight, with its source.
type PendingOverview = Pin<Box<dyn Future<Output = (Source, Result<Overview, CommandError>)>>>;

fn asking(mut source: Source, look: TableQuery) -> PendingOverview {
    Box::pin(async move {
        let answer = source.ask(look).await;
        (source, answer)
    })
}

pub(super) async fn run(
    options: ClientOptions,
    client: Client,
    look: TableQuery,
    every: Duration,
) -> Result<(), CommandError> {
    let mut source = Source { options, client: Some(client) };
    // If the first request fails, the error is printed on the normal screen.
    let first = source.ask(look.clone()).await?;
    let mut view = View::new(look, every);
    view.overview = Some(first);
    let terminal = ratatui::try_init().map_err(terminal_error)?;
    let restored = TerminalGuard;
    let outcome = watch(source, view, terminal).await;
    drop(restored);
    outcome
}

/// Restores the terminal when it is dropped.
struct TerminalGuard;

impl Drop for TerminalGuard {
    fn drop(&mut self) {
        // If the terminal is closed, the error has no reader.
        let _ = ratatui::try_restore();
    }
}

fn terminal_error(error: io::Error) -> CommandError {
    CommandError::server(format!("the terminal cannot be used: {error}"))
}

async fn watch(
    source: Source,
    mut view: View,
    mut terminal: DefaultTerminal,
) -> Result<(), CommandError> {
    let mut events = EventStream::new();
    let told = |kind| signal(kind).map_err(terminal_error);
    let (mut terminate, mut hangup) = (told(SignalKind::terminate())?, told(SignalKind::hangup())?);
    let mut idle = Some(source);
    let mut under_way: Option<PendingOverview> = None;
    // The first look has no rates.
    let mut next = Instant::now() + view.every.min(FIRST_AFTER);
    loop {
        terminal.draw(|frame| screen::draw(frame, &mut view)).map_err(terminal_error)?;
        let is_due = idle.is_some() && (!view.is_paused || view.is_stale);
        let answered = async {
            match &mut under_way {
                Some(asking) => asking.await,
                None => pending().await,
            }
        };
        let then = tokio::select! {
            biased;
            _ = terminate.recv() => KeyEffect::Quit,
            _ = hangup.recv() => KeyEffect::Quit,
            event = events.next() => match event {
                Some(Ok(Event::Key(key))) => view.key(key),
                // Drawing detects a new size.
                Some(Ok(_)) => KeyEffect::Draw,
                Some(Err(error)) => return Err(terminal_error(error)),
                None => KeyEffect::Quit,
            },
            (source, answer) = answered => {
                (under_way, idle) = (None, Some(source));
                view.take(answer)?;
                KeyEffect::Draw
            }
            () = tokio::time::sleep_until(next), if is_due => {
                view.is_stale = false;
                next = Instant::now() + view.every;
                under_way = idle.take().map(|source| asking(source, view.look()));
                KeyEffect::Draw
            }
        };
        match then {
            KeyEffect::Quit => return Ok(()),
            KeyEffect::Ask => {
                // At once, or as soon as the pending request completes.
                view.is_stale = true;
                next = Instant::now();
            }
            KeyEffect::Draw | KeyEffect::Nothing => {}
        }
    }
}
