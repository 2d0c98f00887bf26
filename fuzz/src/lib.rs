//! Common part of all targets: a memory bound for each input.
//!
//! The fuzzer's own limit (`-rss_limit_mb`) applies to the process and is checked once a second.
//! Here each input is limited to a multiple of its own length, so that a short input that reserves
//! much memory is found.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts allocated bytes. It covers Rust's memory only: the fuzzer watches that of C libraries.
struct CountingAllocator;

static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn add(bytes: usize) {
    let held = HELD.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK.fetch_max(held, Ordering::Relaxed);
}

// SAFETY: every call goes to the system's allocator as it is.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        add(size);
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static COUNTING: CountingAllocator = CountingAllocator;

/// Runs an input, which may use `base` bytes of memory at a time, and `factor` more for each of its
/// own.
pub fn bounded(data: &[u8], base: usize, factor: usize, check: fn(&[u8])) {
    let before = HELD.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    check(data);
    let taken = PEAK.load(Ordering::Relaxed).saturating_sub(before);
    let most = base + factor * data.len();
    assert!(taken <= most, "{} bytes take {taken} bytes of memory, more than {most}", data.len());
}

/// The `main` of a target.
#[macro_export]
macro_rules! target {
    ($check:path, $base:expr, $factor:expr) => {
        libfuzzer_sys::fuzz_target!(|data: &[u8]| {
            $crate::bounded(data, $base, $factor, $check);
        });
    };
}
