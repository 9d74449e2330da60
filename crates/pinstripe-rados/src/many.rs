//! Requests for many objects in parallel.

use pinstripe_base::each::each_of;
use pinstripe_io::pool;
use pinstripe_member::goes_on;

/// The number of objects that are requested in parallel; a cluster takes as long for one as for
/// many.
pub(crate) const AT_ONCE: usize = 16;

/// Returns the results of `ask` for these names, in order. The calling thread also calls `ask`, and
/// reports that the operation is alive.
pub(crate) fn side_by_side<N: Sync, T: Send>(names: &[N], ask: impl Fn(&N) -> T + Sync) -> Vec<T> {
    let run = |task: &(dyn Fn(usize) + Sync)| {
        let task = |at| {
            task(at);
            goes_on();
        };
        pool::side_by_side(AT_ONCE, 0..names.len(), &task);
    };
    each_of(names.len(), run, |at| ask(&names[at]))
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn answers_are_in_order_and_asked_for_at_once() {
        // Each waits for the others: only side by side they end.
        let barrier = Barrier::new(AT_ONCE);
        let names: Vec<usize> = (0..3 * AT_ONCE).collect();
        let answers = side_by_side(&names, |name| {
            barrier.wait();
            name * 2
        });
        assert_eq!(answers, (0..3 * AT_ONCE).map(|it| it * 2).collect::<Vec<_>>());
        assert!(side_by_side(&names[..0], |name| *name).is_empty());
    }
}
