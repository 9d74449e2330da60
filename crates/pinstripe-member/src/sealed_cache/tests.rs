use std::fs;
use std::sync::atomic::AtomicUsize;

use super::*;

const STORE: StoreId = StoreId([7; 16]);

fn open_of(dir: &Path, bytes: u64, store: StoreId) -> SealedCache {
    SealedCache::open(dir, bytes, store, |place, error| panic!("{}: {error}", place.display()))
        .unwrap()
}

fn open(dir: &Path) -> SealedCache {
    open_of(dir, BYTES_MIN, STORE)
}

fn key(number: u64) -> CacheKey {
    CacheKey::derive("test", &[&number.to_le_bytes()])
}

fn content(number: u64, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at as u64 * 31 + number * 17) as u8).collect()
}

fn disk_bytes(dir: &Path) -> u64 {
    let files = fs::read_dir(dir).unwrap().map(|file| file.unwrap().metadata().unwrap().len());
    files.sum()
}

#[test]
fn what_was_put_is_found_by_the_next_run_and_by_no_other_key() {
    let dir = tempfile::tempdir().unwrap();
    let cache = open(dir.path());
    for number in 0..50 {
        cache.put(key(number), &content(number, number as usize * 100));
    }
    assert!(cache.get(key(99)).is_none());
    let again = open(dir.path());
    for cache in [&cache, &again] {
        for number in 0..50 {
            assert_eq!(cache.get(key(number)).unwrap(), content(number, number as usize * 100));
        }
    }
    assert_ne!(CacheKey::derive("a", &[b"bc"]), CacheKey::derive("ab", &[b"c"]));
    assert_ne!(CacheKey::derive("a", &[b"b", b"c"]), CacheKey::derive("a", &[b"bc"]));
    assert_eq!(again.counts(), CacheCounts { found: 50, ..CacheCounts::default() });
    assert!(SealedCache::open(dir.path(), 1, STORE, |_, _| {}).is_err());
}

#[test]
fn it_holds_what_it_may_and_keeps_what_is_used() {
    let dir = tempfile::tempdir().unwrap();
    let cache = open(dir.path());
    let used = key(u64::MAX);
    cache.put(used, b"used");
    for number in 0..800 {
        cache.put(key(number), &content(number, 64 << 10));
        assert!(cache.get(used).is_some(), "after {number}");
    }
    assert!(disk_bytes(dir.path()) <= BYTES_MIN, "{}", disk_bytes(dir.path()));
    assert!(cache.get(key(0)).is_none());
    assert_eq!(cache.get(key(799)).unwrap(), content(799, 64 << 10));
    // Cells that are tiny count as more, and those that are long are not kept at all.
    for number in 1000..7000 {
        cache.put(key(number), b"tiny");
    }
    assert!(lock(&cache.state).rows.len() <= (BYTES_MIN / CELL_COST_MIN) as usize);
    let stored = cache.counts().stored;
    cache.put(key(9999), &vec![0; 2 << 20]);
    assert_eq!(cache.counts().stored, stored);
    // Another run goes on in the same segments instead of beginning one each time.
    let before = segment::listed(dir.path()).unwrap().len();
    for number in 0..20 {
        open(dir.path()).put(key(20_000 + number), b"a run");
    }
    assert!(segment::listed(dir.path()).unwrap().len() <= before + 1);
}

#[test]
fn damage_is_a_miss_and_is_mended_by_the_next_put() {
    let dir = tempfile::tempdir().unwrap();
    {
        let cache = open(dir.path());
        (0..20).for_each(|number| cache.put(key(number), &content(number, 5000)));
    }
    for file in fs::read_dir(dir.path()).unwrap() {
        let path = file.unwrap().path();
        let whole = fs::read(&path).unwrap();
        // Every byte of the rows, and some of the cells: flipped, cut off, or all of it foreign.
        for at in (48..whole.len()).step_by(if whole.len() > 5000 { 997 } else { 1 }) {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x40;
            fs::write(&path, &bytes).unwrap();
            check_all(dir.path(), 19);
            fs::write(&path, &whole[..at]).unwrap();
            check_all(dir.path(), 0);
        }
        for foreign in [&b""[..], b"foreign", &[0xff; 9000]] {
            fs::write(&path, foreign).unwrap();
            check_all(dir.path(), 0);
        }
        fs::write(&path, &whole).unwrap();
        check_all(dir.path(), 20);
    }
    let cells = segment::listed(dir.path()).unwrap()[0].cells(dir.path());
    fs::write(&cells, vec![0; fs::metadata(&cells).unwrap().len() as usize]).unwrap();
    let cache = open(dir.path());
    assert!(cache.get(key(3)).is_none());
    assert_eq!(cache.counts().damaged, 1);
    cache.put(key(3), &content(3, 5000));
    assert_eq!(cache.get(key(3)).unwrap(), content(3, 5000));
    assert_eq!(open(dir.path()).get(key(3)).unwrap(), content(3, 5000));
}

/// What is found is right; at least so many cells are.
fn check_all(dir: &Path, least: usize) {
    let cache = open(dir);
    let found = (0..20).filter_map(|number| Some((number, cache.get(key(number))?)));
    let found: Vec<_> = found.collect();
    assert!(found.iter().all(|(number, bytes)| *bytes == content(*number, 5000)));
    assert!(found.len() >= least, "{} of {least}", found.len());
}

#[test]
fn a_directory_of_another_store_gives_nothing_and_is_used_up() {
    let dir = tempfile::tempdir().unwrap();
    open_of(dir.path(), BYTES_MIN, StoreId([8; 16])).put(key(1), b"another store's");
    let cache = open(dir.path());
    assert!(cache.get(key(1)).is_none());
    cache.put(key(1), b"this one's");
    assert_eq!(open(dir.path()).get(key(1)).unwrap(), b"this one's");
    for number in 0..800 {
        cache.put(key(number + 10), &content(number, 64 << 10));
    }
    assert!(disk_bytes(dir.path()) <= BYTES_MIN);
    assert!(open_of(dir.path(), BYTES_MIN, StoreId([8; 16])).get(key(1)).is_none());
}

#[test]
fn a_directory_that_vanishes_is_made_again() {
    let around = tempfile::tempdir().unwrap();
    let dir = around.path().join("cache");
    let cache = open(&dir);
    cache.put(key(1), b"before");
    fs::remove_dir_all(&dir).unwrap();
    assert!(cache.get(key(2)).is_none());
    (0..40).for_each(|number| cache.put(key(number + 10), &content(number, 100_000)));
    assert_eq!(cache.get(key(49)).unwrap(), content(39, 100_000));
    assert_eq!(open(&dir).get(key(49)).unwrap(), content(39, 100_000));
}

#[test]
fn many_processes_share_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    // Each opens the files itself, as a process does: the locks are those of open files.
    std::thread::scope(|scope| {
        for process in 0..4_u64 {
            let dir = dir.path();
            scope.spawn(move || {
                let cache = open(dir);
                for number in 0..150 {
                    cache.put(key(process * 1000 + number), &content(number, 20_000));
                    let mine = cache.get(key(process * 1000 + number));
                    assert!(mine.is_none_or(|mine| mine == content(number, 20_000)));
                }
            });
        }
    });
    let cache = open(dir.path());
    let all = (0..4).flat_map(|process| (0..150).map(move |number| (process, number)));
    let found = all
        .filter_map(|(process, number)| Some((number, cache.get(key(process * 1000 + number))?)));
    let found: Vec<_> = found.collect();
    assert!(found.iter().all(|(number, bytes)| *bytes == content(*number, 20_000)));
    assert!(found.len() > 300, "{}", found.len());
    assert!(disk_bytes(dir.path()) <= BYTES_MIN + 4 * SEGMENT_MIN);
}

#[test]
fn a_disk_that_is_full_is_told_of_once() {
    let Ok(around) = tempfile::tempdir() else { return };
    let dir = around.path().join("cache");
    let told = Arc::new(AtomicUsize::new(0));
    let hears = Arc::clone(&told);
    let tell = move |_: &Path, _| {
        hears.fetch_add(1, Ordering::SeqCst);
    };
    let cache = SealedCache::open(&dir, BYTES_MIN, STORE, tell).unwrap();
    // A file where the directory should be: whatever keeps it from being written is the same.
    fs::remove_dir_all(&dir).unwrap();
    fs::write(&dir, "in the way").unwrap();
    (0..9).for_each(|number| cache.put(key(number), b"lost"));
    assert_eq!(told.load(Ordering::SeqCst), 1);
    assert_eq!(cache.counts().stored, 0);
    assert!(cache.get(key(1)).is_none());
}
