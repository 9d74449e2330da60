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
    /// What each unit takes, where that is not what was said of it.
    bytes: Option<u64>,
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

    fn bytes(&self, _: &u64) -> Option<u64> {
        self.bytes
    }
}

fn ahead(key: u64) -> Ahead<u64> {
    Ahead { key, bytes: 10, origin: (7, key..key + 1) }
}

fn settle(runner: &Runner<Numbers>, key: u64) {
    while runner.presence(&key) != Presence::Ready {
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
fn a_unit_is_charged_with_what_it_takes_when_it_is_there() {
    // They were said to take 10.
    for (bytes, held) in [(15, 2), (4, 7), (1000, 0)] {
        let runner = Runner::new(Numbers { bytes: Some(bytes), ..Numbers::default() }, 35, 1);
        for key in 0..40 {
            assert_eq!(*runner.get(key, 10).unwrap(), key);
            assert!(runner.usage().charged <= 35, "{bytes}: {:?}", runner.usage());
        }
        let found = (0..40).filter(|key| runner.presence(key) == Presence::Ready).count();
        assert!(found >= held, "{found} of {bytes} bytes each");
        if held > 0 {
            assert_eq!(runner.usage().charged, found as u64 * bytes);
        }
        assert!(runner.usage().peak <= 35);
    }
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
    assert_eq!(runner.presence(&13), Presence::Absent, "no room without dropping an unread one");
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

#[test]
fn a_known_plan_waits_for_its_own_pins() {
    let runner = Runner::new(Numbers::default(), 30, 1);
    let (a, b, c) = (runner.pin(1, 10), runner.pin(2, 10), runner.pin(3, 10));
    assert!(a.is_new() && runner.try_pin(4, 10).is_none());
    let again = runner.try_pin(2, 10).expect("it has its place already");
    assert!(!again.is_new());
    assert_eq!(runner.source().fetched.load(Ordering::SeqCst), 0, "nothing was started");
    runner.start([3, 1, 2]);
    assert_eq!([*a.get().unwrap(), *b.get().unwrap(), *c.get().unwrap()], [1, 2, 3]);
    drop(b);
    assert!(runner.try_pin(4, 10).is_none(), "2 is pinned once more");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| *runner.pin(5, 10).get().unwrap());
        drop(again);
        assert_eq!(waiting.join().unwrap(), 5);
    });
    assert_eq!(runner.source().fetched.load(Ordering::SeqCst), 4);
    assert_eq!(runner.usage().peak, 30);
}

#[test]
fn what_was_read_stays_until_its_place_is_needed() {
    let runner = Runner::new(Numbers::default(), 30, 0);
    for key in [1, 2, 1, 3, 2, 1] {
        assert_eq!(*runner.pin(key, 10).get().unwrap(), key);
    }
    assert_eq!(runner.source().fetched.load(Ordering::SeqCst), 3);
    assert_eq!(*runner.pin(4, 10).get().unwrap(), 4);
    assert_eq!(runner.usage().charged, 30);
}

#[test]
fn a_unit_beyond_the_budget_is_read_alone() {
    for budget in [0, 1, 15] {
        let runner = Runner::new(Numbers::default(), budget, 1);
        let one = runner.pin(1, 100);
        assert!(runner.try_pin(2, 1).is_none(), "budget {budget}");
        assert_eq!(*one.get().unwrap(), 1);
        drop(one);
        assert_eq!(*runner.pin(2, 100).get().unwrap(), 2);
        assert_eq!(runner.usage().peak, budget.max(1));
    }
}

#[test]
fn all_pins_of_a_unit_get_its_error_and_later_ones_ask_again() {
    let runner = Runner::new(Numbers { fails: Some(5), ..Numbers::default() }, 100, 1);
    let pins = [runner.pin(5, 10), runner.pin(5, 10)];
    runner.start([5]);
    for pin in &pins {
        assert_eq!(pin.get().err().unwrap().kind(), Kind::Io);
    }
    assert!(runner.pin(5, 10).get().is_err());
    assert_eq!(runner.source().fetched.load(Ordering::SeqCst), 1);
    drop(pins);
    assert_eq!(runner.usage().charged, 0);
    assert!(runner.pin(5, 10).get().is_err());
    assert_eq!(runner.source().fetched.load(Ordering::SeqCst), 2);
}

#[test]
fn pins_that_nobody_reads_are_not_fetched() {
    let barrier = Arc::new(Barrier::new(2));
    let source = Numbers { slow: Some((1, Arc::clone(&barrier))), ..Numbers::default() };
    let runner = Runner::new(source, 1000, 1);
    let (one, two) = (runner.pin(1, 10), runner.pin(2, 10));
    runner.start([1, 2]);
    while runner.usage().queued > 1 {
        std::thread::yield_now();
    }
    drop(two);
    assert_eq!(runner.usage().charged, 10, "the only thread is busy with 1");
    barrier.wait();
    assert_eq!(*one.get().unwrap(), 1);
    drop(runner.pin(3, 10).get().unwrap());
    assert_eq!(runner.source().fetched.load(Ordering::SeqCst), 2);
}

#[test]
fn the_end_keeps_nobody_waiting_and_lets_reads_go_on() {
    let text = String::from("borrowed");
    struct Length<'t>(&'t str);
    impl FetchSource for Length<'_> {
        type Key = u64;
        type Unit = usize;
        fn fetch(&self, key: u64) -> Result<usize> {
            Ok(self.0.len() + key as usize)
        }
    }
    let read = Runner::scoped(Length(&text), 10, 2, |runner| {
        let all = runner.pin(1, 10);
        let waited = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| *runner.pin(2, 10).get().unwrap());
            drop(runner.end_on_drop());
            waiting.join().unwrap()
        });
        waited + *all.get().unwrap()
    });
    assert_eq!(read, 2 * 8 + 3);
}
