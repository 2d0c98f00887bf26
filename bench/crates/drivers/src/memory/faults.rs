use std::time::Duration;

use bytes::Bytes;
use driver::{Failure, Message, Settings};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Injected faults of the broker.
#[derive(Debug)]
pub(super) struct Faults {
    lose: f64,
    duplicate: f64,
    reorder: f64,
    return_settled: f64,
    damage: f64,
    take_twice: f64,
    lose_dead: f64,
    fail: f64,
    /// Number of messages of a queue that a crash loses: the last confirmed ones.
    pub(super) crash_loses: usize,
    pub(super) latency: Duration,
    random: Mutex<StdRng>,
}

fn probability(settings: &mut Settings, name: &str) -> Result<f64, Failure> {
    let probability = settings.take(name, 0.0)?;
    if (0.0..=1.0).contains(&probability) {
        return Ok(probability);
    }
    Err(Failure::Setting { name: name.into(), why: format!("{probability} is not within 0 and 1") })
}

impl Faults {
    pub(super) fn of(settings: &mut Settings) -> Result<Self, Failure> {
        Ok(Self {
            lose: probability(settings, "lose")?,
            duplicate: probability(settings, "duplicate")?,
            reorder: probability(settings, "reorder")?,
            return_settled: probability(settings, "return-settled")?,
            damage: probability(settings, "damage")?,
            take_twice: probability(settings, "take-twice")?,
            lose_dead: probability(settings, "lose-dead")?,
            fail: probability(settings, "fail")?,
            crash_loses: settings.take("crash-loses", 0)?,
            latency: Duration::from_micros(settings.take("latency-us", 0)?),
            random: Mutex::new(StdRng::seed_from_u64(settings.take("seed", 1)?)),
        })
    }

    fn happens(&self, probability: f64) -> bool {
        probability > 0.0 && self.random.lock().random_bool(probability)
    }

    pub(super) fn lose(&self) -> bool {
        self.happens(self.lose)
    }

    pub(super) fn duplicate(&self) -> bool {
        self.happens(self.duplicate)
    }

    pub(super) fn reorder(&self) -> bool {
        self.happens(self.reorder)
    }

    pub(super) fn return_settled(&self) -> bool {
        self.happens(self.return_settled)
    }

    pub(super) fn take_twice(&self) -> bool {
        self.happens(self.take_twice)
    }

    pub(super) fn lose_dead(&self) -> bool {
        self.happens(self.lose_dead)
    }

    pub(super) fn fail(&self) -> bool {
        self.happens(self.fail)
    }

    /// The message, possibly damaged.
    pub(super) fn damaged(&self, message: Message) -> Message {
        if message.body.is_empty() || !self.happens(self.damage) {
            return message;
        }
        let mut body = message.body.to_vec();
        let place = self.random.lock().random_range(0..body.len());
        body[place] ^= 0x40;
        Message { lane: message.lane, body: Bytes::from(body) }
    }
}
