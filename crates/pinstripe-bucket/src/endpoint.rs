//! State that all sessions with one endpoint share, and whether the endpoint answers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pinstripe_base::clock;

use crate::bandwidth::{Bandwidth, RateLimit};
use crate::fault::Fault;
use crate::locks::{BucketLock, RankedMutex};
use crate::traffic::Counters;
use crate::window::Window;

/// How long a silent endpoint rests, that is, gets no requests; the time doubles with each rest.
const REST: Duration = Duration::from_secs(10);
const REST_MAX: Duration = Duration::from_secs(160);

/// The state that all sessions with one endpoint share.
pub struct Endpoint {
    pub counters: Arc<Counters>,
    pub window: Window,
    pub health: Health,
    pub up: RateLimit,
    pub down: RateLimit,
    pub latency: Latency,
}

impl Endpoint {
    pub fn new(bandwidth: Bandwidth) -> Self {
        let (up, down) = (RateLimit::new(bandwidth.up), RateLimit::new(bandwidth.down));
        let (counters, health) = (Arc::default(), Health::default());
        let (window, latency) = (Window::new(), Latency::default());
        Endpoint { counters, window, health, up, down, latency }
    }
}

/// The number of bytes that a request moves.
#[derive(Clone, Copy, Default)]
pub struct Load {
    pub up: u64,
    /// Bytes received from the endpoint, if the number is known in advance.
    pub down: u64,
    /// The most bytes that may be received.
    pub most_down: u64,
}

impl Load {
    pub fn up(bytes: u64) -> Self {
        Load { up: bytes, ..Load::default() }
    }

    /// The time that is allowed for moving the bytes.
    pub fn time(self) -> Duration {
        Duration::from_secs((self.up + self.most_down) >> 20)
    }
}

/// The latency of short answers: a moving average in which each new answer counts a quarter.
pub struct Latency(RankedMutex<Option<Duration>>);

impl Default for Latency {
    fn default() -> Self {
        Latency(RankedMutex::new(BucketLock::Latency, None))
    }
}

/// Requests that move at most this many bytes are used to measure latency, because longer ones
/// measure bandwidth.
const SHORT_BYTES: u64 = 128 << 10;

impl Latency {
    /// Records that a request with this load was answered after this time.
    pub fn saw(&self, load: Load, took: Duration) {
        if load.up.max(load.most_down) <= SHORT_BYTES {
            let mut mean = self.0.lock();
            *mean = Some(mean.map_or(took, |mean| (mean * 3 + took) / 4));
        }
    }

    /// The average latency of short answers, if there were any.
    pub fn mean(&self) -> Option<Duration> {
        *self.0.lock()
    }
}

/// Whether an endpoint answers.
pub struct Health(RankedMutex<LastHeard>);

impl Default for Health {
    fn default() -> Self {
        Health(RankedMutex::new(BucketLock::Health, LastHeard::default()))
    }
}

#[derive(Default)]
struct LastHeard {
    has_answered: bool,
    /// Since when the endpoint rests, for how long, and the fault that calls get during that time.
    rests: Option<(Instant, Duration, Fault)>,
}

impl Health {
    /// Whether the endpoint ever answered, and the fault that makes it rest now.
    pub fn state(&self) -> (bool, Option<Fault>) {
        let heard = self.0.lock();
        let rests = heard.rests.as_ref().filter(|(began, rest, _)| clock::since(*began) < *rest);
        (heard.has_answered, rests.map(|(.., fault)| fault.clone()))
    }

    pub fn answered(&self) {
        *self.0.lock() = LastHeard { has_answered: true, rests: None };
    }

    /// Records that the endpoint answered, but not to this request.
    pub(crate) fn spoke(&self) {
        self.0.lock().has_answered = true;
    }

    /// Lets the endpoint rest after it was silent, or refused requests, for an entire call.
    pub(crate) fn leave_alone(&self, fault: &Fault) {
        let mut heard = self.0.lock();
        let rest = heard.rests.as_ref().map_or(REST, |(_, rest, _)| (*rest * 2).min(REST_MAX));
        *heard = LastHeard {
            has_answered: false,
            rests: Some((clock::monotonic(), rest, fault.clone())),
        };
    }
}
