//! The processes that act on the store, and how they end: each counts as alive until it is over.
//!
//! The next process settles the session of a killed writer only when that writer's process is gone.
//! So an operation that may be cut off acts under the number of a child process, which ends when
//! the operation does. Never here: what the operations do.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use pinstripe_member::Steps;
use pinstripe_member::format::session::Process;

use crate::ends::{StepsOfTwo, cut_off};
use crate::operation::{End, Story};
use crate::support::{NoWait, Site};

/// Faults of every member beside those of an operation.
pub const FAULTS: &str = "";

/// Operations between two looks at everything.
pub const JUDGED_EVERY: usize = 6;

/// Whether check is asked after each operation, and not only at the end.
pub fn is_checked_each_time(_: &Story) -> bool {
    true
}

/// Whether the store is made whole and then emptied when the story is over.
pub fn is_healed_at_the_end(_: &Story) -> bool {
    true
}

/// The directory of a story.
pub fn site(story: &Story) -> Site {
    Site::new(story.members, story.parity)
}

/// A child process that does nothing until it is dropped.
struct Life(Child);

impl Life {
    fn begin() -> Self {
        let mut command = Command::new("cat");
        Life(command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap())
    }

    fn process(&self) -> Process {
        let pid = self.0.id();
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let fields = stat.rsplit_once(')').unwrap().1;
        let started_ticks = fields.split_ascii_whitespace().nth(19).unwrap().parse().unwrap();
        Process { pid, started_ticks, ..pinstripe_member::process::own() }
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// The process that opens a store, and the hook that sees its steps.
#[derive(Clone)]
pub struct Who {
    pub steps: Arc<dyn Steps>,
    pub process: Option<Process>,
}

impl Who {
    /// This process, which nothing disturbs.
    pub fn own() -> Self {
        Who { steps: Arc::new(NoWait), process: None }
    }

    /// A process of another host.
    pub fn elsewhere(steps: Arc<dyn Steps>, process: Process) -> Self {
        Who { steps, process: Some(process) }
    }

    /// Its name in the trace.
    pub fn name(&self) -> String {
        self.process.map_or_else(|| "own".to_owned(), |process| process.pid.to_string())
    }
}

/// Runs `work` as a process that is over afterwards.
fn live<T>(steps: Arc<dyn Steps>, work: impl FnOnce(&Who) -> T) -> T {
    let life = Life::begin();
    work(&Who { steps, process: Some(life.process()) })
}

/// Runs `work` to the end that was drawn; says whether that end came before its own.
pub fn under<T>(end: End, work: impl FnOnce(&Who) -> T) -> (T, bool) {
    let (End::Killed(cut) | End::PowerCut(cut, _)) = end else {
        return (work(&Who::own()), false);
    };
    let power = Arc::new(cut.power());
    let done = live(Arc::clone(&power) as Arc<dyn Steps>, work);
    (done, cut_off(end, &power))
}

/// Runs `work` as a process that leaves nothing behind but what a fault made it leave.
pub fn mortal<T>(work: impl FnOnce(&Who) -> T) -> T {
    live(Arc::new(NoWait), work)
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
    let (a, b) = std::thread::scope(|scope| {
        let second = scope.spawn(|| live(two, second));
        let a = live(one, first);
        (a, second.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let (is_first_cut, is_second_cut) = steps.cut_off();
    ((a, is_first_cut), (b, is_second_cut))
}
