//! Golden bytes of the index's formats, so that no format changes by accident (ADR 0004), and
//! inconsistent rewritten segments with right checksums.

use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;

use base::checksum::crc32c;
use bytes::Bytes;

use crate::address::Address;
use crate::index::addresses::AddressList;
use crate::index::blocks::{self, BlockWriter};
use crate::index::files::{FileKind, Files};
use crate::index::sidecar::Sidecar;
use crate::index::table::RunTable;
use world::{Disk, SimulatedDisk, disk};

const SEGMENT: u32 = 7;
const GENERATION: u32 = 2;

fn address(position: u32, base_offset: u64, shared: bool) -> Address {
    let (len, span) = (3, 2);
    let max_timestamp = 0x0102_0304;
    Address { segment: SEGMENT, position, len, span, base_offset, max_timestamp, shared }
}

/// Decodes hexadecimal digits, grouped by the fields of the format.
fn hex(digits: &str) -> Vec<u8> {
    let digits: Vec<u8> = digits.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

/// Appends the checksum of all bytes from `from` on.
fn seal(bytes: &mut Vec<u8>, from: usize) {
    let crc = crc32c(&bytes[from..]);
    bytes.extend_from_slice(&crc.to_le_bytes());
}

struct Folder {
    disk: SimulatedDisk,
    files: Files,
}

impl Folder {
    fn new() -> Self {
        let disk = SimulatedDisk::new();
        disk.create_dir(Path::new("/j")).unwrap();
        let files = Files::new(Arc::new(disk.clone()), Path::new("/j"));
        Self { disk, files }
    }

    fn write(&self, bytes: &[u8]) {
        let mut draft = self.files.begin(FileKind::Segment, SEGMENT, GENERATION).unwrap();
        draft.append(&mut [IoSlice::new(bytes)]).unwrap();
        draft.publish().unwrap();
    }

    fn read(&self) -> Vec<u8> {
        let path = self.files.path(FileKind::Segment, SEGMENT, GENERATION);
        disk::read_whole(&self.disk, &path).unwrap()
    }

    fn scan(&self) -> io::Result<Vec<(u64, Address)>> {
        let path = self.files.path(FileKind::Segment, SEGMENT, GENERATION);
        let file = self.disk.open(&path, false)?;
        let mut found = Vec::new();
        let mut note = |stream, address| found.push((stream, address));
        blocks::scan(&*file, SEGMENT, GENERATION, &mut note)?;
        Ok(found)
    }
}

/// A rewritten segment with a batch of stream 5 and one shared by streams 5 and 6.
fn rewritten() -> Folder {
    let folder = Folder::new();
    let draft = folder.files.begin(FileKind::Segment, SEGMENT, GENERATION).unwrap();
    let mut writer = BlockWriter::new(draft, SEGMENT, GENERATION, Some((16, 17))).unwrap();
    writer.begin_stream(5).unwrap();
    writer.push(address(600, 10, false), Bytes::from_static(b"one")).unwrap();
    writer.push(address(700, 12, true), Bytes::from_static(b"two")).unwrap();
    writer.begin_stream(6).unwrap();
    assert!(writer.push_shared(address(700, 90, true)).unwrap());
    let (draft, _) = writer.finish().unwrap();
    draft.publish().unwrap();
    folder
}

/// Position of the second block of [`rewritten`], and of its descriptor.
const SECOND_BLOCK: usize = 48 + 32 + 2 * 32 + 6;
const SECOND_DESCRIPTOR: usize = SECOND_BLOCK + 32;

#[test]
fn rewritten_segment_has_golden_bytes() {
    let mut wanted = hex("50525257 02000000 07000000 02000000 1000000000000000 1100000000000000 \
         000000000000000000000000");
    seal(&mut wanted, 0);
    let (one, two) = (crc32c(b"one").to_le_bytes(), crc32c(b"two").to_le_bytes());
    let mut table = hex("0a00000000000000 0403020100000000 02000000 03000000");
    table.extend_from_slice(&one);
    table.extend(hex("00000000 0c00000000000000 0403020100000000 02000000 03000080"));
    table.extend_from_slice(&two);
    table.extend(hex("00000000"));
    let mut push_block = |start: &str, table: &[u8], bodies: &[u8]| {
        let begun = wanted.len();
        wanted.extend(hex(start));
        wanted.extend_from_slice(&crc32c(table).to_le_bytes());
        seal(&mut wanted, begun);
        wanted.extend_from_slice(table);
        wanted.extend_from_slice(bodies);
    };
    push_block("5052424b 02000000 0500000000000000 0600000000000000", &table, b"onetwo");
    // The second batch of the first block begins at 48 + 32 + 2 * 32 + 3 = 147.
    let mut table = hex("5a00000000000000 0403020100000000 02000000 03000080");
    table.extend_from_slice(&two);
    table.extend(hex("93000000"));
    push_block("5052424b 01000000 0600000000000000 0000000000000000", &table, b"");
    let begun = wanted.len();
    wanted.extend(hex("5052454e 02000000 0300000000000000 0600000000000000 00000000"));
    seal(&mut wanted, begun);
    assert_eq!(rewritten().read(), wanted);
}

#[test]
fn scan_of_a_rewritten_segment_finds_the_written_batches() {
    let expected =
        [(5, address(144, 10, false)), (5, address(147, 12, true)), (6, address(147, 90, true))];
    assert_eq!(rewritten().scan().unwrap(), expected);
}

/// [`rewritten`] with its last descriptor changed and every checksum recomputed.
fn with_last_descriptor(change: impl FnOnce(&mut [u8])) -> Folder {
    let folder = rewritten();
    let mut bytes = folder.read();
    change(&mut bytes[SECOND_DESCRIPTOR..SECOND_DESCRIPTOR + 32]);
    let table = crc32c(&bytes[SECOND_DESCRIPTOR..SECOND_DESCRIPTOR + 32]);
    bytes[SECOND_BLOCK + 24..SECOND_BLOCK + 28].copy_from_slice(&table.to_le_bytes());
    let header = crc32c(&bytes[SECOND_BLOCK..SECOND_BLOCK + 28]);
    bytes[SECOND_BLOCK + 28..SECOND_BLOCK + 32].copy_from_slice(&header.to_le_bytes());
    let changed = Folder::new();
    changed.write(&bytes);
    drop(folder);
    changed
}

#[test]
fn place_outside_of_earlier_blocks_is_refused_despite_valid_checksums() {
    let place = |place: u32| {
        with_last_descriptor(|descriptor| {
            descriptor[28..].copy_from_slice(&place.to_le_bytes());
        })
        .scan()
    };
    assert!(place(147).is_ok(), "as it was written");
    let last = SECOND_BLOCK as u32 - 3;
    assert!(place(last).is_ok(), "ends where its own block begins");
    for nonsense in [1, 47, last + 1, SECOND_BLOCK as u32, 1 << 20, u32::MAX - 1, u32::MAX] {
        let refused = place(nonsense).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidData, "{nonsense}: {refused}");
    }
}

#[test]
fn only_a_shared_batch_may_refer_to_an_earlier_block() {
    let unshared = with_last_descriptor(|descriptor| descriptor[23] &= 0x7f).scan();
    assert_eq!(unshared.unwrap_err().kind(), io::ErrorKind::InvalidData);
}

#[test]
fn overflowing_offsets_and_lengths_are_refused_despite_valid_checksums() {
    let offset = with_last_descriptor(|descriptor| descriptor[..8].fill(0xff)).scan();
    assert_eq!(offset.unwrap_err().kind(), io::ErrorKind::InvalidData);
    let len = with_last_descriptor(|descriptor| descriptor[20..24].fill(0xff)).scan();
    assert_eq!(len.unwrap_err().kind(), io::ErrorKind::InvalidData);
    let filled = with_last_descriptor(|descriptor| descriptor[28..].fill(0)).scan();
    assert!(filled.is_err(), "a batch is said to follow, and does not");
}

#[test]
fn sidecar_has_golden_bytes() {
    let one: AddressList = [address(600, 10, false), address(700, 12, true)].into_iter().collect();
    let two: AddressList = [address(700, 90, true)].into_iter().collect();
    let streams = [(5, &one), (6, &two)];
    let sidecar = Sidecar::build(SEGMENT, GENERATION, Some((16, 17)), streams.into_iter());
    let content = hex("0500000000000000 02000000 0600000000000000 03000000 \
         58020000 03000000 02000000 0a00000000000000 0403020100000000 \
         bc020000 03000080 02000000 0c00000000000000 0403020100000000 \
         bc020000 03000080 02000000 5a00000000000000 0403020100000000");
    let mut wanted = hex("50524958 02000000 07000000 02000000 02000000 03000000 \
         1000000000000000 1100000000000000");
    wanted.extend_from_slice(&crc32c(&content).to_le_bytes());
    seal(&mut wanted, 0);
    wanted.extend(content);
    assert_eq!(sidecar.as_bytes(), wanted);
}

#[test]
fn run_table_has_golden_bytes() {
    let mut table = RunTable::default();
    table.accept(16, 5, address(600, 10, false));
    table.accept(17, 5, address(700, 12, true));
    table.accept(17, 6, address(700, 90, true));
    table.refuse(18, 6, address(800, 92, false));
    table.punch(5, 11, 12);
    let mut wanted = hex(
        // Undecided from index 18; one segment: 7, generation 1, open, no sizes yet.
        "50524954 03000000 12 01 07 01 00 00 00 \
         01 a006 00 11 01 01 ffffffffffffffffff01 09 \
         02 05 02 d804 06 02 0a 888c9010 64 07 02 00 00 \
         01 01 bc05 07 02 5a 888c9010 \
         02 05 01 07 0a 04 06 888c9010 01 01 07 5a 02 03 888c9010 \
         00 01 05 01 0b 01",
    );
    seal(&mut wanted, 0);
    assert_eq!(table.encode(), wanted);
}
