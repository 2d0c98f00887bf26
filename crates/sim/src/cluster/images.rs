//! Images of the disk of a running node, in profile `images`. The operator takes one, and starts the node from it
//! later, as with snapshots of virtual machines. The other nodes must refuse the node, because it lacks entries
//! that it has acknowledged meanwhile. Its directory is then replaced like a lost one.

use std::path::Path;
use std::time::Duration;

use world::SimulatedDisk;

use super::State;
use super::place::name;

/// Time without a fault after which every member has the later epoch of a node on its disk. Epochs rise once a
/// second, and are sent then.
const EPOCHS_HEARD_WITHIN: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(crate) struct Images {
    /// Whether the profile has them.
    pub(crate) are_taken: bool,
    taken: Option<DiskImage>,
    /// The time of the last fault.
    disturbed_at: Duration,
}

#[derive(Debug)]
struct DiskImage {
    place: usize,
    /// Number of the node that was there.
    node: u32,
    disk: SimulatedDisk,
    at: Duration,
}

impl Images {
    pub(super) fn of(are_taken: bool) -> Self {
        Self { are_taken, ..Self::default() }
    }

    pub(super) fn is_taken(&self) -> bool {
        self.taken.is_some()
    }

    /// A node is down, or a link is cut.
    pub(super) fn disturbed(&mut self, now: Duration) {
        self.disturbed_at = now;
    }
}

impl State {
    /// Takes an image of the disk of a member that runs.
    pub(super) fn take_image(&mut self, place: usize, now: Duration) {
        let here = &self.nodes[place];
        let (Some(node), true) = (here.number, here.broker.is_some() && here.is_member()) else {
            return;
        };
        let disk = SimulatedDisk::unpack(&here.disk.pack(), Path::new("/"));
        self.image.taken = Some(DiskImage { place, node, disk, at: now });
        self.trace.note(format_args!("an image of {}'s disk is taken", name(place)));
    }

    /// The node of the image, once all others must refuse it.
    pub(super) fn image_node(&mut self, now: Duration) -> Option<(usize, u64)> {
        let taken = self.image.taken.as_ref()?;
        let has_trouble = self.nodes.iter().any(|it| {
            it.is_member() && (it.broker.is_none() || it.trouble.is_full || it.trouble.is_slow)
        });
        if has_trouble {
            self.image.disturbed_at = now;
        }
        let calm_since = self.image.disturbed_at.max(taken.at);
        (now >= calm_since + EPOCHS_HEARD_WITHIN).then_some((taken.place, taken.node.into()))
    }

    /// Ends the node, and sets its disk to the image.
    pub(super) fn set_back(&mut self, place: usize) {
        let Some(taken) = self.image.taken.take_if(|it| it.place == place) else { return };
        let here = &mut self.nodes[place];
        here.ended();
        drop(here.disk.killed());
        (here.disk, here.is_set_back) = (taken.disk, true);
        self.trace.note(format_args!("{} is set back to the image of its disk", name(place)));
    }
}
