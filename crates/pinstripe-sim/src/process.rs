//! The processes that act on the store of a story, and how they end. Never here: what they do.

use std::sync::Arc;

use pinstripe_member::Steps;
use pinstripe_member::session::Process;

use crate::ends::{StepsOfTwo, cut_off};
use crate::operation::{End, Story};
use crate::support::{NoWait, Site};

/// How a test program plays stories: with threads and processes of the system, or in an order that
/// follows from a seed.
pub trait Stage: Sync {
    /// Faults of every member beside those of an operation.
    fn faults(&self) -> &'static str;

    /// Operations between two comparisons of the store with the model.
    fn judged_every(&self) -> usize;

    /// Whether `check` runs after each operation of a story, and not only at its end.
    fn is_checked_each_time(&self, story: &Story) -> bool;

    /// Whether the store is repaired and emptied at the end of a story.
    fn is_healed_at_the_end(&self, story: &Story) -> bool;

    /// The directory of a story.
    fn site(&self, story: &Story) -> Site;

    /// The trace of a story that begins.
    fn trace(&self) -> Arc<dyn Trace>;

    /// Calls `work` once, as a process with these steps that is over afterwards.
    fn alone(&self, name: &'static str, steps: Arc<dyn Steps>, work: Work<'_>);

    /// Calls each of two once, at the same time, as processes of their own with these steps.
    fn at_once(&self, steps: [Arc<dyn Steps>; 2], works: [SentWork<'_>; 2]);
}

/// What a process does.
pub type Work<'a> = &'a mut dyn FnMut(&Who);
/// The same on any thread.
pub type SentWork<'a> = &'a mut (dyn FnMut(&Who) + Send);

/// The trace of what every process did to its members.
pub trait Trace: Send + Sync {
    /// Adds a line.
    fn note(&self, line: &str);

    /// All lines.
    fn text(&self) -> String;

    /// The steps of a process, traced.
    fn before(self: Arc<Self>, who: &Who) -> Arc<dyn Steps>;
}

/// The process that opens a store, and the hook that sees its steps.
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

    /// This process, which nothing disturbs.
    pub fn own() -> Self {
        Who { steps: Arc::new(NoWait), process: None, name: "own".to_owned() }
    }

    /// A process of another host.
    pub fn elsewhere(steps: Arc<dyn Steps>, process: Process) -> Self {
        Who::new("elsewhere", steps, process)
    }

    /// The same process with other steps.
    pub fn with_steps(&self, steps: Arc<dyn Steps>) -> Self {
        Who { steps, ..self.clone() }
    }

    /// Its name in the trace.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// A call of `work` that keeps its result.
struct Call<W, T> {
    work: Option<W>,
    done: Option<T>,
}

impl<T, W: FnOnce(&Who) -> T> Call<W, T> {
    fn of(work: W) -> Self {
        Call { work: Some(work), done: None }
    }

    fn carry_out(&mut self, who: &Who) {
        self.done = self.work.take().map(|work| work(who));
    }

    fn done(self) -> T {
        self.done.expect("a stage calls each work once")
    }
}

/// Runs `work` to the end that was drawn; says whether that end came before its own.
pub fn under<T>(stage: &dyn Stage, end: End, work: impl FnOnce(&Who) -> T) -> (T, bool) {
    let (End::Killed(cut) | End::PowerCut(cut, _)) = end else {
        return (work(&Who::own()), false);
    };
    let power = Arc::new(cut.power());
    let mut call = Call::of(work);
    let steps = Arc::clone(&power) as Arc<dyn Steps>;
    stage.alone("doomed", steps, &mut |who| call.carry_out(who));
    (call.done(), cut_off(end, &power))
}

/// Runs `work` as a process that leaves nothing behind but what a fault made it leave.
pub fn mortal<T>(stage: &dyn Stage, work: impl FnOnce(&Who) -> T) -> T {
    let mut call = Call::of(work);
    stage.alone("mortal", Arc::new(NoWait), &mut |who| call.carry_out(who));
    call.done()
}

/// Runs two at once, each a process of its own. The power goes off for both; a kill is of the
/// first.
pub fn at_once<A: Send, B: Send>(
    stage: &dyn Stage,
    end: End,
    first: impl FnOnce(&Who) -> A + Send,
    second: impl FnOnce(&Who) -> B + Send,
) -> ((A, bool), (B, bool)) {
    let steps = StepsOfTwo::until(end);
    let (mut one, mut two) = (Call::of(first), Call::of(second));
    stage.at_once(
        [Arc::clone(&steps.first), Arc::clone(&steps.second)],
        [&mut |who| one.carry_out(who), &mut |who| two.carry_out(who)],
    );
    let (is_first_cut, is_second_cut) = steps.cut_off();
    ((one.done(), is_first_cut), (two.done(), is_second_cut))
}
