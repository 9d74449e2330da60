//! Threads that encode what waits, of all streams of a take.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};

use pinstripe_base::sync::{lock, wait};

use super::writer::Encoding;

/// Streams that have something to be encoded.
#[derive(Default)]
pub struct FlacPool {
    waiting: Mutex<(VecDeque<Arc<Encoding>>, bool)>,
    changed: Condvar,
}

impl FlacPool {
    /// A stream has something; it is in the queue once at most.
    pub(super) fn add(&self, encoding: Arc<Encoding>) {
        lock(&self.waiting).0.push_back(encoding);
        self.changed.notify_one();
    }

    /// Encodes until [`end`](Self::end), and nothing waits: the body of a thread.
    pub fn work(&self) {
        loop {
            let mut waiting = lock(&self.waiting);
            let next = loop {
                if let Some(next) = waiting.0.pop_front() {
                    break next;
                }
                if waiting.1 {
                    return;
                }
                waiting = wait(&self.changed, waiting);
            };
            drop(waiting);
            next.work();
        }
    }

    /// Lets the threads end.
    pub fn end(&self) {
        lock(&self.waiting).1 = true;
        self.changed.notify_all();
    }
}
