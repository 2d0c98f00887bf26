//! The subject of an entry of the wheel, in 32 bits.

use base::limits::PARTITIONS_PER_TOPIC_MAX;

const PARTITION_BITS: u32 = 20;
const EPOCH_BITS: u32 = 11;

const _: () = assert!(PARTITIONS_PER_TOPIC_MAX <= 1 << PARTITION_BITS);
const _: () = assert!(PARTITION_BITS + EPOCH_BITS + 1 == u32::BITS);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WheelSubject {
    pub(crate) partition: u32,
    pub(crate) kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// A delayed record of the partition, valid while the partition's epoch is the same.
    Record { epoch: u32 },
    /// The partition's head expires.
    Head,
}

impl WheelSubject {
    pub(crate) fn record(partition: u32, epoch: u32) -> Self {
        Self { partition, kind: Kind::Record { epoch } }
    }

    pub(crate) fn head(partition: u32) -> Self {
        Self { partition, kind: Kind::Head }
    }

    /// The last epoch is followed by 0: then the wheel must have no entry of the partition left.
    pub(crate) fn next_epoch(epoch: u32) -> u32 {
        (epoch + 1) % (1 << EPOCH_BITS)
    }

    pub(crate) fn pack(self) -> u32 {
        match self.kind {
            Kind::Record { epoch } => self.partition << (EPOCH_BITS + 1) | epoch << 1,
            Kind::Head => self.partition << (EPOCH_BITS + 1) | 1,
        }
    }

    pub(crate) fn unpack(place: u32) -> Self {
        let partition = place >> (EPOCH_BITS + 1);
        if place & 1 == 1 {
            return Self::head(partition);
        }
        Self::record(partition, place >> 1 & ((1 << EPOCH_BITS) - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_place_is_unpacked_unchanged() {
        for partition in [0, 1, PARTITIONS_PER_TOPIC_MAX - 1] {
            for place in [WheelSubject::head(partition), WheelSubject::record(partition, 2_047)] {
                assert_eq!(WheelSubject::unpack(place.pack()), place);
            }
        }
        assert_eq!(WheelSubject::next_epoch(2_047), 0);
    }
}
