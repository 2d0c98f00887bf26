//! Detects programs that the kernel starts through a loader (`elf(5)`).

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Large enough for the header and all program headers of the expected programs.
const BEGINNING: usize = 4096;
const PT_INTERP: u32 = 3;

/// Whether the file names a loader. Libraries may name one too, but are not started.
pub(super) fn is_program(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if name.ends_with(".so") || name.contains(".so.") {
        return false;
    }
    let mut beginning = Vec::with_capacity(BEGINNING);
    let read =
        File::open(path).and_then(|file| file.take(BEGINNING as u64).read_to_end(&mut beginning));
    read.is_ok() && names_a_loader(&beginning).unwrap_or(false)
}

/// Parses a 64-bit little-endian file.
fn names_a_loader(file: &[u8]) -> Option<bool> {
    if file.get(..6)? != b"\x7fELF\x02\x01" {
        return Some(false);
    }
    let at = usize::try_from(u64::from_le_bytes(file.get(32..40)?.try_into().ok()?)).ok()?;
    let size = u16::from_le_bytes(file.get(54..56)?.try_into().ok()?) as usize;
    let count = u16::from_le_bytes(file.get(56..58)?.try_into().ok()?) as usize;
    for header in 0..count {
        let start = at.checked_add(header * size)?;
        let kind = u32::from_le_bytes(file.get(start..start + 4)?.try_into().ok()?);
        if kind == PT_INTERP {
            return Some(true);
        }
    }
    Some(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_is_distinguished_from_script_and_library() {
        assert!(is_program(&std::env::current_exe().expect("this is a program")));
        assert!(!is_program(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))));
        assert!(!is_program(Path::new("/nothing/here")));
    }

    #[test]
    fn truncated_file_is_no_program() {
        assert_eq!(names_a_loader(b"\x7fELF\x02\x01\x01"), None);
    }
}
