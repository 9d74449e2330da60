use super::*;

fn open(place: &Path, bytes: u64) -> Result<BlockCache> {
    BlockCache::open(place, bytes, b"source", Arc::default())
}

fn content(seed: u64, bytes: usize) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x as u8
    };
    (0..bytes).map(|_| next()).collect()
}

fn version(size: u64, change: u8) -> ContentVersion {
    ContentVersion { size, tag: [change; 32] }
}

fn get(
    cache: &BlockCache,
    path: &[u8],
    version: &ContentVersion,
    range: Range<u64>,
) -> Option<Vec<u8>> {
    let mut out = b"x".to_vec();
    let is_found = cache.get(path, version, range, &mut out);
    assert_eq!(out.remove(0), b'x');
    assert!(is_found || out.is_empty());
    is_found.then_some(out)
}

#[test]
fn blocks_are_found_again_after_a_restart_and_only_for_the_same_content() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("a/cache");
    let (bytes, now) = (content(1, MIB as usize + 1000), version(MIB + 1000, 1));
    let cache = open(&place, 64 * MIB).unwrap();
    assert_eq!(get(&cache, b"file", &now, 0..MIB), None);
    cache.put(b"file", &now, 0..MIB, &bytes[..MIB as usize]);
    cache.put(b"file", &now, MIB..MIB + 1000, &bytes[MIB as usize..]);
    let busy = open(&place, 64 * MIB);
    assert_eq!(busy.err().unwrap().kind(), Kind::Busy);
    drop(cache);
    for size in [64 * MIB, 128 * MIB, 32 * MIB] {
        let cache = open(&place, size).unwrap();
        assert_eq!(get(&cache, b"file", &now, 0..MIB).unwrap(), bytes[..MIB as usize]);
        assert_eq!(get(&cache, b"file", &now, MIB..MIB + 1000).unwrap(), bytes[MIB as usize..]);
        let part = CELL_BYTES..3 * CELL_BYTES;
        assert_eq!(
            get(&cache, b"file", &now, part.clone()).unwrap(),
            bytes[part.start as usize..part.end as usize]
        );
        assert_eq!(get(&cache, b"file", &version(MIB + 1000, 2), 0..MIB), None, "changed");
        assert_eq!(get(&cache, b"file", &version(MIB + 999, 1), 0..MIB), None, "shrunk");
        assert_eq!(get(&cache, b"other", &now, 0..MIB), None);
        assert_eq!(cache.usage().bytes, MIB + CELL_BYTES);
    }
    let monitor = Arc::default();
    let other = BlockCache::open(&place, 64 * MIB, b"other source", monitor).unwrap();
    assert_eq!(get(&other, b"file", &now, 0..MIB), None);
}

#[test]
fn what_was_read_lately_stays_and_the_rest_goes() {
    let dir = tempfile::tempdir().unwrap();
    let cache = open(dir.path(), 16 * MIB).unwrap();
    let now = version(1 << 40, 1);
    let put = |block: u64| {
        let bytes = content(block, MIB as usize);
        cache.put(b"file", &now, block * MIB..(block + 1) * MIB, &bytes);
    };
    let found = |block: u64| get(&cache, b"file", &now, block * MIB..(block + 1) * MIB);
    for block in 0..16 {
        put(block);
    }
    for block in 16..50 {
        assert_eq!(found(3).unwrap(), content(3, MIB as usize), "read again and again: {block}");
        put(block);
        assert_eq!(found(block).unwrap(), content(block, MIB as usize));
        assert!(cache.usage().bytes <= cache.usage().bytes_max);
    }
    assert_eq!(found(0), None);
    assert_eq!(cache.usage().damaged, 0);
}

#[test]
fn damage_is_never_given_out() {
    let dir = tempfile::tempdir().unwrap();
    let now = version(8 * MIB, 1);
    let cache = open(dir.path(), 16 * MIB).unwrap();
    for block in 0..8u64 {
        let bytes = content(block, MIB as usize);
        cache.put(b"file", &now, block * MIB..(block + 1) * MIB, &bytes);
    }
    let file =
        |name: &str| File::options().read(true).write(true).open(dir.path().join(name)).unwrap();
    file(CELLS).write_all_at(b"damage", 5 * CELL_BYTES + 77).unwrap();
    assert_eq!(get(&cache, b"file", &now, 0..MIB), None);
    assert_eq!(cache.usage().damaged, 1);
    assert_eq!(
        get(&cache, b"file", &now, 0..CELL_BYTES).unwrap(),
        content(0, MIB as usize)[..CELL_BYTES as usize]
    );
    cache.put(b"file", &now, 0..MIB, &content(0, MIB as usize));
    assert_eq!(get(&cache, b"file", &now, 0..MIB).unwrap(), content(0, MIB as usize));
    drop(cache);

    // A row, the end of the rows, and cells that never reached the disk.
    file(INDEX).write_all_at(b"x", HEADER_BYTES + 20 * ROW_BYTES).unwrap();
    file(INDEX).set_len(HEADER_BYTES + 100 * ROW_BYTES).unwrap();
    file(CELLS).set_len(60 * CELL_BYTES).unwrap();
    let cache = open(dir.path(), 16 * MIB).unwrap();
    for block in 0..8u64 {
        let found = get(&cache, b"file", &now, block * MIB..(block + 1) * MIB);
        assert!(found.is_none_or(|found| found == content(block, MIB as usize)), "{block}");
    }
    drop(cache);
    file(INDEX).write_all_at(b"x", 9).unwrap();
    assert_eq!(open(dir.path(), 16 * MIB).err().unwrap().kind(), Kind::Corrupt);
}

#[test]
fn a_directory_of_something_else_is_not_used() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("letter"), "mine").unwrap();
    assert_eq!(open(dir.path(), 16 * MIB).err().unwrap().kind(), Kind::Exists);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is made there");
    assert_eq!(open(dir.path(), MIB).err().unwrap().kind(), Kind::Usage);
    assert_eq!(open(&dir.path().join("letter"), 16 * MIB).err().unwrap().kind(), Kind::Exists);
    fs::remove_file(dir.path().join("letter")).unwrap();
    fs::write(dir.path().join(INDEX), "").unwrap();
    open(dir.path(), 16 * MIB).expect("it was cut off while it was made");
    fs::write(dir.path().join(INDEX), "short").unwrap();
    assert_eq!(open(dir.path(), 16 * MIB).err().unwrap().kind(), Kind::Corrupt);
}

#[test]
fn threads_share_a_cache() {
    let dir = tempfile::tempdir().unwrap();
    let cache = open(dir.path(), 16 * MIB).unwrap();
    let now = version(64 * MIB, 1);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (cache, now) = (&cache, &now);
            scope.spawn(move || {
                for step in 0..60u64 {
                    let block = (step * 7 + thread * 3) % 24;
                    let range = block * MIB..(block + 1) * MIB;
                    match get(cache, b"file", now, range.clone()) {
                        Some(found) => assert!(found == content(block, MIB as usize)),
                        None => cache.put(b"file", now, range, &content(block, MIB as usize)),
                    }
                }
            });
        }
    });
    assert_eq!(cache.usage().damaged, 0);
}
