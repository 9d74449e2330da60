//! The memory that contains rings.

use std::ptr::NonNull;

use pinstripe_base::error::{Error, Result};

/// The memory of all rings of a take, mapped at once, with every page touched, so that no page
/// fault occurs later.
pub struct Arena {
    pub(super) base: NonNull<u8>,
    pub(super) bytes: usize,
    is_locked: bool,
}

// SAFETY: the arena is plain memory. The rings decide which thread may access which part of it at
// which time, and each ring owns a separate part.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// Maps `bytes` bytes, and locks them in memory if that is permitted.
    ///
    /// # Errors
    /// [`Kind::Io`] if the system cannot allocate the memory.
    pub fn new(bytes: usize) -> Result<Self> {
        let (prot, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE,
        );
        // SAFETY: a new anonymous mapping at a place of the kernel's choice.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes.max(1), prot, flags, -1, 0) };
        let mapped = (base != libc::MAP_FAILED).then(|| NonNull::new(base.cast::<u8>())).flatten();
        let Some(base) = mapped else {
            let error = std::io::Error::last_os_error();
            return Err(Error::io("cannot allocate memory for the ring buffers", "memory", error));
        };
        // SAFETY: the range is the mapping that was just made.
        let is_locked = unsafe { libc::mlock(base.as_ptr().cast(), bytes.max(1)) } == 0;
        Ok(Arena { base, bytes, is_locked })
    }

    /// Whether the arena is locked in memory, so that no part of it is ever paged out.
    pub fn is_locked(&self) -> bool {
        self.is_locked
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the mapping that `new` made; rings hold the arena, so that none is left.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes.max(1)) };
    }
}
