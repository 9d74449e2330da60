//! Runs jobs that serve something together: when one ends, all are stopped.

use std::sync::Mutex;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::sync::{Stop, lock};

/// A job; it ends soon after the shared stop is set.
pub type Job<'a> = Box<dyn FnOnce() -> Result<()> + Send + 'a>;

/// Runs each job in a thread of its own. The first job that ends, with or without an error, sets
/// `stop`.
///
/// # Errors
/// Fails with the first error of a job; all jobs have ended by then.
pub fn run_until_first_exit(stop: &Stop, jobs: Vec<Job<'_>>) -> Result<()> {
    let failed: Mutex<Option<Error>> = Mutex::new(None);
    let keep = |error: Error| _ = lock(&failed).get_or_insert(error);
    std::thread::scope(|scope| {
        for job in jobs {
            let keep = &keep;
            let run = move || {
                // Also when the job panics; the panic is propagated after all have ended.
                let _stopper = StopOnDrop(stop);
                if let Err(error) = job() {
                    keep(error);
                }
            };
            let started = std::thread::Builder::new().name("serve".to_owned());
            if let Err(error) = started.spawn_scoped(scope, run) {
                stop.set();
                keep(Error::new(Kind::Io, format!("cannot start a thread: {error}")));
            }
        }
    });
    let failed = lock(&failed).take();
    failed.map_or(Ok(()), Err)
}

struct StopOnDrop<'a>(&'a Stop);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.set();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn until(stop: &Stop) -> Result<()> {
        assert!(stop.wait(Duration::MAX));
        Ok(())
    }

    #[test]
    fn when_one_ends_all_end() {
        let stop = Stop::new().unwrap();
        let first: Job<'_> = Box::new(|| Ok(()));
        run_until_first_exit(&stop, vec![Box::new(|| until(&stop)), first]).unwrap();
        assert!(stop.is_set());
    }

    #[test]
    fn the_first_error_is_told() {
        let stop = Stop::new().unwrap();
        let failing: Job<'_> = Box::new(|| Err(Error::new(Kind::Busy, "no")));
        let jobs = vec![Box::new(|| until(&stop)) as Job<'_>, failing];
        let error = run_until_first_exit(&stop, jobs).unwrap_err();
        assert_eq!(error.kind(), Kind::Busy);
    }
}
