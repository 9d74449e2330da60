//! Memory for secrets: separate pages between guard pages, locked where the system allows it,
//! excluded from core dumps, and wiped when freed.
//!
//! Invariants: a page that holds a secret holds nothing but secrets. Freed memory is zeroed. If the
//! system cannot lock or map more memory, protection is reduced, but nothing fails. The key
//! schedules of ciphers are in ordinary memory.

use pinstripe_base::sync::lock;
use std::fmt;
use std::ops::Deref;
use std::ptr::{NonNull, null_mut};
use std::sync::Mutex;

use zeroize::Zeroize;

/// The unit of allocation for secrets.
const CELL_BYTES: usize = 32;

/// Bytes that only the owner of this value should see.
pub struct SecretBytes {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a secret owns its cells alone and gives out shared views of bytes that do not change.
unsafe impl Send for SecretBytes {}
// SAFETY: as above.
unsafe impl Sync for SecretBytes {}

impl SecretBytes {
    /// Copies the bytes into protected memory and wipes `bytes`.
    pub fn take(bytes: &mut [u8]) -> Self {
        let start = arena().allocate(bytes.len());
        // SAFETY: the cells are at least this long, writable, and this secret's alone.
        unsafe { start.copy_from_nonoverlapping(NonNull::from(&mut *bytes).cast(), bytes.len()) };
        bytes.zeroize();
        SecretBytes { start, len: bytes.len() }
    }
}

impl Deref for SecretBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the cells hold as many bytes until this is dropped, and nothing changes them
        // meanwhile.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl Clone for SecretBytes {
    fn clone(&self) -> Self {
        let start = arena().allocate(self.len);
        // SAFETY: both have as many bytes, and the new cells are this secret's alone.
        unsafe { start.copy_from_nonoverlapping(self.start, self.len) };
        SecretBytes { start, len: self.len }
    }
}

impl Drop for SecretBytes {
    fn drop(&mut self) {
        arena().free(self.start, self.len);
    }
}

impl PartialEq for SecretBytes {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for SecretBytes {}

impl fmt::Debug for SecretBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

/// A key of 32 bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretKey(SecretBytes);

impl From<[u8; 32]> for SecretKey {
    fn from(mut key: [u8; 32]) -> Self {
        SecretKey(SecretBytes::take(&mut key))
    }
}

impl Deref for SecretKey {
    type Target = [u8; 32];

    fn deref(&self) -> &[u8; 32] {
        self.0.first_chunk().expect("a key is made of as many bytes")
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

static ARENA: Mutex<SecretArena> = Mutex::new(SecretArena { regions: Vec::new() });

fn arena() -> std::sync::MutexGuard<'static, SecretArena> {
    lock(&ARENA)
}

/// All regions of this process.
struct SecretArena {
    regions: Vec<SecretRegion>,
}

/// Pages between two guard pages, with a flag for each cell that says whether it is in use.
struct SecretRegion {
    data: NonNull<u8>,
    taken: Vec<bool>,
    /// Length of a guard page in bytes; 0 for a region on the heap, used when mapping failed.
    guard_bytes: usize,
}

// SAFETY: a region is used under the arena's lock alone.
unsafe impl Send for SecretRegion {}

impl SecretArena {
    fn allocate(&mut self, len: usize) -> NonNull<u8> {
        let cells = len.div_ceil(CELL_BYTES).max(1);
        if let Some(start) = self.regions.iter_mut().find_map(|region| region.take(cells)) {
            return start;
        }
        let mut region = SecretRegion::map(cells);
        let start = region.take(cells).expect("the region was mapped for this many cells");
        self.regions.push(region);
        start
    }

    fn free(&mut self, start: NonNull<u8>, len: usize) {
        let cells = len.div_ceil(CELL_BYTES).max(1);
        let at = self.regions.iter().position(|region| region.holds(start));
        let at = at.expect("a secret is in a region until it is dropped");
        self.regions[at].give_back(start, cells);
        if !self.regions[at].taken.contains(&true) && self.regions.len() > 1 {
            self.regions.swap_remove(at).unmap();
        }
    }
}

impl SecretRegion {
    /// Makes a region of at least this many cells.
    fn map(cells: usize) -> Self {
        let page = rustix::param::page_size();
        let bytes = (cells * CELL_BYTES).next_multiple_of(page);
        let taken = vec![false; bytes / CELL_BYTES];
        let (protection, flags) = (libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: maps fresh pages at a place of the system's choice, which nothing else uses.
        let whole = unsafe { libc::mmap(null_mut(), bytes + 2 * page, protection, flags, -1, 0) };
        if whole != libc::MAP_FAILED {
            // SAFETY: the data pages are inside of what was mapped.
            let data = unsafe { whole.byte_add(page) };
            let both = libc::PROT_READ | libc::PROT_WRITE;
            // SAFETY: these calls only change the treatment of this process's own fresh pages.
            // Locking may be refused (RLIMIT_MEMLOCK), and so may the advice: then the pages serve
            // without it.
            let is_usable = unsafe {
                let is_usable = libc::mprotect(data, bytes, both) == 0;
                libc::madvise(data, bytes, libc::MADV_DONTDUMP);
                // A child gets zeros instead of secrets.
                libc::madvise(data, bytes, libc::MADV_WIPEONFORK);
                libc::mlock(data, bytes);
                is_usable
            };
            if let (true, Some(data)) = (is_usable, NonNull::new(data.cast())) {
                return SecretRegion { data, taken, guard_bytes: page };
            }
            // SAFETY: nothing points into it.
            unsafe { libc::munmap(whole, bytes + 2 * page) };
        }
        let heap: &mut [u8] = Box::leak(vec![0; bytes].into_boxed_slice());
        SecretRegion { data: NonNull::from(heap).cast(), taken, guard_bytes: 0 }
    }

    fn bytes(&self) -> usize {
        self.taken.len() * CELL_BYTES
    }

    fn holds(&self, start: NonNull<u8>) -> bool {
        let data = self.data.addr().get();
        (data..data + self.bytes()).contains(&start.addr().get())
    }

    fn take(&mut self, cells: usize) -> Option<NonNull<u8>> {
        let first = self.taken.windows(cells).position(|run| !run.contains(&true))?;
        self.taken[first..first + cells].fill(true);
        // SAFETY: the cell is inside of the region.
        Some(unsafe { self.data.add(first * CELL_BYTES) })
    }

    fn give_back(&mut self, start: NonNull<u8>, cells: usize) {
        // SAFETY: the caller owned these cells, and nothing else points at them.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), cells * CELL_BYTES) }.zeroize();
        let first = (start.addr().get() - self.data.addr().get()) / CELL_BYTES;
        self.taken[first..first + cells].fill(false);
    }

    /// Returns an empty region to the system, or to the heap.
    fn unmap(self) {
        if self.guard_bytes > 0 {
            // SAFETY: no secret is in it any more; it begins and ends with a guard page.
            unsafe {
                let whole = self.data.as_ptr().sub(self.guard_bytes);
                libc::munmap(whole.cast(), self.bytes() + 2 * self.guard_bytes);
            }
        } else {
            let heap = std::ptr::slice_from_raw_parts_mut(self.data.as_ptr(), self.bytes());
            // SAFETY: it was leaked as a box of this length, and no secret is in it any more.
            drop(unsafe { Box::from_raw(heap) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The flags of the pages at an address, and of those right before and behind.
    fn flags(at: usize) -> (Vec<String>, Vec<String>) {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut areas: Vec<(std::ops::Range<usize>, String, Vec<String>)> = Vec::new();
        for line in maps.lines() {
            let range = line.split(' ').next().and_then(|range| range.split_once('-'));
            let hex = |text: &str| usize::from_str_radix(text, 16).ok();
            if let Some((Some(start), Some(end))) = range.map(|(a, b)| (hex(a), hex(b))) {
                let mode = line.split(' ').nth(1).unwrap().to_owned();
                areas.push((start..end, mode, Vec::new()));
            } else if let Some(flags) = line.strip_prefix("VmFlags: ") {
                let flags = flags.split_whitespace().map(str::to_owned).collect();
                areas.last_mut().unwrap().2 = flags;
            }
        }
        let own = areas.iter().find(|(range, ..)| range.contains(&at)).unwrap().clone();
        let beside =
            |range: &std::ops::Range<usize>| range.end == own.0.start || range.start == own.0.end;
        let guards = areas.iter().filter(|(range, ..)| beside(range));
        (own.2, guards.map(|(_, mode, _)| mode.clone()).collect())
    }

    #[test]
    fn secrets_lie_in_pages_of_their_own_that_are_dumped_nowhere() {
        let key = SecretKey::from([7; 32]);
        let (own, guards) = flags(key.as_ptr().addr());
        let has = |flag: &str| own.iter().any(|own| own == flag);
        assert!(has("dd") && has("wf"), "{own:?}");
        assert!(guards.len() == 2 && guards.iter().all(|mode| mode == "---p"), "{guards:?}");
        // As far as this process may lock memory at all.
        let limit = rustix::process::getrlimit(rustix::process::Resource::Memlock).current;
        if limit.is_none_or(|limit| limit >= 1 << 20) {
            assert!(has("lo"), "{own:?}");
        }
    }

    #[test]
    fn secrets_are_whole_and_wiped_when_they_are_given_back() {
        let mut arena = SecretArena { regions: Vec::new() };
        let many: Vec<_> = (1..300).map(|len| (arena.allocate(len), len)).collect();
        for &(start, len) in &many {
            // SAFETY: the cells are this test's.
            unsafe { start.write_bytes(len as u8, len) };
        }
        for &(start, len) in &many {
            // SAFETY: as above.
            let bytes = unsafe { std::slice::from_raw_parts(start.as_ptr(), len) };
            assert!(bytes.iter().all(|&byte| byte == len as u8), "{len} bytes overlap others");
        }
        let (last, rest) = many.split_last().unwrap();
        for &(start, len) in rest {
            arena.free(start, len);
        }
        let region = arena.regions.iter().find(|region| region.holds(last.0)).unwrap();
        // SAFETY: nothing changes the region meanwhile.
        let bytes = unsafe { std::slice::from_raw_parts(region.data.as_ptr(), region.bytes()) };
        let left = bytes.iter().filter(|&&byte| byte != 0).count();
        assert_eq!(left, last.1, "what was given back is zeros");
        arena.free(last.0, last.1);
        assert_eq!(arena.regions.len(), 1, "the others went back to the system");
    }

    #[test]
    fn a_secret_takes_over_and_prints_nothing() {
        let mut bytes = *b"open sesame";
        let secret = SecretBytes::take(&mut bytes);
        assert_eq!(bytes, [0; 11]);
        assert_eq!(*secret, *b"open sesame");
        let copy = secret.clone();
        drop(secret);
        assert_eq!(*copy, *b"open sesame");
        assert_eq!(SecretKey::from([3; 32]), SecretKey::from([3; 32]));
        assert_ne!(SecretKey::from([3; 32]), SecretKey::from([4; 32]));
        let shown = format!("{copy:?} {:?}", SecretKey::from([3; 32]));
        assert_eq!(shown, "(secret) (secret)");
        assert!(SecretBytes::take(&mut []).is_empty());
    }
}
