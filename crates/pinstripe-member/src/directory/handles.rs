//! A cache of open extents, with eviction by the clock algorithm.
//!
//! Invariant: once [`forget`](Handles::forget) has returned, no file that had the name before is
//! returned any more, even if another thread was opening that file at that moment.

use std::fs::File;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::ExtentName;
use pinstripe_base::sync::lock;
use pinstripe_io::descriptors::{self, Keeper};

/// The largest number of files that one member keeps open. With this limit, a store of 16 members
/// stays far below the usual limit of 1024 open files; a restore that reads pack by pack needs only
/// a handful.
pub(super) const MAX_HANDLES: usize = 32;

pub(super) struct Handles {
    state: Mutex<HandlesState>,
    most: usize,
}

#[derive(Default)]
struct HandlesState {
    slots: Vec<HandleSlot>,
    hand: usize,
    /// Counts the calls of `forget`: a file that was opened before such a call must not be cached
    /// after it.
    epoch: u64,
}

struct HandleSlot {
    name: ExtentName,
    file: Arc<File>,
    used: bool,
}

/// The moment of a cache miss, which [`Handles::keep`] requires.
#[derive(Clone, Copy)]
pub(super) struct Epoch(u64);

impl Keeper for Handles {
    fn give_up(&self) {
        let mut state = self.state();
        state.slots.clear();
        state.hand = 0;
    }
}

impl Handles {
    /// Makes a cache that closes its files when the process is short of file descriptors.
    pub fn new() -> Arc<Self> {
        let most = descriptors::share(MAX_HANDLES, 16);
        let handles = Arc::new(Handles { state: Mutex::default(), most });
        descriptors::register(&handles);
        handles
    }

    fn state(&self) -> MutexGuard<'_, HandlesState> {
        lock(&self.state)
    }

    /// Returns the open file; on a miss, the moment to pass to [`keep`](Handles::keep) with the
    /// file once the caller has opened it.
    pub fn get(&self, name: ExtentName) -> Result<Arc<File>, Epoch> {
        let mut state = self.state();
        match state.slots.iter_mut().find(|slot| slot.name == name) {
            Some(slot) => {
                slot.used = true;
                Ok(slot.file.clone())
            }
            None => Err(Epoch(state.epoch)),
        }
    }

    /// Caches an open file; if the cache is full, the file replaces one that was not used recently.
    pub fn keep(&self, name: ExtentName, file: Arc<File>, since: Epoch) {
        let mut state = self.state();
        let known = state.slots.iter().any(|slot| slot.name == name);
        if state.epoch != since.0 || known {
            return;
        }
        let slot = HandleSlot { name, file, used: false };
        if state.slots.len() < self.most {
            state.slots.push(slot);
            return;
        }
        let at = loop {
            let at = state.hand;
            state.hand = (at + 1) % self.most;
            if !std::mem::take(&mut state.slots[at].used) {
                break at;
            }
        };
        state.slots[at] = slot;
    }

    /// Drops the cached file of an extent that was deleted or replaced.
    pub fn forget(&self, name: ExtentName) {
        let mut state = self.state();
        state.epoch += 1;
        state.slots.retain(|slot| slot.name != name);
        state.hand = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ExtentKind;

    fn name(number: u8) -> ExtentName {
        ExtentName::In(ExtentKind::Packs, [number; 16])
    }

    fn offer(handles: &Handles, number: u8) {
        if let Err(epoch) = handles.get(name(number)) {
            handles.keep(name(number), Arc::new(tempfile::tempfile().unwrap()), epoch);
        }
    }

    #[test]
    fn bounded_and_the_used_ones_stay() {
        let handles = Handles::new();
        for number in 0..200 {
            offer(&handles, number);
            assert!(handles.get(name(0)).is_ok(), "0 is used all the time: {number}");
        }
        assert_eq!(handles.state().slots.len(), handles.most);
        assert!(handles.get(name(199)).is_ok());
        assert!(handles.get(name(1)).is_err());
    }

    #[test]
    fn a_file_opened_before_forget_is_not_kept_after_it() {
        let handles = Handles::new();
        let Err(epoch) = handles.get(name(1)) else { panic!("nothing was kept yet") };
        handles.forget(name(1));
        handles.keep(name(1), Arc::new(tempfile::tempfile().unwrap()), epoch);
        assert!(handles.get(name(1)).is_err());
        offer(&handles, 1);
        assert!(handles.get(name(1)).is_ok());
        handles.forget(name(1));
        assert!(handles.get(name(1)).is_err());
    }
}
