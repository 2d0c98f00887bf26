//! Limits and waiting time of a share fetch.

use std::time::Duration;

use base::limits::{FETCH_BYTES_MAX, FETCH_WAIT_MAX};
use kafka_protocol::error::ResponseError;

use crate::errors::Fault;
use crate::share::request::ShareFetchRequest;

#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) records_max: u32,
    pub(super) bytes_min: usize,
    pub(super) bytes_max: usize,
    pub(super) wait: Duration,
}

impl Limits {
    pub(super) fn of(message: &ShareFetchRequest) -> Result<Self, Fault> {
        let numbers =
            [message.bytes_max, message.bytes_min, message.records_max, message.wait_max_ms];
        if message.renews && numbers != [0; 4] {
            // KIP-1222.
            return Err(Fault::new(
                ResponseError::InvalidRequest,
                "a fetch that renews leases fetches nothing: its limits must be 0",
            ));
        }
        let at_least_none = |number: i32| usize::try_from(number).unwrap_or(0);
        let bytes_max = at_least_none(message.bytes_max).min(FETCH_BYTES_MAX);
        let wait = Duration::from_millis(at_least_none(message.wait_max_ms) as u64);
        Ok(Self {
            records_max: at_least_none(message.records_max) as u32,
            bytes_min: at_least_none(message.bytes_min).min(bytes_max),
            bytes_max,
            wait: wait.min(FETCH_WAIT_MAX),
        })
    }

    pub(super) fn fetches_nothing(&self) -> bool {
        self.records_max == 0 || self.bytes_max == 0
    }
}
