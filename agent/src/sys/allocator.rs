//! How the C library keeps memory that was given back.

#![cfg_attr(target_env = "gnu", expect(unsafe_code, reason = "the settings have no safe wrapper"))]

/// What is this large comes from the kernel by itself, and goes back to it when it is freed: the text of a scrape, a
/// snapshot that was replaced. glibc's own limit grows with what it has seen, so that megabytes of a text would stay.
#[cfg(target_env = "gnu")]
const LARGE: libc::c_int = 128 << 10;
/// Threads share this many pools. glibc's own number is eight for each processor: what one thread gave back is of no
/// use to the others then, and every thread that ever answered keeps its own.
#[cfg(target_env = "gnu")]
const POOLS: libc::c_int = 2;

/// Has little kept. To be called before there are threads.
#[cfg(target_env = "gnu")]
pub fn keep_little() {
    // SAFETY: mallopt takes two integers and changes settings of the allocator, under its own lock.
    let set = |name, value| unsafe { libc::mallopt(name, value) } == 1;
    let all = [(libc::M_ARENA_MAX, POOLS), (libc::M_MMAP_THRESHOLD, LARGE), (libc::M_TRIM_THRESHOLD, LARGE)];
    for (name, value) in all {
        if !set(name, value) {
            tracing::debug!(name, value, "Setting of the allocator not taken");
        }
    }
}

/// Gives back whole pages that are free, wherever they lie. After work that needed much for a moment: what is kept of
/// it lies in between, so that nothing would go back by itself. Takes about a millisecond for ten megabytes.
#[cfg(target_env = "gnu")]
pub fn give_back() {
    // SAFETY: malloc_trim takes an integer and works under the allocator's own locks.
    unsafe { libc::malloc_trim(0) };
}

/// Other C libraries keep little anyway, or cannot be asked.
#[cfg(not(target_env = "gnu"))]
pub const fn keep_little() {}

/// The same.
#[cfg(not(target_env = "gnu"))]
pub const fn give_back() {}
