//! The processes that act on the store of a story, and how they end. This module does not define
//! what the processes do.

use std::sync::Arc;

use pinstripe_member::Steps;
use pinstripe_member::session::Process;

use crate::ends::{StepsOfTwo, cut_off};
use crate::operation::{End, Story};
use crate::support::{NoWait, Site};

/// How a test program plays stories: with threads and processes of the system, or in an order that
/// a seed determines.
pub trait Stage: Sync {
    /// The faults of every member, in addition to those of an operation.
    fn faults(&self) -> &'static str;

    /// The number of operations between two comparisons of the store with the model.
    fn judged_every(&self) -> usize;

    /// Whether `check` runs after each operation of a story, and not only at the end of the story.
    fn is_checked_each_time(&self, story: &Story) -> bool;

    /// Whether the store is repaired and emptied at the end of a story.
    fn is_healed_at_the_end(&self, story: &Story) -> bool;

    /// The directory of a story.
    fn site(&self, story: &Story) -> Site;

    /// The trace of a new story.
    fn trace(&self) -> Arc<dyn Trace>;

    /// Calls `work` once, as a process with these steps that ends afterwards.
    fn alone(&self, name: &'static str, steps: Arc<dyn Steps>, work: Work<'_>);

    /// Calls each of two functions once, in parallel, as separate processes with these steps.
    fn at_once(&self, steps: [Arc<dyn Steps>; 2], works: [SentWork<'_>; 2]);
}

/// The work of a process.
pub type Work<'a> = &'a mut dyn FnMut(&Who);
/// The work of a process that can run on any thread.
pub type SentWork<'a> = &'a mut (dyn FnMut(&Who) + Send);

/// The trace of what every process did to its members.
pub trait Trace: Send + Sync {
    /// Adds a line.
    fn note(&self, line: &str);

    /// All lines.
    fn text(&self) -> String;

    /// Returns steps that trace the process and then call its own steps.
    fn before(self: Arc<Self>, who: &Who) -> Arc<dyn Steps>;
}

/// The process that opens a store, and the hook that receives its steps.
#[derive(Clone)]
pub struct Who {
    pub steps: Arc<dyn Steps>,
    pub process: Option<Process>,
    name: String,
}

impl Who {
    /// A process with a name for the trace.
    pub fn new(name: impl Into<String>, steps: Arc<dyn Steps>, process: Process) -> Self {
        Who { steps, process: Some(process), name: name.into() }
    }

    /// Returns this process, without any disturbance.
    pub fn own() -> Self {
        Who { steps: Arc::new(NoWait), process: None, name: "own".to_owned() }
    }

    /// Returns a process of another host.
    pub fn elsewhere(steps: Arc<dyn Steps>, process: Process) -> Self {
        Who::new("elsewhere", steps, process)
    }

    /// Returns the same process with other steps.
    pub fn with_steps(&self, steps: Arc<dyn Steps>) -> Self {
        Who { steps, ..self.clone() }
    }

    /// The name of the process in the trace.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// A call of `work` whose result is kept.
struct Call<W, T> {
    work: Option<W>,
    done: Option<T>,
}

impl<T, W: FnOnce(&Who) -> T> Call<W, T> {
    fn new(work: W) -> Self {
        Call { work: Some(work), done: None }
    }

    fn carry_out(&mut self, who: &Who) {
        self.done = self.work.take().map(|work| work(who));
    }

    fn done(self) -> T {
        self.done.expect("a stage calls each work once")
    }
}

/// Runs `work` until the drawn end; returns whether that end came before the work was done.
pub fn under<T>(stage: &dyn Stage, end: End, work: impl FnOnce(&Who) -> T) -> (T, bool) {
    let (End::Killed(cut) | End::PowerCut(cut, _)) = end else {
        return (work(&Who::own()), false);
    };
    let power = Arc::new(cut.power());
    let mut call = Call::new(work);
    let steps = Arc::clone(&power) as Arc<dyn Steps>;
    stage.alone("doomed", steps, &mut |who| call.carry_out(who));
    (call.done(), cut_off(end, &power))
}

/// Runs `work` as a process that leaves nothing behind except what a fault makes it leave.
pub fn mortal<T>(stage: &dyn Stage, work: impl FnOnce(&Who) -> T) -> T {
    let mut call = Call::new(work);
    stage.alone("mortal", Arc::new(NoWait), &mut |who| call.carry_out(who));
    call.done()
}

/// Runs two functions in parallel, each as a process of its own. A power cut ends both; a kill ends
/// the first.
pub fn at_once<A: Send, B: Send>(
    stage: &dyn Stage,
    end: End,
    first: impl FnOnce(&Who) -> A + Send,
    second: impl FnOnce(&Who) -> B + Send,
) -> ((A, bool), (B, bool)) {
    let steps = StepsOfTwo::until(end);
    let (mut one, mut two) = (Call::new(first), Call::new(second));
    stage.at_once(
        [Arc::clone(&steps.first), Arc::clone(&steps.second)],
        [&mut |who| one.carry_out(who), &mut |who| two.carry_out(who)],
    );
    let (is_first_cut, is_second_cut) = steps.cut_off();
    ((one.done(), is_first_cut), (two.done(), is_second_cut))
}
