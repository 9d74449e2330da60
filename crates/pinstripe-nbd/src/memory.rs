//! Memory for requests: buffers that are reused, limited in total over all connections.
//!
//! A buffer gets its memory when it is first filled, not when it is taken: so each of many waiting
//! requests reuses the memory of the previous one, which is still in the processor's cache.
//!
//! Invariants: used and unused buffers together stay within the limit; one connection takes at most
//! its share; a buffer is returned wherever it is dropped.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use crate::protocol::REQUEST_BYTES_MAX;
use pinstripe_base::sync::{lock, wait};
use pinstripe_io::device::AlignedBuf;
use pinstripe_io::device::buffer::BUFFER_ALIGN;

/// Room for the head of a reply before the data; it is one page, so that the data are page-aligned.
pub(super) const HEAD_ROOM: usize = BUFFER_ALIGN;
/// The number of sizes of buffers: from a page to the longest request, each size is twice the one
/// before.
const CLASSES: usize = (REQUEST_BYTES_MAX as usize / BUFFER_ALIGN).ilog2() as usize + 1;

/// The memory of a server for its clients' requests.
pub(super) struct Memory {
    limit: usize,
    state: Mutex<MemoryState>,
    returned: Condvar,
}

#[derive(Default)]
struct MemoryState {
    taken: usize,
    ready: usize,
    waiting: usize,
    free: [Vec<AlignedBuf>; CLASSES],
}

/// The share of one connection.
pub(super) struct Share {
    memory: Arc<Memory>,
    limit: usize,
    /// The bytes that the connection has taken; changed only under the lock of the memory.
    taken: AtomicUsize,
}

/// A buffer: first `HEAD_ROOM`, then the data of one request.
pub(super) struct Buffer {
    bytes: usize,
    buf: Option<AlignedBuf>,
    share: Arc<Share>,
}

/// The size class of buffers for `bytes` bytes of data, and the memory of one such buffer.
fn class_of(bytes: usize) -> (usize, usize) {
    let pages = bytes.div_ceil(BUFFER_ALIGN).max(1).next_power_of_two();
    (pages.ilog2() as usize, pages * BUFFER_ALIGN + HEAD_ROOM)
}

/// The memory that the longest request needs.
const LONGEST: usize = REQUEST_BYTES_MAX as usize + HEAD_ROOM;

impl Memory {
    /// Memory of `limit` bytes, but at least enough for two of the longest requests.
    pub fn new(limit: u64) -> Arc<Self> {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX).max(2 * LONGEST);
        Arc::new(Memory { limit, state: Mutex::default(), returned: Condvar::new() })
    }

    /// The share of one connection: a quarter, but at least enough for one of the longest requests.
    pub fn share(self: &Arc<Self>) -> Arc<Share> {
        let limit = (self.limit / 4).max(LONGEST);
        Arc::new(Share { memory: Arc::clone(self), limit, taken: AtomicUsize::new(0) })
    }

    /// The number of bytes that are taken, and of bytes that are free for reuse.
    #[cfg(test)]
    pub fn used(&self) -> (usize, usize) {
        let state = self.state();
        (state.taken, state.ready)
    }

    fn state(&self) -> MutexGuard<'_, MemoryState> {
        lock(&self.state)
    }
}

impl Share {
    /// A buffer for `bytes` bytes of data, which are at most those of the longest request; `None`
    /// if no memory is free.
    pub fn try_take(self: &Arc<Self>, bytes: usize) -> Option<Buffer> {
        self.take_from(self.memory.state(), bytes).ok()
    }

    /// Like [`try_take`](Self::try_take), but waits until others return memory.
    pub fn take(self: &Arc<Self>, bytes: usize) -> Buffer {
        let mut state = self.memory.state();
        loop {
            state = match self.take_from(state, bytes) {
                Ok(buffer) => return buffer,
                Err(state) => state,
            };
            state.waiting += 1;
            state = wait(&self.memory.returned, state);
            state.waiting -= 1;
        }
    }

    fn take_from<'m>(
        self: &Arc<Self>,
        mut state: MutexGuard<'m, MemoryState>,
        bytes: usize,
    ) -> Result<Buffer, MutexGuard<'m, MemoryState>> {
        let size = class_of(bytes).1;
        let taken = self.taken.load(Ordering::Relaxed);
        if state.taken + size > self.memory.limit || taken + size > self.limit {
            return Err(state);
        }
        self.taken.store(taken + size, Ordering::Relaxed);
        state.taken += size;
        debug_assert!(state.taken <= self.memory.limit, "no more than the memory is taken");
        debug_assert!(taken + size <= state.taken, "a share is part of what is taken");
        Ok(Buffer { bytes, buf: None, share: Arc::clone(self) })
    }
}

impl MemoryState {
    /// Takes free memory of a size class, if any; otherwise makes sure that some can be allocated.
    fn pop(&mut self, class: usize, limit: usize) -> Option<AlignedBuf> {
        let ready = self.free[class].pop();
        match &ready {
            Some(buf) => self.ready -= buf.capacity(),
            None => self.make_room(limit),
        }
        // Taken buffers without memory yet may exceed the limit together with the ready ones.
        let is_within = ready.is_some() || self.taken + self.ready <= limit;
        debug_assert!(is_within, "new memory keeps filled and ready within the limit");
        ready
    }

    /// Frees unused buffers, the longest first, until the total is within the limit.
    fn make_room(&mut self, limit: usize) {
        for free in self.free.iter_mut().rev() {
            while self.taken + self.ready > limit
                && let Some(buf) = free.pop()
            {
                self.ready -= buf.capacity();
            }
        }
    }
}

impl Buffer {
    /// The data; empty before the buffer was filled.
    pub fn data(&self) -> &[u8] {
        self.all().get(HEAD_ROOM..).unwrap_or_default()
    }

    /// The data, for filling the buffer.
    pub(crate) fn data_mut(&mut self) -> &mut [u8] {
        &mut self.all_mut()[HEAD_ROOM..]
    }

    /// The room for the head and the data; empty before the buffer was filled.
    pub fn all(&self) -> &[u8] {
        self.buf.as_deref().unwrap_or_default()
    }

    /// The room for the head and the data, for filling the buffer.
    pub fn all_mut(&mut self) -> &mut [u8] {
        let bytes = self.bytes;
        let memory = &self.share.memory;
        self.buf.get_or_insert_with(|| {
            let (class, size) = class_of(bytes);
            let ready = memory.state().pop(class, memory.limit);
            let mut buf = ready.unwrap_or_else(|| AlignedBuf::new(size));
            debug_assert_eq!(buf.capacity(), size, "a buffer is of its class");
            buf.set_len(HEAD_ROOM + bytes);
            buf
        })
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let (class, size) = class_of(self.bytes);
        let memory = &self.share.memory;
        let mut state = memory.state();
        let taken = self.share.taken.fetch_sub(size, Ordering::Relaxed);
        debug_assert!(taken >= size && state.taken >= size, "what is given back was taken");
        state.taken -= size;
        if let Some(buf) = self.buf.take() {
            state.ready += size;
            state.free[class].push(buf);
        }
        let is_awaited = state.waiting > 0;
        drop(state);
        if is_awaited {
            memory.returned.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn filled(mut buffer: Buffer) -> Buffer {
        buffer.data_mut()[0] = 1;
        buffer
    }

    #[test]
    fn buffers_are_as_long_as_asked_for_and_go_round() {
        let memory = Memory::new(0);
        let share = memory.share();
        for bytes in [1, 4096, 4097, MIB, 32 * MIB] {
            let mut buffer = share.take(bytes);
            assert_eq!(buffer.data_mut().as_ptr() as usize % BUFFER_ALIGN, 0);
            assert_eq!(buffer.data().len(), bytes);
        }
        let (taken, ready) = memory.used();
        assert!(taken == 0 && ready > 32 * MIB, "{ready}");
        let first = share.take(3 * MIB).data_mut().as_ptr();
        assert_eq!(share.take(4 * MIB).data_mut().as_ptr(), first);
    }

    #[test]
    fn neither_share_nor_limit_is_passed() {
        let memory = Memory::new(128 * MIB as u64);
        let (one, other) = (memory.share(), memory.share());
        let held = filled(one.take(32 * MIB));
        assert!(one.try_take(1).is_none());
        let more: Vec<_> = (0..3).map(|_| memory.share().try_take(30 * MIB).map(filled)).collect();
        assert_eq!(more.iter().flatten().count(), 2);
        // Thirty-two million bytes and a page, three times: less than one more is left.
        let small: Vec<_> = (0..8).map_while(|_| other.try_take(4 * MIB).map(filled)).collect();
        assert_eq!(small.len(), 7);
        drop((held, more));
        let (taken, ready) = memory.used();
        assert!(taken + ready <= 128 * MIB);
        drop(small);
        // Ready buffers are given up for those that are wanted.
        let many: Vec<_> = (0..4).map(|_| memory.share()).collect();
        let many = many.iter().flat_map(|it| (0..9).map_while(|_| it.try_take(2 * MIB)));
        let many: Vec<_> = many.map(filled).collect();
        let (taken, ready) = memory.used();
        assert!(many.len() == 36 && taken + ready <= 128 * MIB, "{taken} {ready}");
    }

    #[test]
    fn a_waiting_thread_gets_what_comes_back() {
        let memory = Memory::new(0);
        let share = memory.share();
        let held = share.take(32 * MIB);
        std::thread::scope(|scope| {
            let waiters: Vec<_> =
                (0..3).map(|_| scope.spawn(|| share.take(32 * MIB).data_mut().len())).collect();
            drop(held);
            waiters.into_iter().for_each(|it| assert_eq!(it.join().unwrap(), 32 * MIB));
        });
    }
}
