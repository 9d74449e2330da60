//! Deliberate faults: wrappers that make a good device behave like a bad disk.
//!
//! [`FaultyDevice`] wraps any device and follows a [`Plan`], which has a text form for the command
//! line; it also counts calls and bytes. [`CutDevice`] stops a device at any single step and leaves
//! it as a power cut could. [`Faults`] is a running plan, for whatever else is to be wrapped. All
//! are deterministic in a seed, so every finding can be reproduced. None does anything that its
//! plan does not say.

mod cut;
mod device;
mod plan;
mod work;

pub use cut::{CutDevice, Power};
use pinstripe_base::random::splitmix64;

pub use device::FaultyDevice;
pub use plan::{Effect, Fault, Operation, Plan, Target};
pub use work::{CallCounts, Faults, Statistics, Verdict};

/// Numbers that look random and follow a seed alone (splitmix64).
#[derive(Debug)]
pub struct Dice(u64);

impl Dice {
    /// The numbers of this seed.
    pub fn new(seed: u64) -> Self {
        Dice(seed)
    }

    /// The next number.
    #[allow(clippy::should_implement_trait)] // The numbers never end: there is no None to tell.
    pub fn next(&mut self) -> u64 {
        splitmix64(&mut self.0)
    }

    /// A number in `0..end`; 0 when `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// Whether an event of this probability happens.
    pub fn happens(&mut self, chance: f64) -> bool {
        // 53 bits are what a double holds: 0 <= draw < 1.
        let draw = (self.next() >> 11) as f64 / (1_u64 << 53) as f64;
        draw < chance
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dice_are_fair_enough_and_follow_the_seed() {
        let throws = |seed| {
            let mut dice = Dice::new(seed);
            (0..6000).map(|_| dice.below(6)).collect::<Vec<_>>()
        };
        assert_eq!(throws(1), throws(1));
        assert_ne!(throws(1), throws(2));
        for face in 0..6 {
            let count = throws(1).iter().filter(|it| **it == face).count();
            assert!((800..1200).contains(&count), "{face}: {count}");
        }
        let mut dice = Dice::new(3);
        assert_eq!(dice.below(0), 0);
        assert!(!(0..1000).any(|_| dice.happens(0.0)));
        assert!((0..1000).all(|_| dice.happens(1.0)));
    }
}
