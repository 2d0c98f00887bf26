//! Wall clocks that are set, by up to an hour either way: of one node, or of random nodes, so that the next
//! leader's clock differs from that of the one before.

use std::time::Duration;

use tokio::time::sleep;

use super::Shared;
use super::place::name;
use crate::random::Random;

/// Continues until everything is healed.
pub(super) async fn set_clocks(shared: Shared, mut random: Random) {
    loop {
        // A node may notice only the sum of two steps within one second.
        let pause = random.between(2_200, 7_000);
        sleep(Duration::from_millis(pause)).await;
        let mut state = shared.lock();
        if state.is_healed {
            return;
        }
        let places = state.nodes.len();
        let (one, all) = (random.below(places as u64) as usize, random.once_in(3));
        for place in (0..places).filter(|place| all || *place == one) {
            let by_ms = random.of(&[-3_600_000, -60_000, -1_500, 1_500, 60_000, 3_600_000]);
            state.nodes[place].set_clock(by_ms);
            let name = name(place);
            state.trace.note(format_args!("{name}'s wall clock is set by {by_ms} ms"));
        }
    }
}
