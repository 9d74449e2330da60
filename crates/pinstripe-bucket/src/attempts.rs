//! The attempts of one call: the call's deadline, and when its request is sent again.

use std::time::{Duration, Instant};

use pinstripe_base::clock;
use pinstripe_member::goes_on;

use crate::endpoint::{Endpoint, Load};
use crate::fault::Fault;

/// The time limit of a call with all its attempts; it is extended for each MiB in the same way as
/// that of one attempt.
pub(crate) const CALL: Duration = Duration::from_secs(20);
/// The time limit of a call to an endpoint that has not answered yet, and of a call whose
/// connections are refused.
const FIRST_CALL: Duration = Duration::from_secs(9);
const FIRST_CONNECT: Duration = Duration::from_secs(1);
/// The first pause before a request is sent again; each further pause is twice as long.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(4);
/// The interval at which a deliberate wait reports progress.
const SIGN: Duration = Duration::from_millis(100);
/// The number of answers that are not S3 after which a call fails: the endpoint may not be an S3
/// server.
const ODD_MAX: usize = 3;

/// The attempts of one call.
pub(crate) struct Attempts {
    pub began: Instant,
    call: Duration,
    has_answered: bool,
    pause: Duration,
    /// The number of answers so far that were not S3.
    odd: usize,
    /// The credentials were read again since the endpoint called them expired.
    is_renewed: bool,
}

impl Attempts {
    /// The attempts of a call that moves data for this time; fails while the endpoint is resting.
    pub(crate) fn for_endpoint(endpoint: &Endpoint, data: Duration) -> Result<Attempts, Fault> {
        let (has_answered, rests) = endpoint.health.state();
        match rests {
            Some(fault) => Err(fault),
            None => {
                let call = if has_answered { CALL } else { FIRST_CALL } + data;
                let began = clock::monotonic();
                let (pause, is_renewed) = (PAUSE, false);
                Ok(Attempts { began, call, has_answered, pause, odd: 0, is_renewed })
            }
        }
    }

    pub fn left(&self) -> Duration {
        self.call.saturating_sub(clock::since(self.began))
    }

    /// Waits until the bandwidth limit allows this load. The time limit of the endpoint is extended
    /// by the wait.
    pub async fn wait(&mut self, endpoint: &Endpoint, load: Load) {
        if endpoint.up.is_limited() || endpoint.down.is_limited() {
            let began = clock::monotonic();
            endpoint.up.wait(load.up).await;
            endpoint.down.wait(load.down).await;
            self.began += clock::since(began);
        }
    }

    /// Waits until the request may be sent again. `halved` is the number of times that the window
    /// had been halved when the request was sent.
    ///
    /// # Errors
    /// Fails with the fault, if another attempt is useless or the time has elapsed.
    pub async fn next(
        &mut self,
        endpoint: &Endpoint,
        fault: Fault,
        halved: u64,
    ) -> Result<(), Fault> {
        let is_silence = fault.is_silence();
        match &fault {
            // A proxy answers for a server that is down: a rest that another call began continues.
            Fault::Refused(refusal) if refusal.is_transient() => endpoint.health.spoke(),
            _ if is_silence => {}
            _ => endpoint.health.answered(),
        }
        let throttle = match &fault {
            Fault::Refused(refusal) if refusal.is_throttle() => Some(refusal.retry_after),
            _ => None,
        };
        if throttle.is_some() {
            endpoint.window.halve(halved);
        }
        let asked_for = throttle.unwrap_or_default().min(PAUSE_MAX);
        self.odd += usize::from(matches!(fault, Fault::Odd(_)));
        // Each request is signed with the credentials that the profile has then.
        let is_expired = matches!(&fault, Fault::Refused(refusal) if refusal.is_expired());
        if is_expired && !std::mem::replace(&mut self.is_renewed, true) {
            return Ok(());
        }
        if !fault.is_transient() || self.odd == ODD_MAX {
            return Err(fault);
        }
        let is_refused = matches!(fault, Fault::Cut(_)) && !self.has_answered;
        let is_over = is_refused && clock::since(self.began) >= FIRST_CONNECT;
        if is_over || self.left() <= self.pause {
            // The endpoint was silent, or refused the call until its end: later calls back off, too.
            if is_silence || matches!(fault, Fault::Refused(_)) {
                endpoint.health.leave_alone(&fault);
            }
            return Err(fault);
        }
        debug_assert!(fault.is_transient(), "no other failure is sent again");
        let until = clock::monotonic() + asked_for + jittered(self.pause);
        loop {
            // A throttling endpoint is alive: report the throttling, not a timeout.
            if !is_silence {
                goes_on();
            }
            let left = until.saturating_duration_since(clock::monotonic());
            if left.is_zero() {
                break;
            }
            tokio::time::sleep(left.min(SIGN)).await;
        }
        self.pause = longer(self.pause);
        debug_assert!(self.pause <= PAUSE_MAX, "each pause ends");
        endpoint.counters.retried();
        Ok(())
    }
}

/// Waits for `pause`, but not before the first retry; returns the pause for the next retry.
pub async fn pause(pause: Duration) -> Duration {
    tokio::time::sleep(jittered(pause)).await;
    longer(pause).max(PAUSE)
}

fn longer(pause: Duration) -> Duration {
    (pause * 2).min(PAUSE_MAX)
}

/// A random pause of half to one and a half of this length.
fn jittered(pause: Duration) -> Duration {
    let chance = pinstripe_base::id::random::<1>().map_or(128, |[byte]| u32::from(byte));
    pause / 2 + pause * chance / 256
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bandwidth::Bandwidth;
    use crate::refusal::Refusal;

    #[test]
    fn an_endpoint_that_refuses_a_whole_call_for_now_is_left_alone() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        for status in [429, 500, 502, 503, 504] {
            let endpoint = Endpoint::new(Bandwidth::default());
            let refusal = Refusal { status, ..Refusal::default() };
            let busy = Fault::Refused(Box::new(refusal));
            let mut attempts = Attempts::for_endpoint(&endpoint, Duration::ZERO).ok().unwrap();
            let mut other = Attempts::for_endpoint(&endpoint, Duration::ZERO).ok().unwrap();
            attempts.call = Duration::ZERO;
            let ended = runtime.block_on(attempts.next(&endpoint, busy.clone(), 0));
            assert_eq!(ended, Err(busy.clone()));
            assert_eq!(Attempts::for_endpoint(&endpoint, Duration::ZERO).err(), Some(busy.clone()));
            // A call that began before and gets the same answer does not end the rest.
            assert_eq!(runtime.block_on(other.next(&endpoint, busy.clone(), 0)), Ok(()));
            assert_eq!(Attempts::for_endpoint(&endpoint, Duration::ZERO).err(), Some(busy));
            endpoint.health.answered();
            assert!(Attempts::for_endpoint(&endpoint, Duration::ZERO).is_ok());
        }
    }

    #[test]
    fn an_expired_token_is_sent_again_once() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let endpoint = Endpoint::new(Bandwidth::default());
        let refusal = Refusal { status: 400, code: "ExpiredToken".into(), ..Refusal::default() };
        let expired = Fault::Refused(Box::new(refusal));
        let mut attempts = Attempts::for_endpoint(&endpoint, Duration::ZERO).ok().unwrap();
        assert_eq!(runtime.block_on(attempts.next(&endpoint, expired.clone(), 0)), Ok(()));
        let again = runtime.block_on(attempts.next(&endpoint, expired.clone(), 0));
        assert_eq!(again, Err(expired));
        assert!(
            Attempts::for_endpoint(&endpoint, Duration::ZERO).is_ok(),
            "the endpoint does not rest"
        );
    }
}
