//! Jobs that serve something together: when one ends, all are stopped.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};

use pinstripe_base::error::{Error, Kind, Result};

/// A job; it ends soon after the flag that all share is set.
pub type Job<'a> = Box<dyn FnOnce() -> Result<()> + Send + 'a>;

/// Runs each job in a thread of its own. The first one that ends, in whatever way, sets `stop`.
///
/// # Errors
/// The first of the jobs'; what they were doing is over then, all of it.
pub fn together(stop: &AtomicBool, jobs: Vec<Job<'_>>) -> Result<()> {
    let failed: Mutex<Option<Error>> = Mutex::new(None);
    let keep = |error: Error| {
        failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    };
    std::thread::scope(|scope| {
        for job in jobs {
            let keep = &keep;
            let run = move || {
                // Set also when the job panics; the panic itself goes on when all have ended.
                let _told = Told(stop);
                if let Err(error) = job() {
                    keep(error);
                }
            };
            let started = std::thread::Builder::new().name("serve".to_owned());
            if let Err(error) = started.spawn_scoped(scope, run) {
                stop.store(true, Ordering::Relaxed);
                keep(Error::new(Kind::Io, format!("cannot start a thread: {error}")));
            }
        }
    });
    failed.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

struct Told<'a>(&'a AtomicBool);

impl Drop for Told<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn until(stop: &AtomicBool) -> Result<()> {
        while !stop.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        Ok(())
    }

    #[test]
    fn when_one_ends_all_end() {
        let stop = AtomicBool::new(false);
        let first: Job<'_> = Box::new(|| Ok(()));
        together(&stop, vec![Box::new(|| until(&stop)), first]).unwrap();
        assert!(stop.load(Ordering::Relaxed));
    }

    #[test]
    fn the_first_error_is_told() {
        let stop = AtomicBool::new(false);
        let failing: Job<'_> = Box::new(|| Err(Error::new(Kind::Busy, "no")));
        let error = together(&stop, vec![Box::new(|| until(&stop)), failing]).unwrap_err();
        assert_eq!(error.kind(), Kind::Busy);
    }
}
