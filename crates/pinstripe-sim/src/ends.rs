//! Interrupts an operation: limits the steps that it may take, and sets the state that remains on
//! the disks.

use std::sync::Arc;

use pinstripe_member::{PowerCut, Steps};

use crate::operation::End;
use crate::support::NoWait;

/// The steps of two processes that run in parallel: a power cut ends both, a kill ends the first.
pub struct StepsOfTwo {
    pub first: Arc<dyn Steps>,
    pub second: Arc<dyn Steps>,
    end: End,
    power: Arc<PowerCut>,
}

impl StepsOfTwo {
    pub fn until(end: End) -> Self {
        let (End::Killed(cut) | End::PowerCut(cut, _)) = end else {
            let power = Arc::new(PowerCut::new(u64::MAX));
            return StepsOfTwo { first: Arc::new(NoWait), second: Arc::new(NoWait), end, power };
        };
        let power = Arc::new(cut.power());
        let first = Arc::clone(&power) as Arc<dyn Steps>;
        let second = match end {
            End::PowerCut(..) => Arc::clone(&first),
            _ => Arc::new(NoWait),
        };
        StepsOfTwo { first, second, end, power }
    }

    /// Returns which of the two were interrupted, after both have ended.
    pub fn cut_off(&self) -> (bool, bool) {
        let cut = cut_off(self.end, &self.power);
        (cut, cut && matches!(self.end, End::PowerCut(..)))
    }
}

/// Sets the state that remains on the disks if the operation was interrupted; returns whether it
/// was.
pub fn cut_off(end: End, power: &PowerCut) -> bool {
    let cut = power.is_off();
    if let End::PowerCut(_, seed) = end
        && cut
    {
        power.after_power_cut(seed).unwrap();
    }
    cut
}
