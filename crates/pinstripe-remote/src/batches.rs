//! Planned steps: one request carries out puts and removals on all members of a volume.
//!
//! The store plans a step on each member, and then calls each member for its result. The call that
//! comes first sends the request for all; the other calls take their results from its answer.
//!
//! Invariants: a result answers one call, and only a call for the same step; a step without a result
//! is requested by the call itself. A plan is sent by the call for its first step on one of its
//! members, and leaves out the members that were called for nothing before.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pinstripe_base::clock;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::sync::lock;
use pinstripe_member::{ExtentName, PlannedStep, PrefetchHint};

use crate::answer::Unsure;
use crate::look_messages::{LookRequest, WantedKind};
use crate::looks::Looks;
use crate::objects::{ObjectStep, ObjectsAnswer, ObjectsRequest, StepResult};

/// The most plans that are kept; the oldest is dropped, and its steps are then requested one by one.
const PLANS_MAX: usize = 16;

/// The age at which a plan that was not begun is not begun any more: its caller has given up.
const FRESH: Duration = Duration::from_secs(10);

/// The plans of a volume.
#[derive(Default)]
pub(crate) struct Batches(Mutex<VecDeque<Arc<Plan>>>);

struct Plan {
    made: Instant,
    steps: Vec<ObjectStep>,
    look: Option<Vec<PrefetchHint>>,
    /// The number of members on which the caller carries out the steps.
    wanted_members: usize,
    state: Mutex<PlanState>,
}

#[derive(Default)]
struct PlanState {
    members: Vec<u16>,
    is_sent: bool,
    /// The results that no call has taken yet: of each step, by the position of the member.
    results: Vec<Vec<StepResult>>,
    is_unsure: bool,
}

/// A result from the answer to a plan: the error also says whether an attempt of the request without
/// an answer may have been carried out.
pub(crate) type Planned = Result<(), Unsure>;

impl Batches {
    /// Plans steps on a member, and on each other member that gets the same plan.
    pub fn plan(&self, member: u16, steps: &[PlannedStep], wanted_members: usize) {
        let (mut objects, mut look) = (Vec::new(), None);
        for step in steps {
            match step {
                PlannedStep::Put(name, bytes) => {
                    objects.push(ObjectStep::Put(*name, bytes.clone()));
                }
                PlannedStep::Delete(name) => objects.push(ObjectStep::Delete(*name)),
                PlannedStep::Look(hints) => look = Some(hints.clone()),
            }
        }
        let plans: Vec<_> = lock(&self.0).iter().cloned().collect();
        let is_there = |plan: &&Arc<Plan>| objects.iter().all(|step| plan.has(member, step));
        if objects.is_empty() || plans.iter().any(|plan| is_there(&plan)) {
            return;
        }
        let is_same = |plan: &&Arc<Plan>| plan.steps == objects && plan.look == look;
        if plans.iter().find(is_same).is_some_and(|plan| plan.join(member)) {
            return;
        }
        let state = Mutex::new(PlanState { members: vec![member], ..PlanState::default() });
        let plan = Arc::new(Plan {
            made: clock::monotonic(),
            steps: objects,
            look,
            wanted_members,
            state,
        });
        let mut plans = lock(&self.0);
        if plans.len() == PLANS_MAX {
            plans.pop_front();
        }
        plans.push_back(plan);
    }

    /// Whether the answer to a plan has a result of this step that no call has taken.
    pub fn has(&self, member: u16, step: &ObjectStep) -> bool {
        let plans: Vec<_> = lock(&self.0).iter().cloned().collect();
        plans.iter().any(|plan| plan.has(member, step))
    }

    /// Carries out a step on a member, if it was planned; `None` if the caller has to request it.
    pub fn carry_out(
        &self,
        member: u16,
        step: &ObjectStep,
        looks: &Looks,
        send: impl Fn(&ObjectsRequest) -> Result<(ObjectsAnswer, bool), Unsure>,
    ) -> Option<Planned> {
        let plans: Vec<_> = lock(&self.0).iter().cloned().collect();
        let result = plans.iter().find_map(|plan| plan.carry_out(member, step, looks, &send));
        // The object is now in another state than the one that other plans left it in.
        let is_over = |plan: &Arc<Plan>| {
            let is_named = plan.steps.iter().any(|it| it.name() == step.name() && it != step);
            is_named || plan.is_used_up()
        };
        let over: Vec<_> = plans.into_iter().filter(is_over).collect();
        lock(&self.0).retain(|plan| !over.iter().any(|it| Arc::ptr_eq(it, plan)));
        result
    }
}

impl Plan {
    /// False while the request is being sent: its caller has no result yet.
    fn has(&self, member: u16, step: &ObjectStep) -> bool {
        let Ok(state) = self.state.try_lock() else { return false };
        self.position(&state, member, step).is_some_and(|(at, of)| {
            let result = state.results.get(at).and_then(|results| results.get(of));
            result.is_some_and(|it| !matches!(it, StepResult::NotTried))
        })
    }

    fn position(
        &self,
        state: &PlanState,
        member: u16,
        step: &ObjectStep,
    ) -> Option<(usize, usize)> {
        let at = self.steps.iter().position(|it| it == step)?;
        Some((at, state.members.iter().position(|it| *it == member)?))
    }

    /// Adds a member to a plan that was not sent yet.
    fn join(&self, member: u16) -> bool {
        let Ok(mut state) = self.state.try_lock() else { return false };
        if !state.is_sent && !state.members.contains(&member) {
            state.members.push(member);
        }
        !state.is_sent
    }

    fn is_used_up(&self) -> bool {
        let Ok(state) = self.state.try_lock() else { return false };
        let is_taken = |it: &StepResult| matches!(it, StepResult::NotTried);
        state.is_sent && state.results.iter().flatten().all(is_taken)
    }

    fn carry_out(
        &self,
        member: u16,
        step: &ObjectStep,
        looks: &Looks,
        send: &impl Fn(&ObjectsRequest) -> Result<(ObjectsAnswer, bool), Unsure>,
    ) -> Option<Planned> {
        if !self.steps.contains(step) {
            return None;
        }
        // Other members wait here for the answer.
        let mut state = lock(&self.state);
        let (at, of) = self.position(&state, member, step)?;
        if !state.is_sent {
            state.is_sent = true;
            if at > 0 || clock::since(self.made) >= FRESH {
                return None;
            }
            state.members.drain(..of);
            if let Some(failed) = self.send(&mut state, looks, send) {
                return Some(Err(failed));
            }
        }
        let (at, of) = self.position(&state, member, step)?;
        let result = state.results.get_mut(at)?.get_mut(of)?;
        match std::mem::replace(result, StepResult::NotTried) {
            StepResult::Done => Some(Ok(())),
            StepResult::Failed(error) => Some(Err(Unsure { error, is_unsure: state.is_unsure })),
            StepResult::NotTried => None,
        }
    }

    /// Sends the request. Returns its failure if the server did not answer: the caller then need not
    /// wait once more.
    fn send(
        &self,
        state: &mut PlanState,
        looks: &Looks,
        send: &impl Fn(&ObjectsRequest) -> Result<(ObjectsAnswer, bool), Unsure>,
    ) -> Option<Unsure> {
        let PlanState { members, results, is_unsure, .. } = state;
        // The later steps need the first one on all members.
        let is_complete = members.len() == self.wanted_members;
        let steps = if is_complete { &self.steps[..] } else { &self.steps[..1] };
        let hints = self.look.as_ref().filter(|_| is_complete);
        let look = hints.map(|hints| look_of(members, hints));
        let request = ObjectsRequest { members: members.clone(), steps: steps.to_vec(), look };
        let change = looks.discard();
        let began = clock::monotonic();
        match send(&request) {
            Ok((answer, unsure)) => {
                (*results, *is_unsure) = (answer.results, unsure);
                match hints {
                    // The server began the look after the last step.
                    Some(hints) if !answer.looks.is_empty() => {
                        looks.install(change, began, hints, answer.looks);
                    }
                    _ => drop(looks.discard()),
                }
                None
            }
            Err(failed) => {
                looks.discard();
                (failed.error.kind() == Kind::Unanswered).then_some(failed)
            }
        }
    }
}

fn look_of(members: &[u16], hints: &[PrefetchHint]) -> LookRequest {
    let kinds =
        hints.iter().map(|hint| WantedKind { kind: hint.kind, again: hint.again, content: true });
    let labels = hints.iter().any(|hint| hint.label);
    LookRequest { members: members.to_vec(), kinds: kinds.collect(), labels, opened: Vec::new() }
}

/// The step that puts an object.
pub(crate) fn put_of(name: ExtentName, bytes: &[u8]) -> ObjectStep {
    ObjectStep::Put(name, bytes.to_vec())
}

/// The error for a request that cannot be sent as one.
pub(crate) fn too_long() -> Unsure {
    let error = Error::new(Kind::Usage, "these objects are too long for one request");
    Unsure { error, is_unsure: false }
}
