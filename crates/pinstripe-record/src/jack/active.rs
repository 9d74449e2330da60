//! An active JACK client: its callbacks, their arguments, and its deactivation.
//!
//! Invariants: only the server's process thread accesses the state of the block callback, which is
//! freed after the last callback; events of the server are passed on by atomics.

use std::borrow::Borrow;
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use pinstripe_base::error::{Error, Kind, Result};

use super::JackClient;

/// The processing of blocks by a client.
pub(super) trait EachBlock {
    /// Processes one block of all ports. The function must not lock, allocate or make a system
    /// call.
    fn block(&mut self, frames: u32);
}

/// The events that a server has reported since a client became active.
pub(super) struct ServerEvents {
    /// The rate of the server at the beginning.
    rate: u32,
    xruns: AtomicU64,
    new_rate: AtomicU32,
    is_gone: AtomicBool,
}

impl ServerEvents {
    fn new(rate: u32) -> Self {
        ServerEvents {
            rate,
            xruns: AtomicU64::new(0),
            new_rate: AtomicU32::new(0),
            is_gone: AtomicBool::new(false),
        }
    }

    /// The number of deadlines that the server missed (xruns).
    pub fn xruns(&self) -> u64 {
        self.xruns.load(Ordering::Relaxed)
    }

    /// The rate to which the server changed; 0 if it did not change.
    pub(crate) fn new_rate(&self) -> u32 {
        self.new_rate.load(Ordering::Relaxed)
    }

    /// Whether the server has shut down.
    pub fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }
}

/// An active client, with the state that processes its blocks. The client is deactivated when this
/// value is dropped.
pub(super) struct ActiveClient<C: Borrow<JackClient>, S> {
    client: C,
    state: NonNull<S>,
    events: Arc<ServerEvents>,
}

// SAFETY: until `drop` has stopped the client its process thread alone touches the state, which may go
// to another thread then.
unsafe impl<C: Borrow<JackClient> + Send, S: Send> Send for ActiveClient<C, S> {}

impl<C: Borrow<JackClient>, S: EachBlock> ActiveClient<C, S> {
    /// Starts. `rate` is the rate of the server at the beginning.
    ///
    /// # Errors
    /// [`Kind::Refused`] if the server does not accept the client.
    pub fn start(client: C, rate: u32, state: S) -> Result<Self> {
        let events = Arc::new(ServerEvents::new(rate));
        let state = NonNull::from(Box::leak(Box::new(state)));
        let (library, raw) = (client.borrow().library, client.borrow().raw.as_ptr());
        let (argument, told) = (state.as_ptr().cast(), Arc::as_ptr(&events).cast_mut().cast());
        let active = ActiveClient { client, state, events };
        // SAFETY: the client is open and not active; the state lives until `drop` has deactivated it,
        // and so do the events.
        let refused = unsafe {
            (library.jack_on_shutdown)(raw, shutdown, told);
            (library.jack_set_process_callback)(raw, process::<S>, argument)
                | (library.jack_set_sample_rate_callback)(raw, rate_changed, told)
                | (library.jack_set_xrun_callback)(raw, xrun, told)
                | (library.jack_activate)(raw)
        };
        match refused {
            0 => Ok(active),
            _ => Err(Error::new(Kind::Refused, "the JACK server does not accept the client")),
        }
    }
}

impl<C: Borrow<JackClient>, S> ActiveClient<C, S> {
    /// Returns the events so far.
    pub fn events(&self) -> &ServerEvents {
        &self.events
    }
}

impl<C: Borrow<JackClient>, S> Drop for ActiveClient<C, S> {
    fn drop(&mut self) {
        // SAFETY: the client is open; after this no callback runs, for `jack_deactivate` waits for
        // the last one, and the threads of a client whose server is gone have ended.
        unsafe {
            let client = self.client.borrow();
            (client.library.jack_deactivate)(client.raw.as_ptr());
            drop(Box::from_raw(self.state.as_ptr()));
        }
    }
}

extern "C" fn process<S: EachBlock>(frames: u32, argument: *mut c_void) -> c_int {
    // SAFETY: the argument is the state, which only this thread uses until the client is stopped.
    let state = unsafe { &mut *argument.cast::<S>() };
    state.block(frames);
    0
}

extern "C" fn rate_changed(rate: u32, argument: *mut c_void) -> c_int {
    // SAFETY: the argument is the events, which live until the client is stopped.
    let events = unsafe { &*argument.cast::<ServerEvents>() };
    if rate != events.rate {
        events.new_rate.store(rate, Ordering::Relaxed);
    }
    0
}

extern "C" fn xrun(argument: *mut c_void) -> c_int {
    // SAFETY: as above.
    unsafe { &*argument.cast::<ServerEvents>() }.xruns.fetch_add(1, Ordering::Relaxed);
    0
}

extern "C" fn shutdown(argument: *mut c_void) {
    // SAFETY: as above.
    unsafe { &*argument.cast::<ServerEvents>() }.is_gone.store(true, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_that_a_server_tells_at_the_beginning_is_no_change() {
        let events = ServerEvents::new(48_000);
        let argument = (&raw const events).cast_mut().cast::<c_void>();
        rate_changed(48_000, argument);
        assert_eq!(events.new_rate(), 0);
        rate_changed(44_100, argument);
        assert_eq!(events.new_rate(), 44_100);
        xrun(argument);
        assert_eq!((events.xruns(), events.is_gone()), (1, false));
        shutdown(argument);
        assert!(events.is_gone());
    }
}
