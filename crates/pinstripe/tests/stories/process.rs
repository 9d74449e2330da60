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
use pinstripe_member::session::Process;
use rustix::process::{Pid, test_kill_process};

use pinstripe_schedule::aside;
use pinstripe_sim::Story;
use pinstripe_sim::{NoWait, Site};
use pinstripe_sim::{SentWork, Stage, Trace, Who, Work};

use crate::{driver, trace};

/// Short stories, each in an order that follows from its seed.
pub struct Scheduled;

impl Stage for Scheduled {
    /// Each call takes a moment, in which others may go first.
    fn faults(&self) -> &'static str {
        "delay=1us"
    }

    /// There is one comparison, at the end.
    fn judged_every(&self) -> usize {
        usize::MAX
    }

    /// A check takes as long as all else, and to find what a later operation hides some stories are
    /// enough.
    fn is_checked_each_time(&self, story: &Story) -> bool {
        story.seed.is_multiple_of(4)
    }

    /// It takes as long as the story itself.
    fn is_healed_at_the_end(&self, story: &Story) -> bool {
        story.seed.is_multiple_of(8)
    }

    fn site(&self, story: &Story) -> Site {
        let site = Site::bare_in(driver::directory(story.seed), story.members);
        site.init(story.parity, "4K", Arc::new(NoWait)).unwrap();
        site
    }

    fn trace(&self) -> Arc<dyn Trace> {
        Arc::<trace::Trace>::default()
    }

    fn alone(&self, name: &'static str, steps: Arc<dyn Steps>, work: Work<'_>) {
        work(&Who::new(name, steps, dead()));
    }

    fn at_once(&self, [one, two]: [Arc<dyn Steps>; 2], [first, second]: [SentWork<'_>; 2]) {
        let lives = [Life::begin(), Life::begin()];
        let [living, other] = [&lives[0], &lives[1]].map(Life::process);
        std::thread::scope(|scope| {
            let second = scope.spawn(move || second(&Who::new("second", two, other)));
            first(&Who::new("first", one, living));
            second.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        });
        drop(lives);
    }
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
            let own = pinstripe_member::own_process();
            let process = Process { pid: pid as u32, started_ticks, ..own };
            Life { process, end: Some(end), thread: Some(thread) }
        })
    }

    /// Its number and the time at which it began.
    pub fn process(&self) -> Process {
        self.process
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
    let own = pinstripe_member::own_process();
    let started_ticks = own.started_ticks + DEAD.fetch_add(1, Ordering::Relaxed);
    Process { started_ticks, ..own }
}
