//! How many requests may be in flight to one endpoint.
//!
//! The window grows by one for each full round of good answers and is halved when the endpoint
//! says that it is asked too much, so that several hosts share an endpoint without speaking.

use std::sync::Mutex;

use pinstripe_base::sync::lock;
use tokio::sync::Notify;

/// Requests in flight at the start, and at most.
const START: usize = 32;
const MOST: usize = 64;

/// The window of an endpoint.
pub struct Window {
    state: Mutex<State>,
    freed: Notify,
}

struct State {
    limit: usize,
    in_flight: usize,
    /// Good answers since the window changed.
    good: usize,
}

/// The right to have one request in flight.
pub struct Permit<'a>(&'a Window);

impl Window {
    pub fn new() -> Self {
        let state = Mutex::new(State { limit: START, in_flight: 0, good: 0 });
        Window { state, freed: Notify::new() }
    }

    /// Waits until one more request may be sent.
    pub async fn enter(&self) -> Permit<'_> {
        loop {
            let freed = self.freed.notified();
            if self.take() {
                return Permit(self);
            }
            freed.await;
        }
    }

    fn take(&self) -> bool {
        let mut state = lock(&self.state);
        let is_free = state.in_flight < state.limit;
        state.in_flight += usize::from(is_free);
        is_free
    }

    /// An answer came as it should.
    pub fn widen(&self) {
        let mut state = lock(&self.state);
        state.good += 1;
        if state.good >= state.limit && state.limit < MOST {
            (state.limit, state.good) = (state.limit + 1, 0);
            drop(state);
            self.freed.notify_one();
        }
    }

    /// The endpoint is asked too much.
    pub fn halve(&self) {
        let mut state = lock(&self.state);
        (state.limit, state.good) = ((state.limit / 2).max(1), 0);
    }

    #[cfg(test)]
    fn limit(&self) -> usize {
        lock(&self.state).limit
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).in_flight -= 1;
        self.0.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_is_halved_and_grows_again() {
        let window = Window::new();
        (0..4).for_each(|_| window.halve());
        assert_eq!(window.limit(), START / 16);
        (0..9).for_each(|_| window.halve());
        assert_eq!(window.limit(), 1);
        (0..3).for_each(|_| window.widen());
        assert_eq!(window.limit(), 3);
        (0..100_000).for_each(|_| window.widen());
        assert_eq!(window.limit(), MOST);
    }

    #[test]
    fn no_more_are_in_flight_than_the_window_has() {
        let window = Window::new();
        (0..9).for_each(|_| window.halve());
        assert!(window.take() && !window.take());
        drop(Permit(&window));
        assert!(window.take());
    }
}
