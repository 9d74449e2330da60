//! The scheduler of a story: which thread runs next and what time it is depend only on the story's
//! seed.
//!
//! One thread runs at a time. A thread yields when it waits for another thread, and may be
//! preempted at calls of members; a random choice selects one of the threads that are able to run.
//! Time is a number that grows with the work done, and jumps ahead if all threads wait for it;
//! nothing really sleeps.
//!
//! This module does not know which calls of the C library these are (see `calls`).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pinstripe_sim::Dice;

/// The simulated time that a call of a member takes.
const CALL_NANOS: u64 = 20_000;
/// The simulated time that reading the clock takes, so that a thread that polls the clock until a
/// time eventually gets there.
const ASKING_NANOS: u64 = 100;
/// One in this number of calls takes long, so that timers expire while other work is in progress.
const LONG_ONE_OF: usize = 500;
const LONG_MOST_NANOS: usize = 1_500_000_000;
/// The most calls of a story; a story with more calls would never end.
const CALLS_MOST: u64 = 20_000_000;

/// The right of one thread to run.
#[derive(Default)]
pub struct Turn(AtomicU32);

/// Turns of threads that have ended; they are kept because the kernel may still access a word that
/// was passed to it.
static SPARE: Mutex<Vec<&'static Turn>> = Mutex::new(Vec::new());

fn spare() -> MutexGuard<'static, Vec<&'static Turn>> {
    SPARE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Turn {
    pub fn give(&self, wake: impl FnOnce(&AtomicU32)) {
        self.0.store(1, Ordering::Release);
        wake(&self.0);
    }

    pub fn wait(&self, wait: impl Fn(&AtomicU32)) {
        while self.0.swap(0, Ordering::Acquire) == 0 {
            wait(&self.0);
        }
    }
}

/// The event that a thread waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// The thread waits for nothing: it is able to run.
    Nothing,
    /// A word of memory that another thread changes, perhaps with a time limit.
    Word {
        address: usize,
        until: Option<u64>,
    },
    Moment(u64),
    EndOf(usize),
    /// A number of calls of a process after it opened its store, or the end of that process.
    Calls {
        process: usize,
        calls: u64,
    },
}

impl Wait {
    fn until(self) -> Option<u64> {
        match self {
            Wait::Word { until, .. } => until,
            Wait::Moment(until) => Some(until),
            Wait::Nothing | Wait::EndOf(_) | Wait::Calls { .. } => None,
        }
    }
}

struct Thread {
    turn: &'static Turn,
    wait: Wait,
    /// Whether the thread's last wait ended because of its time limit.
    is_late: bool,
    /// The process to which the thread belongs, if the story counts the calls of that process.
    process: Option<usize>,
}

/// The progress of a process of the story, for threads that wait for it.
#[derive(Default)]
struct Progress {
    has_opened: bool,
    is_over: bool,
    /// The number of calls of members since the process opened its store.
    calls: u64,
}

/// Counts of the schedule so far.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// The number of calls of members.
    pub calls: u64,
    /// The number of points at which more than one thread was able to run next.
    pub choices: u64,
    /// A hash of all choices in order; two runs with the same value had the same order.
    pub order: u64,
}

pub struct Schedule {
    dice: Dice,
    random: Dice,
    /// The threads that have not ended, by their number.
    threads: BTreeMap<usize, Thread>,
    processes: BTreeMap<usize, Progress>,
    next_number: usize,
    nanos: u64,
    /// At one in this number of calls, the turn may go to another thread.
    changes_one_of: usize,
    pub counts: Counts,
}

impl Schedule {
    /// The schedule of a seed; its clock begins this number of seconds after the usual beginning.
    pub fn new(seed: u64, seconds: u64) -> Self {
        let mut dice = Dice::new(seed ^ 0x005e_ed0f_5c4e_d01e);
        let changes_one_of = *dice.pick(&[1, 3, 10, 50]);
        let random = Dice::new(dice.next());
        Schedule {
            dice,
            random,
            threads: BTreeMap::new(),
            processes: BTreeMap::new(),
            next_number: 0,
            nanos: (1 + seconds) * 1_000_000_000,
            changes_one_of,
            counts: Counts::default(),
        }
    }

    /// Adds a thread that is able to run. The thread belongs to the process of the thread that
    /// starts it.
    pub fn begin(&mut self, starter: Option<usize>) -> (usize, &'static Turn) {
        let process = starter.and_then(|starter| self.threads[&starter].process);
        let turn = spare().pop().unwrap_or_else(|| Box::leak(Box::default()));
        let number = self.next_number;
        self.next_number += 1;
        self.threads.insert(number, Thread { turn, wait: Wait::Nothing, is_late: false, process });
        (number, turn)
    }

    /// Assigns a thread, and the threads that it starts from now on, to this process.
    pub fn take_part(&mut self, own: usize, process: Option<usize>) {
        self.threads.get_mut(&own).expect("it has not ended").process = process;
    }

    /// Records that the process has opened its store; its calls count from now on.
    pub fn has_opened(&mut self, process: usize) {
        self.processes.entry(process).or_default().has_opened = true;
        self.wake_for(process);
    }

    /// Records that the process has ended; returns the number of its calls since it opened its
    /// store.
    pub fn leave(&mut self, process: usize) -> u64 {
        self.processes.entry(process).or_default().is_over = true;
        self.wake_for(process);
        self.processes[&process].calls
    }

    /// Forgets all processes; their numbers are assigned again.
    pub fn forget_processes(&mut self) {
        self.processes.clear();
    }

    fn has_come(&self, process: usize, calls: u64) -> bool {
        let has_come = |it: &Progress| it.is_over || (it.has_opened && it.calls >= calls);
        self.processes.get(&process).is_some_and(has_come)
    }

    fn wake_for(&mut self, of: usize) {
        let progress = &self.processes[&of];
        for thread in self.threads.values_mut() {
            if let Wait::Calls { process, calls } = thread.wait
                && process == of
                && (progress.is_over || (progress.has_opened && progress.calls >= calls))
            {
                thread.wait = Wait::Nothing;
            }
        }
    }

    /// Makes a thread wait until a process has made this number of calls; returns which thread runs
    /// next.
    pub fn await_calls(&mut self, own: usize, process: usize, calls: u64) -> Option<&'static Turn> {
        if self.has_come(process, calls) {
            return None;
        }
        self.wait(own, Wait::Calls { process, calls })
    }

    /// Ends a thread; returns which thread runs next.
    pub fn end(&mut self, own: usize) -> Option<&'static Turn> {
        spare().extend(self.threads.remove(&own).map(|thread| thread.turn));
        for thread in self.threads.values_mut().filter(|it| it.wait == Wait::EndOf(own)) {
            thread.wait = Wait::Nothing;
        }
        (!self.threads.is_empty()).then(|| self.choose(None)).flatten()
    }

    pub fn is_over(&self, number: usize) -> bool {
        !self.threads.contains_key(&number)
    }

    /// Whether no other thread will ever be able to run.
    pub fn is_alone(&self, own: usize) -> bool {
        let is_stuck = |(number, thread): (&usize, &Thread)| {
            *number == own || (thread.wait != Wait::Nothing && thread.wait.until().is_none())
        };
        self.threads.iter().all(is_stuck)
    }

    /// Lets the other threads run to their ends, after this thread has finished its work; returns
    /// which thread runs next.
    pub fn linger(&mut self, own: usize) -> Option<&'static Turn> {
        let others = || self.threads.iter().filter(|(number, _)| **number != own);
        let could_go = others().any(|(_, thread)| thread.wait == Wait::Nothing);
        match others().filter_map(|(_, thread)| thread.wait.until()).min() {
            Some(until) if !could_go => self.wait(own, Wait::Moment(until)),
            _ => self.give_way(own),
        }
    }

    /// Counts a call of a member; returns the thread that runs next, unless that is the same
    /// thread.
    pub fn call(&mut self, own: usize) -> Option<&'static Turn> {
        self.counts.calls += 1;
        assert!(self.counts.calls < CALLS_MOST, "the story does not end");
        if let Some(process) = self.threads[&own].process
            && let Some(progress) = self.processes.get_mut(&process).filter(|it| it.has_opened)
        {
            progress.calls += 1;
            self.wake_for(process);
        }
        self.pass(CALL_NANOS);
        if self.dice.below(LONG_ONE_OF) == 0 {
            let nanos = self.dice.below(LONG_MOST_NANOS) as u64;
            self.pass(nanos);
        }
        if self.dice.below(self.changes_one_of) > 0 {
            return None;
        }
        self.choose(Some(own))
    }

    /// Lets other threads run first.
    pub fn give_way(&mut self, own: usize) -> Option<&'static Turn> {
        self.pass(CALL_NANOS);
        self.choose(Some(own))
    }

    /// Makes a thread wait; returns the thread that runs next, unless that is the same thread.
    pub fn wait(&mut self, own: usize, wait: Wait) -> Option<&'static Turn> {
        let thread = self.threads.get_mut(&own).expect("it has not ended");
        (thread.wait, thread.is_late) = (wait, false);
        self.choose(Some(own))
    }

    /// Whether the thread's last wait ended because of its time limit.
    pub fn is_late(&self, own: usize) -> bool {
        self.threads[&own].is_late
    }

    /// Ends the waits of at most this number of threads for a word; returns how many were woken.
    pub fn wake(&mut self, address: usize, most: usize) -> usize {
        let is_it = |wait: Wait| matches!(wait, Wait::Word { address: it, .. } if it == address);
        let waiting = self.threads.iter().filter(|(_, thread)| is_it(thread.wait));
        let mut waiting: Vec<usize> = waiting.map(|(number, _)| *number).collect();
        while waiting.len() > most {
            waiting.remove(self.dice.below(waiting.len()));
        }
        for number in &waiting {
            self.threads.get_mut(number).expect("found above").wait = Wait::Nothing;
        }
        waiting.len()
    }

    /// Returns the time to a thread that reads the clock.
    pub fn ask_time(&mut self) -> u64 {
        self.pass(ASKING_NANOS);
        self.nanos
    }

    pub fn time(&self) -> u64 {
        self.nanos
    }

    pub fn fill(&mut self, bytes: &mut [u8]) {
        for piece in bytes.chunks_mut(8) {
            let drawn = self.random.next().to_le_bytes();
            piece.copy_from_slice(&drawn[..piece.len()]);
        }
    }

    fn pass(&mut self, nanos: u64) {
        self.nanos += nanos;
        for thread in self.threads.values_mut() {
            if thread.wait.until().is_some_and(|until| until <= self.nanos) {
                (thread.wait, thread.is_late) = (Wait::Nothing, true);
            }
        }
    }

    /// Draws which of the threads that are able to run is next; if none is, time advances.
    fn choose(&mut self, own: Option<usize>) -> Option<&'static Turn> {
        let could = |it: &Self| -> Vec<usize> {
            let ready = it.threads.iter().filter(|(_, thread)| thread.wait == Wait::Nothing);
            ready.map(|(number, _)| *number).collect()
        };
        let mut ready = could(self);
        if ready.is_empty() {
            let next = self.threads.values().filter_map(|thread| thread.wait.until()).min();
            let Some(next) = next else { self.say_stuck() };
            self.pass(next.saturating_sub(self.nanos));
            ready = could(self);
        }
        let next = match ready[..] {
            [only] => only,
            _ => {
                self.counts.choices += 1;
                *self.dice.pick(&ready)
            }
        };
        let order = self.counts.order ^ next as u64;
        self.counts.order = order.wrapping_mul(0x0000_0100_0000_01b3).rotate_left(17);
        (Some(next) != own).then(|| self.threads[&next].turn)
    }

    fn say_stuck(&self) -> ! {
        eprintln!("stories: every thread waits for another one, for ever:");
        for (number, thread) in &self.threads {
            eprintln!("  {number}: {:?}", thread.wait);
        }
        std::process::abort()
    }
}
