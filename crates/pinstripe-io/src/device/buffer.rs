//! Buffers that a disk can read and write directly, and a pool with a limited number of them.
//!
//! Invariants: the memory of an [`AlignedBuf`] begins at a multiple of [`BUFFER_ALIGN`], never
//! moves, and is always initialised; a buffer from a pool returns to the pool wherever the buffer
//! is dropped, so no error path can make a pool shrink.
//!
//! A buffer never grows beyond its capacity.

use pinstripe_base::sync::{lock, wait};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// The alignment of a buffer's memory, which all current disks accept for direct I/O.
pub const BUFFER_ALIGN: usize = 4096;

/// The unit of memory that gives a buffer its alignment.
#[derive(Clone, Copy)]
#[repr(C, align(4096))]
struct AlignedPage([u8; BUFFER_ALIGN]);

/// Memory for `bytes` bytes, rounded up to whole pages.
fn pages(bytes: usize) -> Vec<AlignedPage> {
    vec![AlignedPage([0; BUFFER_ALIGN]); bytes.div_ceil(BUFFER_ALIGN)]
}

/// Bytes up to a fixed capacity, in memory aligned for direct I/O.
pub struct AlignedBuf {
    pages: Vec<AlignedPage>,
    len: usize,
    home: Option<Arc<BufferShelf>>,
}

impl AlignedBuf {
    /// An empty buffer of at least `capacity` bytes, rounded up to whole pages.
    pub fn new(capacity: usize) -> Self {
        AlignedBuf { pages: pages(capacity), len: 0, home: None }
    }

    /// The number of bytes that the buffer can hold.
    pub fn capacity(&self) -> usize {
        self.pages.len() * BUFFER_ALIGN
    }

    /// The number of bytes that can still be added.
    pub fn room(&self) -> usize {
        self.capacity() - self.len
    }

    /// Makes it empty.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Sets the length to `len` bytes; added bytes have the former content of the memory.
    ///
    /// # Panics
    /// Panics beyond the capacity.
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.capacity(), "a length of {len} beyond {}", self.capacity());
        self.len = len;
    }

    /// Adds bytes at the end.
    ///
    /// # Panics
    /// Panics when there is not enough [`room`](Self::room).
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        let start = self.len;
        self.set_len(start + bytes.len());
        self[start..].copy_from_slice(bytes);
    }

    /// Cuts the buffer to `len` bytes, or extends it with zeros.
    ///
    /// # Panics
    /// Panics beyond the capacity.
    pub fn resize(&mut self, len: usize) {
        let kept = self.len.min(len);
        self.set_len(len);
        self[kept..].fill(0);
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        debug_assert!(self.len <= self.capacity() && self.pages.as_ptr().is_aligned());
        // SAFETY: pages are initialised bytes without padding, one behind the other, and `len` is
        // at most what all of them hold.
        unsafe { std::slice::from_raw_parts(self.pages.as_ptr().cast(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        debug_assert!(self.len <= self.capacity(), "the length is within the capacity");
        // SAFETY: as above, borrowed for as long as `self` is; any bytes make valid pages.
        unsafe { std::slice::from_raw_parts_mut(self.pages.as_mut_ptr().cast(), self.len) }
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        if let Some(home) = self.home.take() {
            home.give(std::mem::take(&mut self.pages));
        }
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuf({} of {} bytes)", self.len, self.capacity())
    }
}

/// A buffer to be written: either aligned for direct I/O, or a plain one.
#[derive(Debug)]
pub enum WriteBuf {
    /// Written to the disk without a copy.
    Aligned(AlignedBuf),
    /// Copied if the disk needs aligned memory.
    Plain(Vec<u8>),
}

impl Deref for WriteBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            WriteBuf::Aligned(buf) => buf,
            WriteBuf::Plain(bytes) => bytes,
        }
    }
}

impl DerefMut for WriteBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            WriteBuf::Aligned(buf) => buf,
            WriteBuf::Plain(bytes) => bytes,
        }
    }
}

impl From<AlignedBuf> for WriteBuf {
    fn from(buf: AlignedBuf) -> Self {
        WriteBuf::Aligned(buf)
    }
}

impl From<Vec<u8>> for WriteBuf {
    fn from(bytes: Vec<u8>) -> Self {
        WriteBuf::Plain(bytes)
    }
}

/// A pool with a fixed number of buffers that are reused. The pool is cheap to clone: all clones
/// share the same buffers.
#[derive(Clone)]
pub struct BufferPool(Arc<BufferShelf>);

struct BufferShelf {
    capacity: usize,
    stock: Mutex<Stock>,
    returned: Condvar,
}

struct Stock {
    free: Vec<Vec<AlignedPage>>,
    /// The number of buffers that may still be allocated.
    unmade: usize,
}

impl BufferPool {
    /// A pool of `count` buffers of at least `capacity` bytes; each is allocated when it is first
    /// needed.
    pub fn new(count: usize, capacity: usize) -> Self {
        let stock = Mutex::new(Stock { free: Vec::new(), unmade: count });
        BufferPool(Arc::new(BufferShelf { capacity, stock, returned: Condvar::new() }))
    }

    /// Returns an empty buffer; waits until there is one, which never happens in a pool of zero
    /// buffers.
    pub fn take(&self) -> AlignedBuf {
        let mut stock = self.0.stock();
        loop {
            if let Some(buf) = self.take_from(&mut stock) {
                return buf;
            }
            stock = wait(&self.0.returned, stock);
        }
    }

    /// Returns an empty buffer, if one is free.
    pub fn try_take(&self) -> Option<AlignedBuf> {
        self.take_from(&mut self.0.stock())
    }

    /// The number of buffers that could be taken now.
    pub fn free(&self) -> usize {
        let stock = self.0.stock();
        stock.free.len() + stock.unmade
    }

    /// Returns a buffer to the pool; dropping the buffer has the same effect.
    pub fn give(&self, buf: AlignedBuf) {
        drop(buf);
    }

    fn take_from(&self, stock: &mut Stock) -> Option<AlignedBuf> {
        let pages = match stock.free.pop() {
            Some(pages) => pages,
            None => {
                stock.unmade = stock.unmade.checked_sub(1)?;
                pages(self.0.capacity)
            }
        };
        Some(AlignedBuf { pages, len: 0, home: Some(Arc::clone(&self.0)) })
    }
}

impl BufferShelf {
    fn stock(&self) -> MutexGuard<'_, Stock> {
        lock(&self.stock)
    }

    fn give(&self, pages: Vec<AlignedPage>) {
        self.stock().free.push(pages);
        self.returned.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_bounded() {
        for capacity in [0, 1, 4096, 4097, 1 << 20] {
            let mut buf = AlignedBuf::new(capacity);
            assert_eq!(buf.as_ptr() as usize % BUFFER_ALIGN, 0);
            assert_eq!(buf.capacity(), capacity.next_multiple_of(BUFFER_ALIGN));
            assert_eq!((buf.len(), buf.room()), (0, buf.capacity()));
            buf.set_len(capacity);
            assert!(buf.iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn bytes_are_added_and_padded_with_zeros() {
        let mut buf = AlignedBuf::new(8192);
        buf.set_len(8192);
        buf.fill(7);
        buf.clear();
        buf.extend_from_slice(b"one");
        buf.extend_from_slice(b" two");
        buf.resize(512);
        assert_eq!(&buf[..7], b"one two");
        assert_eq!((buf.len(), &buf[7..]), (512, &[0; 505][..]));
        buf.resize(512);
        assert_eq!(buf.len(), 512);
    }

    #[test]
    #[should_panic = "beyond 4096"]
    fn more_than_the_capacity_is_refused() {
        AlignedBuf::new(10).extend_from_slice(&[0; 4097]);
    }

    #[test]
    fn a_pool_gives_out_what_came_back() {
        let pool = BufferPool::new(2, 100);
        let mut first = pool.take();
        first.extend_from_slice(b"old");
        let memory = first.as_ptr();
        let second = pool.try_take().unwrap();
        assert!(pool.try_take().is_none());
        assert_eq!(pool.free(), 0);
        drop(first);
        let again = pool.take();
        assert_eq!((again.len(), again.as_ptr()), (0, memory));
        pool.give(again);
        drop(WriteBuf::from(second));
        assert_eq!(pool.free(), 2);
    }

    #[test]
    fn whoever_waits_for_a_buffer_gets_one() {
        let pool = BufferPool::new(1, 4096);
        let held = pool.take();
        std::thread::scope(|scope| {
            let waiters: Vec<_> = (0..4).map(|_| scope.spawn(|| pool.take().len())).collect();
            drop(held);
            waiters.into_iter().for_each(|it| assert_eq!(it.join().unwrap(), 0));
        });
        assert_eq!(pool.free(), 1);
    }
}
