//! The processes that act on the store in a story, and how they end.
//!
//! What acts alone and is to die is taken for dead by all others from the beginning: no other
//! process is there to see the difference. Of two at once each must be seen to live until it ends:
//! it acts under the number of a thread that is not one of the story, which the system takes for a
//! process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use pinstripe_member::Steps;
use pinstripe_member::format::session::Process;
use rustix::process::{Pid, test_kill_process};

use crate::calls::aside;
use crate::driver;
use crate::ends::{StepsOfTwo, cut_off};
use crate::operation::{End, Story};
use crate::support::{NoWait, Site};

/// Faults of every member beside those of an operation: each call takes a moment, in which others
/// may go first.
pub const FAULTS: &str = "delay=1us";

/// Operations between two looks at everything: there is one at the end.
pub const JUDGED_EVERY: usize = usize::MAX;

/// Whether check is asked after each operation of a story, and not only at its end: that takes as
/// long as all else, and to find what a later operation hides some stories are enough.
pub fn is_checked_each_time(story: &Story) -> bool {
    story.seed.is_multiple_of(4)
}

/// Whether the store is made whole and then emptied when the story is over: it takes as long as
/// the story itself, so it is done in one of some.
pub fn is_healed_at_the_end(story: &Story) -> bool {
    story.seed.is_multiple_of(8)
}

/// The directory of a story.
pub fn site(story: &Story) -> Site {
    let site = Site::bare_in(driver::directory(story.seed), story.members);
    site.init(story.parity, "4K", Arc::new(NoWait)).unwrap();
    site
}

/// A process that lives until this is dropped.
pub struct Life {
    process: Process,
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Life {
    pub fn begin() -> Self {
        aside(|| {
            let (tell, told) = channel();
            let (end, ended) = channel::<()>();
            let live = move || {
                let _ = tell.send(rustix::thread::gettid());
                let _ = ended.recv();
            };
            let thread = std::thread::Builder::new().stack_size(64 << 10).spawn(live).unwrap();
            let pid = told.recv().unwrap().as_raw_nonzero().get();
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
            let fields = stat.rsplit_once(')').unwrap().1;
            let started_ticks = fields.split_ascii_whitespace().nth(19).unwrap().parse().unwrap();
            let own = pinstripe_member::process::own();
            let process = Process { pid: pid as u32, started_ticks, ..own };
            Life { process, end: Some(end), thread: Some(thread) }
        })
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        aside(|| {
            drop(self.end.take());
            let _ = self.thread.take().map(JoinHandle::join);
            // The system forgets a thread a moment after its end was seen.
            let pid = Pid::from_raw(self.process.pid as i32).unwrap();
            while test_kill_process(pid).is_ok() {
                std::thread::yield_now();
            }
        });
    }
}

/// A process that surely runs no more, each time another one.
fn dead() -> Process {
    static DEAD: AtomicU64 = AtomicU64::new(1);
    let own = pinstripe_member::process::own();
    let started_ticks = own.started_ticks + DEAD.fetch_add(1, Ordering::Relaxed);
    Process { started_ticks, ..own }
}

/// The process that opens a store, and the hook that sees its steps.
#[derive(Clone)]
pub struct Who {
    pub steps: Arc<dyn Steps>,
    pub process: Option<Process>,
    name: &'static str,
}

impl Who {
    /// This process, which nothing disturbs.
    pub fn own() -> Self {
        Who { steps: Arc::new(NoWait), process: None, name: "own" }
    }

    /// A process of another host.
    pub fn elsewhere(steps: Arc<dyn Steps>, process: Process) -> Self {
        Who { steps, process: Some(process), name: "elsewhere" }
    }

    /// A process that is seen to live as long as `life`.
    pub fn living(name: &'static str, steps: Arc<dyn Steps>, life: &Life) -> Self {
        Who { steps, process: Some(life.process), name }
    }

    /// The same process with other steps.
    pub fn with_steps(&self, steps: Arc<dyn Steps>) -> Self {
        Who { steps, ..self.clone() }
    }

    /// Its name in the trace.
    pub fn name(&self) -> String {
        self.name.to_owned()
    }
}

/// Runs `work` to the end that was drawn; says whether that end came before its own.
pub fn under<T>(end: End, work: impl FnOnce(&Who) -> T) -> (T, bool) {
    let (End::Killed(cut) | End::PowerCut(cut, _)) = end else {
        return (work(&Who::own()), false);
    };
    let power = Arc::new(cut.power());
    let steps = Arc::clone(&power) as Arc<dyn Steps>;
    let done = work(&Who { steps, process: Some(dead()), name: "doomed" });
    (done, cut_off(end, &power))
}

/// Runs `work` as a process that leaves nothing behind but what a fault made it leave.
pub fn mortal<T>(work: impl FnOnce(&Who) -> T) -> T {
    work(&Who { steps: Arc::new(NoWait), process: Some(dead()), name: "mortal" })
}

/// Runs two at once, each a process of its own. The power goes off for both; a kill is of the
/// first.
pub fn at_once<A: Send, B: Send>(
    end: End,
    first: impl FnOnce(&Who) -> A + Send,
    second: impl FnOnce(&Who) -> B + Send,
) -> ((A, bool), (B, bool)) {
    let steps = StepsOfTwo::until(end);
    let [one, two] = [&steps.first, &steps.second].map(Arc::clone);
    let lives = [Life::begin(), Life::begin()];
    let [living, other] = [&lives[0], &lives[1]].map(|life| Some(life.process));
    let (a, b) = std::thread::scope(|scope| {
        let second =
            scope.spawn(move || second(&Who { steps: two, process: other, name: "second" }));
        let a = first(&Who { steps: one, process: living, name: "first" });
        (a, second.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    drop(lives);
    let (is_first_cut, is_second_cut) = steps.cut_off();
    ((a, is_first_cut), (b, is_second_cut))
}
