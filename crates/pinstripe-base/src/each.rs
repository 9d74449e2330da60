//! Collects the results of many tasks, which run in any order, in the order of the tasks.
//!
//! This module has no threads. The caller passes a function that runs the tasks.

use std::sync::Mutex;

use crate::sync::{into_inner, lock};

/// The results of `task` for each number below `count`, in order. `run` must call its argument once
/// with each of these numbers, in any order and from any thread; all calls must have ended when
/// `run` returns.
///
/// # Panics
/// Panics if `run` leaves out a number.
pub fn each_of<T: Send>(
    count: usize,
    run: impl FnOnce(&(dyn Fn(usize) + Sync)),
    task: impl Fn(usize) -> T + Sync,
) -> Vec<T> {
    let done: Vec<Mutex<Option<T>>> = (0..count).map(|_| Mutex::new(None)).collect();
    run(&|number| {
        let result = task(number);
        *lock(&done[number]) = Some(result);
    });
    done.into_iter().map(|it| into_inner(it).expect("every task was run")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_tasks() {
        let backwards = |task: &(dyn Fn(usize) + Sync)| (0..4).rev().for_each(task);
        assert_eq!(each_of(4, backwards, |number| number * 10), [0, 10, 20, 30]);
        assert!(each_of(0, |_| {}, |number| number).is_empty());
        let by_threads = |task: &(dyn Fn(usize) + Sync)| {
            std::thread::scope(|scope| {
                (0..4).for_each(|number| drop(scope.spawn(move || task(number))));
            });
        };
        assert_eq!(each_of(4, by_threads, |number| number + 1), [1, 2, 3, 4]);
    }
}
