//! Pages of trees that are lost, or are not because they stand twice: what is sound comes back,
//! check counts what a restore then lacks, and no verb takes a loss for a wrong name.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use pinstripe::diff::Sort;
use pinstripe::{Store, cat, diff, dump, gc, index, ls, restore};
use pinstripe_base::error::Kind;
use pinstripe_base::id::SetId;
use pinstripe_base::monitor::Counter;
use pinstripe_member::entry::Entry;
use pinstripe_member::meta::FileKind;
use pinstripe_member::record::RecordKind;
use pinstripe_member::snapshot::Snapshot;
use pinstripe_member::{ExtentKind, ExtentName};
use pinstripe_stripe::SetReader;

use crate::gc::forget_one;
use pinstripe_sim::{
    Ledger, Site, assert_whole, backup, check, limits, noise, read_files, remove_tree, repair,
    small_tree,
};
use pinstripe_sim::{Tree, look};

/// Directories with many small files: a tree of many pages.
fn many_files(at: &Path, directories: usize, files: usize) {
    for directory in 0..directories {
        let directory = at.join(format!("d{directory:03}"));
        fs::create_dir_all(directory.join("below")).unwrap();
        for file in 0..files {
            let place = if file % 3 == 0 { directory.join("below") } else { directory.clone() };
            // Long names fill pages.
            let tail: String =
                noise(file as u64, 60).iter().map(|it| format!("{it:02x}")).collect();
            let content = format!("{file} of {}", directory.display());
            fs::write(place.join(format!("f{file:04}-{tail}")), content).unwrap();
        }
    }
}

/// Packs that hold pages only.
fn page_packs(store: &Store) -> Vec<SetId> {
    let holds_pages = |set: &SetId| {
        let pack = index::read_pack_index(store, *set).unwrap();
        pack.records.iter().all(|record| record.kind == RecordKind::Tree)
    };
    index::sets_in(store, ExtentKind::Packs).unwrap().into_keys().filter(holds_pages).collect()
}

/// The file and the byte in it where one byte of a pack lies.
fn place_of(site: &Site, store: &Store, set: SetId, at: u64) -> (PathBuf, u64) {
    let name = ExtentName::pack(set);
    let reader = SetReader::open(&store.members(), name, store.config.store, set).unwrap();
    let piece = reader.layout().pieces(at..at + 1).next().unwrap();
    let files = site.members.iter().map(|member| member.join(name.path()));
    let holders: Vec<PathBuf> = files.filter(|file| file.exists()).collect();
    (holders[piece.slot].clone(), piece.extent_offset)
}

fn flip(file: &Path, at: u64) {
    let file = fs::OpenOptions::new().read(true).write(true).open(file).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
}

/// Damages one record of pages in each pack that has it, counted from the first.
///
/// Returns how many packs had one: where pages are cut, and so how many records there are, follows
/// from the store's random keys.
fn lose_record(site: &Site, store: &Store, number: usize) -> usize {
    let mut lost = 0;
    for set in page_packs(store) {
        let pack = index::read_pack_index(store, set).unwrap();
        if let Some(record) = pack.records.get(number) {
            let middle = record.offset + u64::from(record.bytes) / 2;
            let (file, at) = place_of(site, store, set, middle);
            flip(&file, at);
            lost += 1;
        }
    }
    lost
}

fn restore_all(
    store: &Store,
    path: &[u8],
    to: &Path,
    ledger: &Ledger,
) -> pinstripe_base::error::Result<Snapshot> {
    let plain = restore::RestoreOptions::new("latest", path, to, limits());
    let options = restore::RestoreOptions { verify: true, ..plain };
    restore::run(store, &options, &ledger.monitor)
}

/// Restores everything; returns what came back below the source, and the ledger.
fn restored(site: &Site, store: &Store) -> (Tree, Ledger) {
    let (to, ledger) = (site.target(), Ledger::new());
    restore_all(store, b"", &to, &ledger).unwrap();
    let source = site.source();
    let at = to.join(source.strip_prefix("/").unwrap());
    let tree = if at.exists() { look(&at) } else { Tree::new() };
    remove_tree(&to);
    (tree, ledger)
}

/// Everything that came back is what it was, but for directories that had to be made.
fn assert_sound(wanted: &Tree, found: &Tree, made: &BTreeSet<Vec<u8>>) {
    for (path, look) in found {
        if made.contains(path) {
            assert_eq!(look.mode & 0o7777, 0o700, "{}", String::from_utf8_lossy(path));
            continue;
        }
        assert_eq!(wanted.get(path), Some(look), "{}", String::from_utf8_lossy(path));
    }
}

/// The directories that a restore said it had to make.
fn made(site: &Site, ledger: &Ledger) -> BTreeSet<Vec<u8>> {
    let source = site.source();
    let source = source.strip_prefix("/").unwrap().as_os_str().as_bytes();
    let said = ledger.losses().into_iter().filter(|seen| seen.text.contains("0700"));
    said.map(|seen| {
        let place = seen.place.as_os_str().as_bytes().to_vec();
        let at = place.windows(source.len()).rposition(|window| window == source);
        let below = at.map_or(&[][..], |at| &place[at + source.len()..]);
        below.strip_prefix(b"/").unwrap_or(below).to_vec()
    })
    .collect()
}

fn entries_of(store: &Store, path: &[u8]) -> (Vec<Entry>, Ledger) {
    let (mut entries, ledger) = (Vec::new(), Ledger::new());
    let mut show = |entry: &Entry| {
        entries.push(entry.clone());
        Ok(())
    };
    ls::run(store, "latest", path, &ledger.monitor, &mut show).unwrap();
    (entries, ledger)
}

/// The story of a store without parity: the first record of pages is lost in every copy.
#[test]
fn what_stands_below_lost_pages_comes_back() {
    let site = Site::new(1, 0);
    many_files(&site.source(), 12, 250);
    let snapshot = site.save();
    let (all, _) = entries_of(&site.store(), b"");
    let wanted = look(&site.source());
    lose_record(&site, &site.store(), 0);

    let store = site.store();
    let ledger = Ledger::new();
    let outcome = check(&store, true, &ledger);
    assert_eq!(outcome.hurt_snapshots, 1);
    let (found, restored) = restored(&site, &store);
    let lost = restored.get(Counter::LostEntries);
    assert_eq!(outcome.hurt_paths, lost, "check counts what a restore lacks");
    assert!(
        lost > 100 && lost + 200 < snapshot.root.entries,
        "{lost} of {}",
        snapshot.root.entries
    );
    let made = made(&site, &restored);
    assert!(!made.is_empty(), "{:#?}", restored.seen());
    assert_sound(&wanted, &found, &made);
    let (left, listed) = entries_of(&store, b"");
    assert_eq!(left.len() as u64 + lost, all.len() as u64);
    assert_eq!(listed.get(Counter::LostEntries), lost);
    let source = site.source();
    let prefix = source.strip_prefix("/").unwrap().as_os_str().as_bytes().to_vec();
    for entry in &left {
        if let Some(below) = entry.path.strip_prefix(&prefix[..]) {
            let below = below.strip_prefix(b"/").unwrap_or(below);
            assert!(found.contains_key(below), "{}", String::from_utf8_lossy(&entry.path));
        }
    }
    let is_in = |entry: &&Entry| entry.path.starts_with(&prefix) && entry.path.len() > prefix.len();
    let sound = left.iter().filter(is_in).count();
    let extra = made.iter().filter(|path| !path.is_empty()).count();
    assert_eq!(found.len(), sound + extra + 1, "nothing else came back");
}

#[test]
fn a_path_is_not_found_only_where_nothing_is_lost() {
    let site = Site::new(1, 0);
    many_files(&site.source(), 12, 250);
    site.save();
    let (all, _) = entries_of(&site.store(), b"");
    lose_record(&site, &site.store(), 0);
    let store = site.store();
    let (left, _) = entries_of(&store, b"");
    let left: BTreeSet<Vec<u8>> = left.into_iter().map(|entry| entry.path).collect();
    let is_directory = |entry: &Entry| entry.meta.kind == FileKind::Directory;
    let lost: Vec<&Entry> = all.iter().filter(|entry| !left.contains(&entry.path)).collect();
    let prefix = |path: &[u8]| [path, b"/"].concat();
    let has_left = |path: &[u8]| left.iter().any(|it| it.starts_with(&prefix(path)));

    // A directory whose own entry is lost, with entries below it that are not.
    let directory = lost.iter().find(|entry| is_directory(entry) && has_left(&entry.path)).unwrap();
    let (to, ledger) = (site.target(), Ledger::new());
    restore_all(&store, &directory.path, &to, &ledger).unwrap();
    assert!(!ledger.losses().is_empty());
    let came = look(&to);
    let below = left.iter().filter(|path| path.starts_with(&prefix(&directory.path))).count();
    assert!(came.len() > below && below > 0, "{} came back of {below}", came.len());

    // A file whose entry is lost: no verb says that it never was there.
    let file = lost.iter().find(|entry| !is_directory(entry)).unwrap();
    let kinds = |path: &[u8]| {
        let (to, monitor) = (site.target(), Ledger::new());
        let restored = restore_all(&store, path, &to, &monitor).map(drop);
        let files = [("latest".to_owned(), path.to_vec())];
        let options = cat::CatOptions::new(&files, limits());
        let shown = cat::run(&store, &options, &Ledger::new().monitor, &mut |_| Ok(()));
        let options = dump::DumpOptions {
            snapshot: "latest".into(),
            path,
            fill_holes: false,
            limits: limits(),
        };
        let dumped = dump::run(&store, &options, &Ledger::new().monitor, &mut |_| Ok(()));
        [restored, shown, dumped.map(drop)].map(|ended| ended.unwrap_err().kind())
    };
    assert_eq!(kinds(&file.path), [Kind::TooManyLosses; 3]);
    assert!(!entries_of_losses(&store, &file.path).is_empty());
    // Far behind all that is lost, pages are sound: what is not there, is not there.
    let gone = [&all.last().unwrap().path[..], b"-never"].concat();
    assert_eq!(kinds(&gone), [Kind::NotFound; 3]);
    let mut show = |_: &Entry| Ok(());
    let listed = ls::run(&store, "latest", &gone, &Ledger::new().monitor, &mut show);
    assert_eq!(listed.unwrap_err().kind(), Kind::NotFound);
    // What can be read is shown as ever, whatever is lost around it.
    let sound = all.last().unwrap();
    let (entries, ledger) = entries_of(&store, &sound.path);
    ledger.assert_clean();
    assert_eq!(entries.len(), 1);
}

fn entries_of_losses(store: &Store, path: &[u8]) -> Vec<pinstripe_sim::Seen> {
    entries_of(store, path).1.losses()
}

#[test]
fn a_diff_goes_on_behind_lost_pages() {
    let site = Site::new(1, 0);
    many_files(&site.source(), 12, 250);
    let old = site.save();
    // A change in each directory, so that no page is shared.
    for directory in 0..12 {
        fs::write(site.source().join(format!("d{directory:03}/a")), b"changed").unwrap();
        fs::write(site.source().join(format!("d{directory:03}/z")), b"added").unwrap();
    }
    let new = site.save();
    let differences = |store: &Store, one: &Snapshot, other: &Snapshot| {
        let (mut seen, ledger) = (BTreeSet::new(), Ledger::new());
        let mut show = |sort: Sort, old: Option<&Entry>, new: Option<&Entry>| {
            assert!(seen.insert((format!("{sort:?}"), old.or(new).unwrap().path.clone())));
            Ok(())
        };
        let (one, other) = (one.id.to_string(), other.id.to_string());
        diff::run(store, &one, &other, &ledger.monitor, &mut show).unwrap();
        (seen, ledger)
    };
    let (whole, ledger) = differences(&site.store(), &old, &new);
    ledger.assert_clean();
    let image = site.image();
    for number in 0..3 {
        site.put_image(&image);
        if lose_record(&site, &site.store(), number) == 0 {
            assert!(number >= 2, "there are two records at least");
            break;
        }
        for (one, other) in [(&old, &new), (&new, &old)] {
            let (seen, ledger) = differences(&site.store(), one, other);
            assert!(!ledger.losses().is_empty(), "record {number}");
            let wanted: BTreeSet<Vec<u8>> = whole.iter().map(|(_, path)| path.clone()).collect();
            for (sort, path) in &seen {
                assert!(wanted.contains(path), "{sort} {}", String::from_utf8_lossy(path));
            }
        }
        let (seen, _) = differences(&site.store(), &old, &new);
        assert!(seen.is_subset(&whole), "nothing is said that is not so");
        if number == 0 {
            assert!(
                !seen.is_empty() && seen.len() < whole.len(),
                "{} of {}",
                seen.len(),
                whole.len()
            );
        }
    }
}

/// Bytes turned over anywhere in packs and runs: what check counts is what a restore lacks, and all
/// else is as it was.
#[test]
fn check_counts_exactly_what_a_restore_lacks() {
    for (members, parity, seed) in [(1, 0, 1), (2, 0, 2), (3, 1, 3)] {
        let site = Site::new(members, parity);
        many_files(&site.source(), 4, 120);
        small_tree(&site.source(), seed);
        site.save();
        let wanted = look(&site.source());
        let image = site.image();
        let packs = page_packs(&site.store());
        let mut losses = 0;
        for round in 0..12_u64 {
            site.put_image(&image);
            let dice = noise(seed * 1000 + round, 64);
            let mut dice = dice.as_chunks::<8>().0.iter().map(|it| u64::from_le_bytes(*it));
            let mut roll = |below: usize| (dice.next().unwrap() % below as u64) as usize;
            if round % 4 == 3 && parity == 0 {
                lose_record(&site, &site.store(), roll(3));
            }
            let files: Vec<PathBuf> = (image.0.keys())
                .filter(|path| {
                    let path = path.to_string_lossy();
                    path.contains("/packs/") || path.contains("/index/")
                })
                .cloned()
                .collect();
            for _ in 0..1 + round % 3 {
                let file = &files[roll(files.len())];
                let length = image.0[file].len();
                flip(file, roll(length) as u64);
            }
            let store = site.store();
            let outcome = check(&store, true, &Ledger::new());
            let (found, ledger) = restored(&site, &store);
            let lost = ledger.get(Counter::LostEntries);
            assert_eq!(outcome.hurt_paths, lost, "seed {seed}, round {round}: {outcome:?}");
            assert_eq!(lost > 0, !ledger.losses().is_empty(), "{:#?}", ledger.seen());
            assert_sound(&wanted, &found, &made(&site, &ledger));
            losses += u64::from(lost > 0);
        }
        assert!(losses > 0 || parity > 0, "no round lost anything");
        assert_eq!(packs.len(), if parity == 0 { 2 } else { 1 });
    }
}

/// Without parity each page stands in two packs: whatever happens to one of them costs nothing, and
/// repair makes it anew.
#[test]
fn damage_of_one_pack_of_pages_costs_nothing_and_is_repaired() {
    for members in [1, 3] {
        let site = Site::new(members, 0);
        small_tree(&site.source(), 1);
        site.save();
        small_tree(&site.source(), 2);
        let second = site.save();
        let wanted = look(&site.source());
        let image = site.image();
        let packs = page_packs(&site.store());
        assert_eq!(packs.len(), 4, "two snapshots, two packs of pages for each");
        let holds = |set: &SetId| index::read_pack_index(&site.store(), *set).unwrap().records;
        let twin = |set: &SetId| {
            let is_twin = |other: &&SetId| *other != set && holds(other) == holds(set);
            *packs.iter().find(is_twin).expect("each has a twin")
        };
        let twins: Vec<SetId> = packs.iter().map(twin).collect();
        for (number, set) in packs.iter().enumerate() {
            site.put_image(&image);
            let name = ExtentName::pack(*set).path();
            let files = site.members.iter().map(|member| member.join(&name));
            let files: Vec<PathBuf> = files.filter(|file| file.exists()).collect();
            let [file] = &files[..] else { panic!("it lies on one member: {files:?}") };
            let length = fs::metadata(file).unwrap().len();
            for damage in 0..5 {
                site.put_image(&image);
                match damage {
                    0 => fs::remove_file(file).unwrap(),
                    1 => fs::write(file, b"").unwrap(),
                    2 => fs::write(file, noise(7, length as usize)).unwrap(),
                    3 => flip(file, 4096 + 77),
                    _ => flip(file, length - 20),
                }
                let what = format!("{members} members, pack {number}, damage {damage}");
                println!("{what}");
                site.assert_restores(&site.store(), &second, &wanted).assert_no_losses();
                let ledger = Ledger::new();
                let outcome = check(&site.store(), true, &ledger);
                ledger.assert_no_losses();
                assert_eq!((outcome.lost, outcome.hurt_paths), (0, 0), "{what}: {outcome:?}");
                assert!(outcome.repairable > 0, "{what}");
                let ledger = Ledger::new();
                let outcome = repair(&mut site.store(), &ledger);
                ledger.assert_no_losses();
                assert_eq!(outcome.lost_extents, 0, "{what}: {outcome:?}");
                assert_whole(&site.store());
                // The other pack may be lost now.
                let name = ExtentName::pack(twins[number]).path();
                site.members.iter().for_each(|m| drop(fs::remove_file(m.join(&name))));
                site.assert_restores(&site.store(), &second, &wanted);
            }
        }
    }
}

/// A member of several that is lost whole takes content with it, and no name.
#[test]
fn a_member_lost_without_parity_costs_no_page() {
    let site = Site::new(3, 0);
    many_files(&site.source(), 2, 150);
    let snapshot = site.save();
    let image = site.image();
    for lost in 0..3 {
        site.put_image(&image);
        let mut files = std::collections::BTreeMap::new();
        for kind in [ExtentKind::Packs, ExtentKind::Index] {
            read_files(&site.members[lost].join(kind.dir()), &mut files);
        }
        files.keys().for_each(|file| fs::remove_file(file).unwrap());
        let (entries, ledger) = entries_of(&site.store_through((lost + 1) % 3), b"");
        ledger.assert_no_losses();
        assert_eq!(entries.len() as u64, snapshot.root.entries);
    }
}

#[test]
fn gc_keeps_both_copies_of_pages_and_makes_those_that_lack() {
    let options = gc::GcOptions {
        max_waste: 0.0,
        dry_run: false,
        wait: std::time::Duration::from_secs(20),
        limits: limits(),
        detector: Default::default(),
    };
    for members in [1, 2] {
        let site = Site::new(members, 0);
        // So many that some page of the first snapshot is one of the second, wherever pages end.
        many_files(&site.source(), 24, 150);
        let first = site.save();
        for n in 0..40 {
            fs::write(site.source().join(format!("d001/new{n}")), noise(n, 3000)).unwrap();
        }
        let second = site.save();
        let wanted = look(&site.source());
        let copies = |store: &Store| {
            let ledger = Ledger::new();
            let index = index::Index::load(store, &ledger.monitor).unwrap();
            let places = index.places(&second.root.id).unwrap();
            places.iter().map(|place| place.record.pack).collect::<BTreeSet<_>>().len()
        };
        let collect = || gc::run(&site.store(), &options, &Ledger::new().monitor).unwrap();
        // Both copies are wanted: nothing is waste.
        let done = collect();
        assert_eq!((done.deleted_packs, done.thin_pages, done.waste_bytes), (0, 0, 0), "{done:?}");
        forget_one(&site.store(), &first);
        let done = collect();
        assert!(done.repacked_packs > 0, "{done:?}");
        assert_eq!(copies(&site.store()), 2);
        assert_whole(&site.store());
        let again = collect();
        assert_eq!((again.deleted_packs, again.thin_pages), (0, 0), "{again:?}");
        let holds_root = |set: &SetId| {
            let pack = index::read_pack_index(&site.store(), *set).unwrap();
            let mut chunks = pack.records.iter().flat_map(|record| &record.chunks);
            chunks.any(|chunk| chunk.id == second.root.id)
        };
        // One is taken away and forgotten by the index, as repair without the key leaves it.
        let ledger = Ledger::new();
        let set = page_packs(&site.store()).into_iter().find(holds_root).unwrap();
        let file = ExtentName::pack(set).path();
        site.members.iter().for_each(|member| drop(fs::remove_file(member.join(&file))));
        pinstripe::index::Index::load(&site.store(), &ledger.monitor).unwrap().repair().unwrap();
        assert_eq!(copies(&site.store()), 1);
        let done = collect();
        assert!(done.thin_pages > 0 && done.deleted_packs == 0, "{done:?}");
        assert_eq!(copies(&site.store()), 2);
        assert_whole(&site.store());
        site.assert_restores(&site.store(), &second, &wanted);
    }
}

/// An index run that is damaged anywhere, or gone, costs nothing, with or without parity: what it
/// says stands at the end of each pack too, and the records speak for themselves.
#[test]
#[ignore = "with --all: it takes 7 s"]
fn a_damaged_index_run_loses_nothing() {
    for (members, parity) in [(1, 0), (3, 0), (3, 1)] {
        let site = Site::new(members, parity);
        many_files(&site.source(), 3, 60);
        let snapshot = site.save();
        let wanted = look(&site.source());
        let image = site.image();
        let runs: Vec<PathBuf> =
            image.0.keys().filter(|it| it.to_string_lossy().contains("/index/")).cloned().collect();
        for run in &runs {
            let length = image.0[run].len();
            for step in 0..12 {
                site.put_image(&image);
                match step {
                    0 => fs::remove_file(run).unwrap(),
                    1 => fs::write(run, b"").unwrap(),
                    _ => flip(run, (length * (step - 2) / 10) as u64),
                }
                site.assert_restores(&site.store(), &snapshot, &wanted);
                let ledger = Ledger::new();
                let outcome = check(&site.store(), true, &ledger);
                ledger.assert_no_losses();
                assert_eq!((outcome.lost, outcome.hurt_paths), (0, 0), "{outcome:?}");
                let ledger = Ledger::new();
                repair(&mut site.store(), &ledger);
                ledger.assert_no_losses();
                assert_whole(&site.store());
                let ledger = Ledger::new();
                backup(&site.store(), &site.source(), &ledger).unwrap();
                assert_eq!(ledger.get(Counter::DedupedBytes), 0, "no content is stored again");
            }
        }
    }
}
