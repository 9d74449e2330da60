//! A pool of buffers, which one stage takes and another returns.
//!
//! A megabyte of fresh memory costs a page fault per 4 KiB; at a gigabyte per second that is a
//! tenth of a core. A pool holds buffers of about one size, and at most as many as are in flight.

use std::sync::Mutex;

/// A pool of buffers.
#[derive(Default)]
pub struct ScratchPool {
    most: usize,
    buffers: Mutex<Vec<Vec<u8>>>,
}

impl ScratchPool {
    /// Makes a pool that keeps at most `most` buffers.
    pub fn new(most: usize) -> Self {
        ScratchPool { most, buffers: Mutex::default() }
    }

    /// Returns a buffer with its old content, or a new one.
    pub fn take(&self) -> Vec<u8> {
        self.buffers.lock().ok().and_then(|mut buffers| buffers.pop()).unwrap_or_default()
    }

    /// Keeps a buffer for the next caller of `take`.
    pub fn give(&self, buffer: Vec<u8>) {
        if buffer.capacity() > 0
            && let Ok(mut buffers) = self.buffers.lock()
            && buffers.len() < self.most
        {
            buffers.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_come_back_up_to_the_limit() {
        let pool = ScratchPool::new(1);
        assert_eq!(pool.take().capacity(), 0);
        pool.give(vec![7; 10]);
        pool.give(vec![8; 10]);
        assert_eq!(pool.take(), [7; 10]);
        assert_eq!(pool.take().capacity(), 0);
    }
}
