//! The coordinator's connection to one agent.

use std::time::Duration;

use load::clock::Clock;
use load::{Gone, Report};
use results::{Agent, Host};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::assignment::Assignment;
use crate::offset::{self, Bound, PROBES, Probe};
use crate::server::CONNECT_MAX;
use crate::wire::{
    FRAME_BYTES_MAX, Farewell, Hello, Line, PROTOCOL, Reply, Request, STRANGER_BYTES_MAX, VERSION,
    Welcome, WireError,
};

const REACH_MAX: Duration = Duration::from_secs(5);
/// A fully loaded agent still replies within this time.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// A broken server may delay the close of senders and receivers.
const END_MAX: Duration = Duration::from_secs(60);
/// Time limit of the call that starts the senders.
pub(crate) const START_MAX: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct Link {
    /// The agent's entry in the result.
    pub(crate) agent: Agent,
    line: Line,
    ahead_ns: i64,
    /// Error bound of its clock after correction by `ahead_ns`.
    bound: Bound,
    /// The agent is lost, and gets no more requests.
    gone: bool,
}

impl Link {
    /// Reaches the agent and reads its clock.
    pub(crate) async fn open(address: &str, token: Option<&str>) -> Result<Self, Gone> {
        let gone = |why: String| Gone { agent: address.to_owned(), why };
        let reached = timeout(REACH_MAX, TcpStream::connect(address)).await;
        let reached = match reached {
            Ok(Ok(stream)) => Line::new(stream),
            Ok(Err(error)) => Err(WireError::Io(error)),
            Err(_) => Err(WireError::Silent(REACH_MAX)),
        };
        let mut line = reached.map_err(|why| gone(format!("cannot be reached: {why}")))?;
        let host = greet(&mut line, token).await.map_err(gone)?;
        let nothing = Probe { asked_ns: 0, theirs_ns: 0, answered_ns: 0 };
        let agent = Agent { address: address.to_owned(), host, ..Agent::default() };
        let bound = Bound::new(nothing);
        let mut link = Self { agent, line, ahead_ns: 0, bound, gone: false };
        let best = link.probe().await?;
        (link.agent.clock, link.ahead_ns) = (offset::offset(best), best.ahead_ns());
        link.bound = Bound::new(best);
        Ok(link)
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone
    }

    pub(crate) fn bound(&self) -> Bound {
        self.bound
    }

    pub(crate) fn ahead_ns(&self) -> i64 {
        self.ahead_ns
    }

    async fn call(
        &mut self,
        request: &Request,
        within: Duration,
    ) -> Result<(Reply, Vec<u8>), Gone> {
        let said = self.line.send(request, &[], ANSWER_MAX).await;
        let heard = match said {
            Ok(()) => self.line.receive(FRAME_BYTES_MAX, within).await,
            Err(why) => Err(why),
        };
        match heard {
            Ok((Reply::Failed { why }, _)) => Err(self.lose(why)),
            Ok(heard) => Ok(heard),
            Err(why) => Err(self.lose(why.to_string())),
        }
    }

    pub(crate) fn lose(&mut self, why: String) -> Gone {
        self.gone = true;
        Gone { agent: self.agent.address.clone(), why }
    }

    fn nonsense(&mut self) -> Gone {
        self.lose("it answers something else than was asked".to_owned())
    }

    async fn done(&mut self, request: &Request, within: Duration) -> Result<(), Gone> {
        match self.call(request, within).await? {
            (Reply::Done, _) => Ok(()),
            _ => Err(self.nonsense()),
        }
    }

    async fn probe(&mut self) -> Result<Probe, Gone> {
        let clock = Clock::default();
        let mut probes = Vec::with_capacity(PROBES);
        for _ in 0..PROBES {
            let asked_ns = clock.now_ns();
            let asked = self.call(&Request::Clock, ANSWER_MAX).await?;
            let (Reply::Clock { now_ns }, _) = asked else { return Err(self.nonsense()) };
            probes.push(Probe { asked_ns, theirs_ns: now_ns, answered_ns: clock.now_ns() });
        }
        offset::best(&probes).ok_or_else(|| self.nonsense())
    }

    pub(crate) async fn prepare(&mut self, assignment: Assignment) -> Result<(), Gone> {
        self.agent.senders = assignment.share.senders.len() as u32;
        self.agent.receivers = assignment.share.receivers.len() as u32;
        // The agent's own limit expires first, because its error is more specific.
        let within = CONNECT_MAX + ANSWER_MAX;
        self.done(&Request::Prepare(Box::new(assignment)), within).await
    }

    pub(crate) async fn start(&mut self, at_ns: u64) -> Result<(), Gone> {
        self.done(&Request::Start { at_ns }, START_MAX).await
    }

    /// Fetches the events since the last look, in as many reports as needed.
    pub(crate) async fn look(&mut self, latencies: bool) -> Result<Vec<Report>, Gone> {
        let mut reports = vec![self.look_once(latencies).await?];
        while reports.last().is_some_and(|report| report.more) {
            reports.push(self.look_once(false).await?);
        }
        Ok(reports)
    }

    async fn look_once(&mut self, latencies: bool) -> Result<Report, Gone> {
        let asked_ns = Clock::default().now_ns();
        let asked = self.call(&Request::Look { latencies }, ANSWER_MAX).await?;
        let (Reply::Report(mut report), journal) = asked else { return Err(self.nonsense()) };
        if !report.more {
            let answered_ns = Clock::default().now_ns();
            self.bound.learn(Probe { asked_ns, theirs_ns: report.until_ns, answered_ns });
        }
        report.journal = journal;
        Ok(*report)
    }

    pub(crate) async fn command(&mut self, request: &Request) -> Result<(), Gone> {
        self.done(request, ANSWER_MAX).await
    }

    /// Ends the agent's work.
    pub(crate) async fn end(&mut self, at_once: bool) -> Result<Farewell, Gone> {
        match self.call(&Request::End { at_once }, END_MAX).await? {
            (Reply::Ended(farewell), _) => Ok(farewell),
            _ => Err(self.nonsense()),
        }
    }

    /// Reads the agent's clock once more.
    pub(crate) async fn clock_at_end(&mut self) -> Result<(), Gone> {
        let best = self.probe().await?;
        self.agent.clock_at_end = Some(offset::offset(best));
        Ok(())
    }
}

/// Introduces the coordinator. Returns the agent's host, or the reason for its refusal.
async fn greet(line: &mut Line, token: Option<&str>) -> Result<Host, String> {
    let hello =
        Hello { protocol: PROTOCOL, version: VERSION.to_owned(), token: token.map(str::to_owned) };
    let welcome = match line.send(&hello, &[], ANSWER_MAX).await {
        Ok(()) => line.receive(STRANGER_BYTES_MAX, ANSWER_MAX).await,
        Err(why) => Err(why),
    };
    match welcome {
        Ok((Welcome::Come { protocol: PROTOCOL, version, host }, _)) if version == VERSION => {
            Ok(*host)
        }
        Ok((Welcome::Come { protocol, version, .. }, _)) => Err(format!(
            "it is postroad-bench {version} (protocol {protocol}), this is {VERSION} (protocol \
             {PROTOCOL}): all machines need the same"
        )),
        Ok((Welcome::Refused { why }, _)) => Err(why),
        Err(WireError::Malformed | WireError::TooLong(_)) => {
            Err("what answers there is no agent".to_owned())
        }
        Err(WireError::Closed) => Err("it hangs up: no agent, or one without room".to_owned()),
        Err(why) => Err(why.to_string()),
    }
}
