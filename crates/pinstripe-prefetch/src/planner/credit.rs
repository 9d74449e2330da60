//! The trust of a planner in weak evidence, based on the success of its earlier plans.

/// Half points. The credit of a planner: a record that was planned and read adds one, a record that
/// was planned in vain subtracts two; if a third of the plans is in vain, the credit does not rise.
#[derive(Debug, Clone, Copy)]
pub(super) struct Credit(i32);

/// The credit of a planner that has planned nothing.
const AT_FIRST: i32 = 2;
const MOST: i32 = 16;
const LEAST: i32 = -24;

impl Default for Credit {
    fn default() -> Self {
        Credit(AT_FIRST)
    }
}

impl Credit {
    pub(super) fn used(&mut self) {
        self.0 = (self.0 + 1).min(MOST);
    }

    pub(super) fn wasted(&mut self) {
        self.0 = (self.0 - 2).max(LEAST);
    }

    /// The credit if the plans that are still open turn out to be in vain; each one subtracts one,
    /// half of its actual cost.
    pub(super) fn less(&self, open: usize) -> Self {
        Credit((self.0 - i32::try_from(open).unwrap_or(i32::MAX)).max(LEAST))
    }

    /// Whether plans were so successful that a plan may be made on less evidence.
    pub(super) fn is_full(&self) -> bool {
        self.0 >= AT_FIRST + 2
    }

    /// Whether plans were not unsuccessful.
    pub(super) fn is_good(&self) -> bool {
        self.0 >= AT_FIRST
    }

    /// The number of points at equal distances that make a stream. Three such points among a few
    /// random ones are a coincidence that happens at every read (64 points in 1,000 places give
    /// four), but six are not.
    pub(super) fn points(&self) -> usize {
        match self.0 {
            0.. => 3,
            -8..0 => 4,
            -16..-8 => 5,
            _ => 6,
        }
    }

    /// The number of reads, each beginning where the previous one ended, that make a stream.
    pub(super) fn reads_of_a_run(&self) -> u32 {
        match self.0 {
            AT_FIRST.. => 2,
            -8..AT_FIRST => 3,
            _ => 4,
        }
    }
}
