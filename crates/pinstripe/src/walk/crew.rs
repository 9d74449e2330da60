//! How many workers of a walk are awake: few while tasks need nothing but a processor, all while
//! tasks wait for a disk.
//!
//! A worker more than there are processors finds a directory in memory no sooner: it takes the
//! processor from the one that holds the next task, and each of its short tasks costs a wake-up.
//! On a cold disk it is the other way round, and the only measure of it is whether tasks waited.
//!
//! Pure: no threads, no clock; the walker's lock holds it.

/// So many tasks that did not wait follow one that did before extra workers rest again.
const TASKS_AFTER_A_WAIT: u32 = 8;

/// The workers of a walk; the consumer, which helps, is none of them.
#[derive(Debug)]
pub(super) struct Crew {
    /// Workers awake while no task waits.
    enough: usize,
    awake: usize,
    asleep: usize,
    /// Called, and counted as awake, but not there yet.
    called: usize,
    /// Tasks until extra workers rest.
    tasks_left: u32,
}

impl Crew {
    /// A crew beside a consumer that takes one of these processors.
    pub fn new(processors: usize) -> Self {
        let enough = processors.saturating_sub(1).max(1);
        Crew { enough, awake: 0, asleep: 0, called: 0, tasks_left: 0 }
    }

    /// A worker joins, or one that slept finds that the walk is over.
    pub fn joins(&mut self) {
        self.awake += 1;
    }

    /// A worker leaves for good.
    pub fn leaves(&mut self) {
        self.awake = self.awake.saturating_sub(1);
    }

    /// Whether one of those awake may go on.
    pub fn may_work(&self) -> bool {
        self.awake <= self.enough || self.tasks_left > 0
    }

    /// A worker lies down.
    pub fn sleeps(&mut self) {
        self.leaves();
        self.asleep += 1;
    }

    /// Whether one that sleeps is of use; it is then called, and whoever asks wakes it.
    pub fn calls_one(&mut self) -> bool {
        let is_of_use = self.asleep > 0 && (self.awake < self.enough || self.tasks_left > 0);
        if is_of_use {
            self.asleep -= 1;
            self.called += 1;
            self.awake += 1;
        }
        is_of_use
    }

    /// Whether any sleeps; nobody is expected to any more.
    pub fn calls_all(&mut self) -> bool {
        std::mem::take(&mut self.asleep) > 0
    }

    /// Whether one that has woken up was called; the system also wakes some that were not.
    pub fn was_called(&mut self) -> bool {
        let was_called = self.called > 0;
        self.called = self.called.saturating_sub(1);
        was_called
    }

    /// A task is done.
    pub fn has_done(&mut self, has_waited: bool) {
        self.tasks_left = match has_waited {
            true => TASKS_AFTER_A_WAIT,
            false => self.tasks_left.saturating_sub(1),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Workers that join one after the other, and lie down where they are too many.
    fn joined(processors: usize, workers: usize) -> (Crew, usize) {
        let mut crew = Crew::new(processors);
        for _ in 0..workers {
            crew.joins();
            if !crew.may_work() {
                crew.sleeps();
            }
        }
        let awake = crew.awake;
        (crew, awake)
    }

    #[test]
    fn while_no_task_waits_workers_and_consumer_are_as_many_as_processors() {
        for (processors, workers, awake) in [(1, 8, 1), (2, 8, 1), (4, 8, 3), (16, 8, 8), (2, 0, 0)]
        {
            let (mut crew, found) = joined(processors, workers);
            assert_eq!(found, awake, "{processors} {workers}");
            crew.has_done(false);
            assert!(!crew.calls_one(), "{processors} {workers}");
        }
    }

    #[test]
    fn all_are_called_when_tasks_wait_and_rest_when_they_do_so_no_more() {
        let (mut crew, _) = joined(2, 8);
        crew.has_done(true);
        for _ in 0..7 {
            assert!(crew.calls_one());
            assert!(crew.was_called() && crew.may_work());
        }
        assert!(!crew.calls_one(), "nobody is left");
        for _ in 0..TASKS_AFTER_A_WAIT {
            assert!(crew.may_work());
            crew.has_done(false);
        }
        for awake in (1..8).rev() {
            assert!(!crew.may_work());
            crew.sleeps();
            assert_eq!(crew.awake, awake);
        }
        assert!(crew.may_work());
    }

    #[test]
    fn one_that_was_not_called_stays_asleep() {
        let (mut crew, _) = joined(2, 3);
        assert!(!crew.was_called());
        crew.sleeps();
        assert!(crew.calls_one() && !crew.calls_one(), "one is enough");
        assert!(crew.was_called() && !crew.was_called());
        assert!(crew.calls_all() && !crew.calls_all());
    }
}
