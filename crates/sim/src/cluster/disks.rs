//! Failing disks: one member's is full for a while, or a write or a sync fails, after which the node ends and is
//! restarted; or several members' are slow for a while. No disk loses synced data, so any number may fail at a
//! time.

use std::path::Path;
use std::time::Duration;

use tokio::time::sleep;
use world::Disk;

use super::Shared;
use super::place::name;
use crate::profile::Files;
use crate::random::Random;

/// Continues until everything is healed.
pub(super) async fn break_disks(shared: Shared, mut random: Random) {
    loop {
        let pause = random.between(500, 6_000);
        sleep(Duration::from_millis(pause)).await;
        if shared.lock().is_healed {
            return;
        }
        let members = shared.members();
        let place = random.of(&members);
        match random.below(6) {
            0 | 1 => fail(&shared, place, &mut random),
            2 | 3 => {
                // Completely full, or nearly.
                let free_bytes = random.of(&[0, 0, 4 << 10, 80 << 10]);
                let lasts = Duration::from_millis(random.of(&[300, 1_500, 6_000]));
                fill(&shared, place, free_bytes, lasts).await;
            }
            _ => slow(&shared, &members, &mut random).await,
        }
    }
}

/// Makes one of the next writes or syncs of some of its files fail.
fn fail(shared: &Shared, place: usize, random: &mut Random) {
    let of = random.of(&[
        Files::Segments,
        Files::Catalog,
        Files::Rows(1),
        Files::Rows(2),
        Files::Rows(3),
    ]);
    let (is_sync, before) = (random.once_in(2), random.below(40));
    let mut state = shared.lock();
    let here = &mut state.nodes[place];
    if here.broker.is_none() {
        return;
    }
    match is_sync {
        true => here.disk.fail_sync(of.path_part(), before),
        false => here.disk.fail_write(of.path_part(), before),
    }
    here.trouble.fails = true;
    let what = if is_sync { "sync" } else { "write" };
    let (name, of) = (name(place), of.path_part());
    state.trace.note(format_args!("{name}: after {before} more a {what} of {of} fails"));
}

/// Leaves this much room on a node's disk, and removes the limit again.
pub(super) async fn fill(shared: &Shared, place: usize, free_bytes: u64, lasts: Duration) {
    {
        let mut state = shared.lock();
        let here = &mut state.nodes[place];
        let Ok(space) = here.disk.space(Path::new("/")) else { return };
        let used_bytes = space.total_bytes - space.free_bytes;
        here.disk.set_capacity(Some(used_bytes + free_bytes));
        (here.trouble.is_full, here.trouble.was_full) = (true, true);
        state.trace.note(format_args!("{}: the disk is full", name(place)));
    }
    sleep(lasts).await;
    let mut state = shared.lock();
    let here = &mut state.nodes[place];
    here.disk.set_capacity(None);
    here.trouble.is_full = false;
    state.trace.note(format_args!("{}: the disk has room", name(place)));
}

/// Makes each disk operation of some members slow. Meanwhile a node transfers its leaderships now and then. In the
/// end the power of some of them fails, with unsynced data.
async fn slow(shared: &Shared, members: &[usize], random: &mut Random) {
    let slow: Vec<usize> = members.iter().copied().filter(|_| random.once_in(2)).collect();
    set_slow(shared, &slow, true);
    let for_ms = random.of(&[300, 1_500, 4_000]);
    let before_ms = random.below(for_ms);
    sleep(Duration::from_millis(before_ms)).await;
    if let Some(broker) = shared.any_broker(random).filter(|_| random.once_in(2)) {
        shared.lock().trace.note(format_args!("node {} hands over", broker.node()));
        broker.hand_over().await;
    }
    sleep(Duration::from_millis(for_ms - before_ms)).await;
    for place in &slow {
        if random.once_in(2) {
            shared.lock().nodes[*place].trouble.lose_power = true;
        }
    }
    set_slow(shared, &slow, false);
}

fn set_slow(shared: &Shared, places: &[usize], is_slow: bool) {
    let mut state = shared.lock();
    for place in places {
        let here = &mut state.nodes[*place];
        here.trouble.is_slow = is_slow;
        here.knowledge.lock().is_slow = is_slow;
        let how = if is_slow { "slow" } else { "fast again" };
        state.trace.note(format_args!("{}: the disk is {how}", name(*place)));
    }
}
