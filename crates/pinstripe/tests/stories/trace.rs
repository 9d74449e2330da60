//! The trace of what every process of a story did to its members, step by step; each step is a
//! call of the member seam, before which another thread may go.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pinstripe_member::{DiskStep, Steps};

use pinstripe_schedule::seam;
use pinstripe_sim::Who;

static IS_KEPT: AtomicBool = AtomicBool::new(false);
static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// The trace of the story that is played: there is one at a time.
#[derive(Default)]
pub struct Trace;

impl Trace {
    /// Begins anew; says whether anything is kept.
    pub fn begin(is_kept: bool) {
        IS_KEPT.store(is_kept, Ordering::Relaxed);
        lines().clear();
    }

    pub fn note(&self, line: &str) {
        if IS_KEPT.load(Ordering::Relaxed) {
            lines().push(line.to_owned());
        }
    }

    pub fn text(&self) -> String {
        lines().join("\n") + "\n"
    }

    /// The steps of a process, traced.
    pub fn before(trace: &Arc<Trace>, who: &Who) -> Arc<dyn Steps> {
        let (trace, process, steps) =
            (Arc::clone(trace), who.name().to_owned(), Arc::clone(&who.steps));
        Arc::new(Traced { trace, process, steps })
    }
}

impl pinstripe_sim::Trace for Trace {
    fn note(&self, line: &str) {
        Trace::note(self, line);
    }

    fn text(&self) -> String {
        Trace::text(self)
    }

    fn before(self: Arc<Self>, who: &Who) -> Arc<dyn Steps> {
        Trace::before(&self, who)
    }
}

fn lines() -> MutexGuard<'static, Vec<String>> {
    LINES.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Traced {
    trace: Arc<Trace>,
    process: String,
    steps: Arc<dyn Steps>,
}

impl Steps for Traced {
    fn take(&self, step: &DiskStep<'_>, act: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        seam();
        let done = self.steps.take(step, act);
        if IS_KEPT.load(Ordering::Relaxed) {
            let end = if done.is_ok() { "" } else { ": refused" };
            self.trace.note(&format!("   {} {step:?}{end}", self.process));
        }
        done
    }

    fn free_bytes(&self, member: &Path) -> Option<u64> {
        self.steps.free_bytes(member)
    }
}
