//! The attempts of one call: how long it may take, and when it is sent again.

use std::time::{Duration, Instant};

use pinstripe_base::clock;

use crate::endpoint::{Endpoint, Load};
use crate::fault::Fault;

/// A call with all its attempts may take so long, with the same addition.
pub const CALL: Duration = Duration::from_secs(20);
/// A call to an endpoint that has not answered yet, and one that it refuses to connect.
const FIRST_CALL: Duration = Duration::from_secs(9);
const FIRST_CONNECT: Duration = Duration::from_secs(1);
/// The first pause before a request is sent again; it doubles.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(4);
/// Answers that are none of S3's until a call gives up: what answers so may not be S3.
const ODD_MAX: usize = 3;

/// The attempts of one call.
pub struct Attempts {
    pub began: Instant,
    call: Duration,
    has_answered: bool,
    pause: Duration,
    /// Answers that were none of S3's.
    odd: usize,
}

impl Attempts {
    /// The attempts of a call that moves so much; none while the endpoint is left alone.
    pub fn of(endpoint: &Endpoint, data: Duration) -> Result<Attempts, Fault> {
        let (has_answered, rests) = endpoint.health.look();
        match rests {
            Some(fault) => Err(fault),
            None => {
                let call = if has_answered { CALL } else { FIRST_CALL } + data;
                Ok(Attempts { began: clock::monotonic(), call, has_answered, pause: PAUSE, odd: 0 })
            }
        }
    }

    pub fn left(&self) -> Duration {
        self.call.saturating_sub(clock::since(self.began))
    }

    /// Waits until so many bytes may go; that is not the endpoint's time.
    pub async fn wait(&mut self, endpoint: &Endpoint, load: Load) {
        if endpoint.up.is_limited() || endpoint.down.is_limited() {
            let began = clock::monotonic();
            endpoint.up.wait(load.up).await;
            endpoint.down.wait(load.down).await;
            self.began += clock::since(began);
        }
    }

    /// Waits until the request may be sent again. It went out when the window had been halved so
    /// often.
    ///
    /// # Errors
    /// The fault, when sending again is of no use or the time is over.
    pub async fn next(
        &mut self,
        endpoint: &Endpoint,
        fault: Fault,
        halved: u64,
    ) -> Result<(), Fault> {
        if !fault.is_silence() {
            endpoint.health.answered();
        }
        let mut asked_for = Duration::ZERO;
        if let Fault::Refused(refusal) = &fault
            && refusal.is_throttle()
        {
            endpoint.window.halve(halved);
            asked_for = refusal.retry_after.min(PAUSE_MAX);
        }
        self.odd += usize::from(matches!(fault, Fault::Odd(_)));
        if !fault.is_transient() || self.odd == ODD_MAX {
            return Err(fault);
        }
        let is_refused = matches!(fault, Fault::Cut(_)) && !self.has_answered;
        let is_over = is_refused && clock::since(self.began) >= FIRST_CONNECT;
        if is_over || self.left() <= self.pause {
            if fault.is_silence() {
                endpoint.health.was_silent(&fault);
            }
            return Err(fault);
        }
        tokio::time::sleep(asked_for + jittered(self.pause)).await;
        self.pause = longer(self.pause);
        endpoint.counters.retried();
        Ok(())
    }
}

/// Waits, the first time not at all; returns the pause for the next time.
pub async fn pause(pause: Duration) -> Duration {
    tokio::time::sleep(jittered(pause)).await;
    longer(pause).max(PAUSE)
}

fn longer(pause: Duration) -> Duration {
    (pause * 2).min(PAUSE_MAX)
}

/// A pause of half to one and a half of this length.
fn jittered(pause: Duration) -> Duration {
    let chance = pinstripe_base::id::random::<1>().map_or(128, |[byte]| u32::from(byte));
    pause / 2 + pause * chance / 256
}
