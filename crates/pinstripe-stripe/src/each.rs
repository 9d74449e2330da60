//! The same work for each item of a list, by several threads.

#![allow(clippy::disallowed_methods, reason = "the one loop that starts threads for a list")]

use std::sync::atomic::{AtomicUsize, Ordering};

use pinstripe_base::each::each_of;
use pinstripe_base::error::Result;

/// Does `work` for every item on `threads` threads; results come in the order of the items.
/// Every item is worked on, also after one has failed.
///
/// # Errors
/// The first error in the order of the items.
pub fn each<T: Sync, R: Send>(
    threads: usize,
    items: &[T],
    work: impl Fn(&T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let next = AtomicUsize::new(0);
    let run = |task: &(dyn Fn(usize) + Sync)| {
        std::thread::scope(|scope| {
            for _ in 0..threads.min(items.len()) {
                scope.spawn(|| {
                    loop {
                        let at = next.fetch_add(1, Ordering::Relaxed);
                        if at >= items.len() {
                            break;
                        }
                        task(at);
                    }
                });
            }
        });
    };
    each_of(items.len(), run, |at| work(&items[at])).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pinstripe_base::error::{Error, Kind};

    #[test]
    fn results_keep_the_order_and_the_first_error_wins() {
        let items: Vec<u32> = (0..100).collect();
        assert_eq!(each(4, &items, |n| Ok(n * 2)).unwrap()[99], 198);
        let fail = |n: &u32| match n {
            7 | 50 => Err(Error::new(Kind::Io, n.to_string())),
            _ => Ok(()),
        };
        assert_eq!(each(4, &items, fail).unwrap_err().to_string(), "7");
        assert!(each(4, &[] as &[u32], |_| Ok(())).unwrap().is_empty());
    }
}
