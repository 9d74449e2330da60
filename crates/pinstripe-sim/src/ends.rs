//! Cutting off an operation: the steps that it may take, and the state left on the disks.

use std::sync::Arc;

use pinstripe_member::{PowerCut, Steps};

use crate::operation::End;
use crate::support::NoWait;

/// The steps of two at once: the power goes off for both, a kill is of the first.
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

    /// Says which of the two were cut off, now that both have ended.
    pub fn cut_off(&self) -> (bool, bool) {
        let cut = cut_off(self.end, &self.power);
        (cut, cut && matches!(self.end, End::PowerCut(..)))
    }
}

/// The state left on the disks when it was cut off; whether it was.
pub fn cut_off(end: End, power: &PowerCut) -> bool {
    let cut = power.is_off();
    if let End::PowerCut(_, seed) = end
        && cut
    {
        power.after_power_cut(seed).unwrap();
    }
    cut
}
