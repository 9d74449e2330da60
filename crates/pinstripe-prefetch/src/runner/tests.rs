use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pinstripe_base::error::{Error, Kind};

use super::*;

/// Gives each key as its unit, after the barrier of that key if there is one.
#[derive(Default)]
struct Numbers {
    fetched: AtomicU64,
    slow: Option<(u64, Arc<Barrier>)>,
    fails: Option<u64>,
}

impl FetchSource for Numbers {
    type Key = u64;
    type Unit = u64;

    fn fetch(&self, key: u64) -> Result<u64> {
        self.fetched.fetch_add(1, Ordering::SeqCst);
        if let Some((slow, barrier)) = &self.slow
            && *slow == key
        {
            barrier.wait();
        }
        match self.fails == Some(key) {
            true => Err(Error::new(Kind::Io, "no")),
            false => Ok(key),
        }
    }
}

fn ahead(key: u64) -> Ahead<u64> {
    Ahead { key, bytes: 10, origin: (7, key..key + 1) }
}

fn settle(runner: &Runner<Numbers>, key: u64) {
    while runner.found(&key) != Presence::Ready {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_unit_is_fetched_once_for_all() {
    let runner = Runner::new(Numbers::default(), 100, 2);
    runner.ahead([ahead(1)]);
    settle(&runner, 1);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(*runner.get(1, 10).unwrap(), 1));
        }
    });
    assert_eq!(runner.source().fetched.load(Ordering::SeqCst), 1);
}

#[test]
fn what_is_charged_stays_within_the_budget() {
    let runner = Runner::new(Numbers::default(), 35, 2);
    runner.ahead((0..20).map(ahead));
    assert_eq!(runner.usage().charged, 30, "counted when asked for");
    for key in 0..3 {
        settle(&runner, key);
    }
    for key in 100..140 {
        assert_eq!(*runner.get(key, 10).unwrap(), key);
        assert!(runner.usage().charged <= 35);
    }
    assert_eq!(runner.usage().peak, 30);
    let mut dropped = runner.take_dropped(7);
    dropped.sort_by_key(|range| range.start);
    assert_eq!(dropped, [0..1, 1..2, 2..3], "readers' units took their places");
    assert_eq!(*runner.get(500, 1000).unwrap(), 500, "one that never fits is read all the same");
    assert!(runner.usage().charged <= 35);
}

#[test]
fn units_ahead_take_the_place_of_read_ones_only() {
    let runner = Runner::new(Numbers::default(), 30, 1);
    for key in 0..3 {
        runner.get(key, 10).unwrap();
    }
    runner.ahead([ahead(10), ahead(11), ahead(12), ahead(13)]);
    for key in 10..13 {
        settle(&runner, key);
    }
    assert_eq!(runner.found(&13), Presence::Absent, "no room without dropping an unread one");
    assert!(runner.take_dropped(7).is_empty());
}

#[test]
fn a_reader_does_not_wait_behind_units_ahead() {
    let barrier = Arc::new(Barrier::new(2));
    let source = Numbers { slow: Some((1, Arc::clone(&barrier))), ..Numbers::default() };
    let runner = Runner::new(source, 1000, 1);
    runner.ahead([ahead(1), ahead(2)]);
    while runner.usage().queued > 1 {
        std::thread::yield_now();
    }
    assert_eq!(*runner.get(2, 10).unwrap(), 2, "the only thread is busy with 1");
    barrier.wait();
    assert_eq!(*runner.get(1, 10).unwrap(), 1);
}

#[test]
fn an_error_is_told_to_all_who_wait_and_not_kept() {
    let runner = Runner::new(Numbers { fails: Some(5), ..Numbers::default() }, 100, 1);
    assert_eq!(runner.get(5, 10).unwrap_err().kind(), Kind::Io);
    assert_eq!(runner.usage().charged, 0);
    assert!(runner.get(5, 10).is_err());
    assert_eq!(runner.source().fetched.load(Ordering::SeqCst), 2);
}

#[test]
fn what_is_not_wanted_makes_room() {
    let runner = Runner::new(Numbers::default(), 30, 1);
    runner.ahead([ahead(1), ahead(2), ahead(3)]);
    for key in 1..4 {
        settle(&runner, key);
    }
    runner.unwanted(7, &[1..2, 3..4]);
    assert_eq!(runner.usage().charged, 10);
    runner.ahead([ahead(8)]);
    settle(&runner, 8);
    assert!(runner.take_dropped(7).len() == 2);
}
