//! Query parameters and bounds that several paths share.

use std::time::Duration;

use serde::Deserialize;
use utoipa::IntoParams;

use crate::limits::HTTP_WAIT_MAX;
use crate::problem::{Kind, Problem};

#[derive(Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::v1) struct DryRunQuery {
    /// Only say what would be done.
    pub(in crate::v1) dry_run: bool,
}

pub(in crate::v1) fn within(name: &str, said: usize, most: usize) -> Result<(), Problem> {
    match (1..=most).contains(&said) {
        true => Ok(()),
        false => {
            let detail = format!("{name} is 1 to {most}, not {said}");
            Err(Problem::limited(Kind::BadRequest, detail, most as u64))
        }
    }
}

pub(in crate::v1) fn waiting(wait_ms: u64) -> Result<Duration, Problem> {
    let (wait, most) = (Duration::from_millis(wait_ms), HTTP_WAIT_MAX.as_millis() as u64);
    match wait <= HTTP_WAIT_MAX {
        true => Ok(wait),
        false => {
            let detail = format!("wait_ms is at most {most}, not {wait_ms}");
            Err(Problem::limited(Kind::BadRequest, detail, most))
        }
    }
}
