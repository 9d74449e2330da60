//! The processes that act on the store, and how they end: each counts as alive until it is over.
//!
//! The next process settles the session of a killed writer only when that writer's process is gone.
//! So an operation that may be cut off acts under the number of a child process, which ends when
//! the operation does. Never here: what the operations do.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use pinstripe_member::Steps;
use pinstripe_member::session::Process;
use pinstripe_sim::Site;
use pinstripe_sim::Story;
use pinstripe_sim::{SentWork, Stage, Trace, Who, Work};

use crate::trace;

/// Stories as long as those of users, with threads and processes of the system.
pub struct Threads;

impl Stage for Threads {
    fn faults(&self) -> &'static str {
        ""
    }

    fn judged_every(&self) -> usize {
        6
    }

    fn is_checked_each_time(&self, _: &Story) -> bool {
        true
    }

    fn is_healed_at_the_end(&self, _: &Story) -> bool {
        true
    }

    fn site(&self, story: &Story) -> Site {
        Site::new(story.members, story.parity)
    }

    fn trace(&self) -> Arc<dyn Trace> {
        Arc::<trace::Trace>::default()
    }

    fn alone(&self, _: &'static str, steps: Arc<dyn Steps>, work: Work<'_>) {
        live(steps, work);
    }

    fn at_once(&self, [one, two]: [Arc<dyn Steps>; 2], [first, second]: [SentWork<'_>; 2]) {
        std::thread::scope(|scope| {
            let second = scope.spawn(|| live(two, second));
            live(one, first);
            second.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        });
    }
}

/// Runs `work` as a process that is over afterwards.
fn live(steps: Arc<dyn Steps>, work: Work<'_>) {
    let life = Life::begin();
    let process = life.process();
    work(&Who::new(process.pid.to_string(), steps, process));
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
        Process { pid, started_ticks, ..pinstripe_member::own_process() }
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}
