//! Long work in steps: an answer about a million partitions yields to other requests in between.

/// Counts steps, and gives way to others after so many.
#[derive(Debug)]
pub(crate) struct Pace {
    at_once: u32,
    left: u32,
}

impl Pace {
    pub(crate) const fn new(at_once: u32) -> Self {
        Self { at_once, left: at_once }
    }

    pub(crate) async fn step(&mut self, cost: u32) {
        if self.left < cost {
            self.left = self.at_once;
            tokio::task::yield_now().await;
        } else {
            self.left -= cost;
        }
    }
}
