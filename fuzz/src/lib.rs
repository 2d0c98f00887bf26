//! What all targets share: a bound on the memory that an input may take.
//!
//! The fuzzer's own limit (`-rss_limit_mb`) is one of the process and is looked at once a second. Here each input is
//! held to a multiple of its own length, so that a short one that has much reserved is found.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts what is held. It is Rust's memory alone: that of C libraries is the fuzzer's to watch.
struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn add(bytes: usize) {
    let held = HELD.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK.fetch_max(held, Ordering::Relaxed);
}

// SAFETY: every call goes to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
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
static COUNTING: Counting = Counting;

/// Tries an input, which may take `base` bytes of memory at a time and `factor` for each of its own.
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
