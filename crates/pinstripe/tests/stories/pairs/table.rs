//! How often each pair of verbs was played, and the calls that they made beside each other.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::verb::Verb;

#[derive(Default)]
pub struct Table {
    /// Seeds and calls of pairs: the verb that began, and the one beside it.
    pairs: BTreeMap<(Verb, Verb), (u64, u64)>,
    alone: (u64, u64),
}

impl Table {
    /// Counts the verbs of one scene: the first one with each of the others.
    pub fn count(&mut self, acts: &[(Verb, u64)]) {
        let all: u64 = acts.iter().map(|(_, calls)| calls).sum();
        let Some(((first, calls), others)) = acts.split_first() else { return };
        if others.is_empty() {
            self.alone = (self.alone.0 + 1, self.alone.1 + all);
        }
        for (other, of_other) in others {
            let (seeds, sum) = self.pairs.entry((*first, *other)).or_default();
            *seeds += 1;
            *sum += calls + of_other;
        }
    }

    pub fn calls(&self) -> u64 {
        self.alone.1 + self.pairs.values().map(|(_, calls)| calls).sum::<u64>()
    }

    /// One line for each pair, also one that was not played: the verbs, seeds and calls.
    pub fn data(&self) -> String {
        let mut text = String::new();
        for number in 0..Verb::PAIRS {
            let [first, second] = Verb::pair(number);
            let (seeds, calls) = self.pairs.get(&(first, second)).copied().unwrap_or_default();
            let _ = writeln!(text, "{}\t{}\t{seeds}\t{calls}", first.name(), second.name());
        }
        text
    }
}
