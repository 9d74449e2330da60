//! The trace of what every process did to names on the members: renames and unlinks, in order.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use pinstripe_member::{DiskStep, Steps};

use pinstripe_sim::Who;

#[derive(Default)]
pub struct Trace(Mutex<Vec<String>>);

impl Trace {
    pub fn note(&self, line: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(line.to_owned());
    }

    pub fn text(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).join("\n") + "\n"
    }

    /// The steps of a process, traced.
    pub fn before(trace: &Arc<Trace>, who: &Who) -> Arc<dyn Steps> {
        let process = who.name().to_owned();
        Arc::new(Traced { trace: Arc::clone(trace), process, steps: Arc::clone(&who.steps) })
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

struct Traced {
    trace: Arc<Trace>,
    process: String,
    steps: Arc<dyn Steps>,
}

impl Steps for Traced {
    fn take(&self, step: &DiskStep<'_>, act: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        let done = self.steps.take(step, act);
        let told = match step {
            DiskStep::Rename { to, .. } => Some(("renames to", to)),
            DiskStep::Unlink(path) => Some(("unlinks", path)),
            _ => None,
        };
        if let Some((verb, path)) = told {
            let path = Path::display(path);
            let end = if done.is_ok() { "" } else { ": refused" };
            self.trace.note(&format!("   {} {verb} {path}{end}", self.process));
        }
        done
    }
}
