use proptest::prelude::*;

use super::*;
use crate::geometry::{ArrayGeometry, Layout, Level};

const CHUNK: u32 = 32;
const DATA: usize = 2;

fn geometry(members: usize) -> ArrayGeometry {
    let chunk = u64::from(CHUNK);
    ArrayGeometry::cut(Level::Raid0, members, chunk, Layout::Fixed, 40 * chunk).unwrap()
}

fn span(row: u64, data: usize, column: std::ops::Range<u32>) -> Span {
    let start = (row * DATA as u64 + data as u64) * u64::from(CHUNK);
    let user = start + u64::from(column.start)..start + u64::from(column.end);
    Span { row, data, column, user }
}

#[derive(Debug, Clone)]
enum Step {
    Write(u64, usize, u32, u32, u8),
    Begin(u64),
    End(u64),
    GiveBack(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let row = 0..3u64;
    prop_oneof![
        4 => (row.clone(), 0..DATA, 0..CHUNK, 1..CHUNK, any::<u8>())
            .prop_map(|(row, data, at, len, byte)| {
                Step::Write(row, data, at, len.min(CHUNK - at), byte)
            }),
        1 => row.clone().prop_map(Step::Begin),
        1 => row.clone().prop_map(Step::End),
        1 => row.prop_map(Step::GiveBack),
    ]
}

proptest! {
    /// Against a model of bytes: on the members, and above.
    #[test]
    fn what_was_written_last_is_read(steps in prop::collection::vec(step(), 1..60)) {
        let mut cache = Cache::new(Shape::from_geometry(geometry(DATA)));
        let none = || vec![None; CHUNK as usize * DATA * 3];
        let (mut above, mut below): (Vec<Option<u8>>, Vec<Option<u8>>) = (none(), none());
        let of = |row: u64| {
            let bytes = CHUNK as usize * DATA;
            row as usize * bytes..(row as usize + 1) * bytes
        };
        for step in steps {
            match step {
                Step::Write(row, data, at, len, byte) => {
                    let span = span(row, data, at..at + len);
                    let bytes = vec![byte; len as usize];
                    let full = match byte % 2 {
                        0 => cache.write(&span, &bytes, Duration::ZERO),
                        _ => {
                            let memory = cache.memory(bytes.len());
                            let copy = RunBytes::from_bytes(at, &bytes, memory);
                            cache.take(&span, copy, Duration::ZERO)
                        }
                    };
                    let user = span.user.start as usize..span.user.end as usize;
                    above[user].fill(Some(byte));
                    assert_eq!(full, above[of(row)].iter().all(Option::is_some));
                }
                Step::Begin(row) if cache.due(Due::Since(Duration::ZERO), 9, u64::MAX).contains(&row) => {
                    let dirty = cache.begin(row);
                    let there = above[of(row)].iter().flatten().count();
                    assert_eq!(dirty.bytes(), there as u64);
                    for at in of(row) {
                        below[at] = above[at].take();
                    }
                }
                Step::End(row) if cache.under_way.contains_key(&row) => {
                    cache.end(row);
                    below[of(row)].fill(None);
                }
                Step::GiveBack(row) if cache.under_way.contains_key(&row) => {
                    cache.give_back(row);
                    for at in of(row) {
                        above[at] = above[at].or(below[at].take());
                    }
                }
                _ => {}
            }
            for row in 0..3 {
                for data in 0..DATA {
                    let span = span(row, data, 3..CHUNK - 2);
                    let mut buf = vec![0; span.column.len()];
                    let there = cache.snapshot(&span).read(span.column.start, &mut buf);
                    let range = span.user.start as usize..span.user.end as usize;
                    let wanted: Vec<_> =
                        range.map(|at| above[at].or(below[at])).collect();
                    assert_eq!(there, wanted.iter().flatten().count() as u64);
                    let wanted: Vec<u8> =
                        wanted.into_iter().map(Option::unwrap_or_default).collect();
                    assert_eq!(buf, wanted);
                }
            }
            let there = above.iter().chain(&below).flatten().count();
            assert_eq!(cache.bytes(), there as u64);
            assert_eq!(cache.is_empty(), there == 0);
        }
    }
}

#[test]
fn rows_come_due_when_they_are_full_or_old() {
    let mut cache = Cache::new(Shape::from_geometry(geometry(DATA)));
    let at = Duration::from_millis;
    cache.write(&span(7, 0, 0..8), &[1; 8], at(10));
    cache.write(&span(2, 1, 0..8), &[1; 8], at(20));
    cache.write(&span(2, 1, 8..9), &[1; 1], at(30));
    assert_eq!(cache.oldest(), Some(at(10)));
    assert!(cache.due(Due::FullOr(at(9)), 9, u64::MAX).is_empty());
    assert_eq!(cache.due(Due::FullOr(at(10)), 9, u64::MAX), [7]);
    assert_eq!(cache.due(Due::FullOr(at(20)), 9, u64::MAX), [2, 7]);
    assert_eq!(cache.due(Due::FullOr(at(20)), 1, u64::MAX), [7]);
    cache.write(&span(5, 0, 0..CHUNK), &[1; CHUNK as usize], at(40));
    assert!(cache.write(&span(5, 1, 0..CHUNK), &[1; CHUNK as usize], at(40)));
    assert_eq!(cache.due(Due::FullOr(at(0)), 9, u64::MAX), [5]);
    // A write to a row that is under way has to wait for that row.
    cache.begin(5);
    cache.write(&span(5, 1, 3..4), &[2], at(50));
    assert_eq!(cache.due(Due::FullOr(at(60)), 9, u64::MAX), [2, 7]);
    cache.end(5);
    assert_eq!(cache.due(Due::FullOr(at(60)), 9, u64::MAX), [2, 5, 7]);
    assert_eq!((cache.oldest(), cache.has_full()), (Some(at(10)), false));
    // One that comes back is as old as it was, and what came since does not count.
    cache.begin(7);
    assert_eq!(cache.oldest(), Some(at(20)));
    cache.write(&span(7, 1, 0..3), &[1; 3], at(70));
    cache.give_back(7);
    assert_eq!(cache.oldest(), Some(at(10)));
    assert_eq!(cache.due(Due::Since(at(10)), 9, u64::MAX), [7]);
}

/// So many that what leaves the cache at once is bounded, and always one.
#[test]
fn no_more_rows_come_due_than_bytes_are_wanted() {
    let mut cache = Cache::new(Shape::from_geometry(geometry(DATA)));
    let at = Duration::from_millis;
    for row in [3, 4] {
        (0..DATA).for_each(|data| {
            let span = span(row, data, 0..CHUNK);
            cache.take(&span, RunBytes::from_bytes(0, &[1; CHUNK as usize], Vec::new()), at(10));
        });
    }
    cache.write(&span(1, 0, 0..8), &[1; 8], at(20));
    cache.write(&span(2, 0, 0..8), &[1; 8], at(20));
    let full = cache.shape.row_bytes(3);
    let mut due = |most_bytes| cache.due(Due::FullOr(at(20)), 9, most_bytes);
    assert_eq!([due(1), due(full)], [[3], [3]]);
    assert_eq!([due(full + 1), due(2 * full)], [[3, 4], [3, 4]]);
    assert_eq!(due(2 * full + 8), [1, 3, 4]);
    assert_eq!(due(2 * full + 9), [1, 2, 3, 4]);
    assert!(cache.due(Due::Since(at(20)), 9, 1).len() == 1);
}

#[test]
fn no_time_counts_as_earlier_than_one_before() {
    let mut cache = Cache::new(Shape::from_geometry(geometry(DATA)));
    let at = Duration::from_millis;
    cache.write(&span(1, 0, 0..8), &[1; 8], at(10));
    cache.write(&span(2, 0, 0..8), &[1; 8], at(9));
    assert_eq!(cache.due(Due::Since(at(10)), 9, u64::MAX), [1, 2]);
    cache.begin(1);
    assert_eq!(cache.oldest(), Some(at(10)));
}

#[test]
fn what_gathers_goes_where_its_bytes_lie_now_and_grows_no_younger() {
    let at = Duration::from_millis;
    let shape = Shape::growing(geometry(DATA), geometry(DATA + 1)).unwrap();
    let mut cache = Cache::new(shape);
    let user = 100..150u64;
    let bytes: Vec<u8> = user.clone().map(|byte| byte as u8).collect();
    let write = |cache: &mut Cache, now| {
        let shape = *cache.shape();
        for span in shape.spans(user.clone()) {
            let from = (span.user.start - user.start) as usize;
            cache.write(&span, &bytes[from..from + span.column.len()], now);
        }
    };
    let read = |cache: &Cache| {
        let mut found = vec![0; bytes.len()];
        for span in cache.shape().spans(user.clone()) {
            let from = (span.user.start - user.start) as usize;
            let buf = &mut found[from..from + span.column.len()];
            cache.snapshot(&span).read(span.column.start, buf);
        }
        found
    };
    write(&mut cache, at(10));
    cache.write(&shape.spans(900..901).next().unwrap(), &[1], at(20));
    for moved in 1..=3 {
        cache.reshape(shape.moved_to(moved));
        assert_eq!((read(&cache), cache.bytes()), (bytes.clone(), 51));
        let rows: std::collections::BTreeSet<u64> =
            cache.shape().spans(user.clone()).map(|span| span.row).collect();
        assert!(cache.due(Due::Since(at(10)), 9, u64::MAX).into_iter().eq(rows));
    }
    write(&mut cache, at(30));
    assert_eq!(cache.oldest(), Some(at(10)));
}
