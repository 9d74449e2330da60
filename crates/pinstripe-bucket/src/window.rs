//! Limits how many requests are in flight to one endpoint.
//!
//! The window grows by one for each full round of successful answers and is halved when the
//! endpoint throttles requests, so that several hosts share an endpoint without communication. If
//! requests that were sent before the last halving are throttled, the window is not halved again:
//! they all get the same answer at once.

use crate::locks::{BucketLock, RankedMutex};
use tokio::sync::Notify;

/// The number of requests in flight that are allowed at the start.
const START: usize = 32;
/// The most requests in flight that are ever allowed.
const MOST: usize = 64;

/// The window of an endpoint: the number of requests that may be in flight.
pub struct Window {
    state: RankedMutex<WindowState>,
    freed: Notify,
}

struct WindowState {
    limit: usize,
    in_flight: usize,
    /// The number of successful answers since the window changed.
    good: usize,
    /// The number of times that the window was halved.
    halved: u64,
}

/// The right to have one request in flight.
pub(crate) struct Permit<'a> {
    window: &'a Window,
    /// The number of times that the window had been halved when the request was sent.
    pub halved: u64,
}

impl Window {
    pub fn new() -> Self {
        let state = RankedMutex::new(
            BucketLock::Window,
            WindowState { limit: START, in_flight: 0, good: 0, halved: 0 },
        );
        Window { state, freed: Notify::new() }
    }

    /// Waits until another request may be sent.
    pub async fn enter(&self) -> Permit<'_> {
        loop {
            let freed = self.freed.notified();
            if let Some(permit) = self.take() {
                return permit;
            }
            freed.await;
        }
    }

    fn take(&self) -> Option<Permit<'_>> {
        let mut state = self.state.lock();
        if state.in_flight >= state.limit {
            return None;
        }
        state.in_flight += 1;
        debug_assert!(state.in_flight <= state.limit, "no more are in flight than the window has");
        Some(Permit { window: self, halved: state.halved })
    }

    /// Records a successful answer.
    pub fn widen(&self) {
        let mut state = self.state.lock();
        debug_assert!((1..=MOST).contains(&state.limit), "a window has 1 to {MOST} requests");
        state.good += 1;
        if state.good >= state.limit && state.limit < MOST {
            (state.limit, state.good) = (state.limit + 1, 0);
            drop(state);
            self.freed.notify_one();
        }
    }

    /// Records that a request was throttled that was sent when the window had been halved `halved`
    /// times.
    pub fn halve(&self, halved: u64) {
        let mut state = self.state.lock();
        debug_assert!(halved <= state.halved, "a permit was given before this answer");
        if state.halved == halved {
            (state.limit, state.good) = ((state.limit / 2).max(1), 0);
            state.halved += 1;
        }
    }

    #[cfg(test)]
    fn limit(&self) -> usize {
        self.state.lock().limit
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let mut state = self.window.state.lock();
        debug_assert!(state.in_flight > 0, "each permit is returned once");
        state.in_flight -= 1;
        drop(state);
        self.window.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn halve_times(window: &Window, times: u64) {
        let halved = window.state.lock().halved;
        (halved..halved + times).for_each(|halved| window.halve(halved));
    }

    #[test]
    fn the_window_is_halved_and_grows_again() {
        let window = Window::new();
        halve_times(&window, 4);
        assert_eq!(window.limit(), START / 16);
        halve_times(&window, 9);
        assert_eq!(window.limit(), 1);
        (0..3).for_each(|_| window.widen());
        assert_eq!(window.limit(), 3);
        (0..100_000).for_each(|_| window.widen());
        assert_eq!(window.limit(), MOST);
    }

    #[test]
    fn a_burst_of_refusals_halves_once() {
        let window = Window::new();
        let permits: Vec<_> = (0..START).map(|_| window.take().unwrap()).collect();
        permits.iter().for_each(|permit| window.halve(permit.halved));
        assert_eq!(window.limit(), START / 2);
        drop(permits);
        let later = window.take().unwrap();
        window.halve(later.halved);
        assert_eq!(window.limit(), START / 4);
    }

    #[test]
    fn no_more_are_in_flight_than_the_window_has() {
        let window = Window::new();
        halve_times(&window, 9);
        let permit = window.take();
        assert!(permit.is_some() && window.take().is_none());
        drop(permit);
        assert!(window.take().is_some());
    }
}
