//! Restoring onto what is there already: only what differs is written, what should not be there
//! goes only when that was asked for, and nothing outside is ever touched.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use pinstripe::preview::{Act, Preview};
use pinstripe::restore::{Delete, RestoreOptions, mark_of, run};
use pinstripe::{Exclude, Owners, PathFilter, Reuse, Rules, TreeSink, preview};
use pinstripe_base::error::{Kind, Result};
use pinstripe_base::monitor::Counter;
use pinstripe_member::meta::{FileKind, Metadata, Time};
use pinstripe_testing::{is_root, skipped};
use proptest::prelude::*;

use pinstripe_sim::{Ledger, Site, limits, noise, small_tree};
use pinstripe_sim::{assert_same, look, stamps};

type Manner = RestoreOptions<'static>;

/// The options of a restore whose path and target come later.
fn plain() -> Manner {
    RestoreOptions::new("latest", b"", Path::new(""), limits())
}

fn by_time() -> Manner {
    Manner { reuse: Some(Reuse::ByTime), ..plain() }
}

fn deleting() -> Manner {
    Manner { delete: Some(Delete::WithinReason), ..by_time() }
}

/// Restores the source tree of the latest snapshot onto `to`.
fn onto(site: &Site, to: &Path, manner: &Manner) -> Result<Ledger> {
    let (ledger, source) = (Ledger::new(), site.source());
    let path = source.as_os_str().as_bytes();
    let options = RestoreOptions { path, to, ..manner.clone() };
    run(&site.store(), &options, &ledger.monitor)?;
    Ok(ledger)
}

fn preview(site: &Site, to: &Path, manner: &Manner) -> (Preview, Vec<(Act, String, u64)>) {
    let (ledger, source) = (Ledger::new(), site.source());
    let path = source.as_os_str().as_bytes();
    let options = RestoreOptions { path, to, ..manner.clone() };
    let mut seen = Vec::new();
    let (_, found) =
        preview::run(&site.store(), &options, &ledger.monitor, &mut |act, place, bytes, _| {
            let below = place.strip_prefix(to).unwrap_or(&place).to_string_lossy().into_owned();
            seen.push((act, below, bytes));
            Ok(())
        })
        .unwrap();
    ledger.assert_clean();
    (found, seen)
}

#[test]
fn what_is_as_it_should_be_is_not_touched() {
    let site = Site::new(4, 1);
    small_tree(&site.source(), 1);
    site.save();
    let before = (look(&site.source()), stamps(&site.source()));
    for manner in [by_time(), Manner { reuse: Some(Reuse::ByContent), ..plain() }] {
        let ledger = onto(&site, &site.source(), &manner).unwrap();
        ledger.assert_clean();
        assert_eq!(ledger.get(Counter::RestoredBytes), 0);
        assert_eq!((look(&site.source()), stamps(&site.source())), before);
        let (found, seen) = preview(&site, &site.source(), &manner);
        assert_eq!((found.make.entries, found.change.entries, seen.len()), (0, 0, 0));
    }
}

#[test]
fn only_changed_chunks_are_fetched_and_the_rest_is_kept() {
    let site = Site::new(4, 1);
    small_tree(&site.source(), 1);
    fs::write(site.source().join("large"), noise(7, 3_000_000)).unwrap();
    site.save();
    let wanted = look(&site.source());
    let large = fs::File::options().write(true).open(site.source().join("large")).unwrap();
    large.write_all_at(b"changed", 1_500_000).unwrap();
    fs::write(site.source().join("noise"), noise(1, 50_000)).unwrap();
    fs::remove_file(site.source().join("link")).unwrap();
    fs::set_permissions(site.source().join("d/text"), fs::Permissions::from_mode(0o600)).unwrap();
    let (found, seen) = preview(&site, &site.source(), &by_time());
    assert_eq!(found.make.entries, 1, "{seen:?}");
    assert!(seen.iter().any(|(act, path, _)| (*act, &**path) == (Act::Make, "link")));
    assert!(seen.contains(&(Act::Change, "d/text".into(), 0)), "{seen:?}");
    let ledger = onto(&site, &site.source(), &by_time()).unwrap();
    ledger.assert_clean();
    assert_same(&wanted, &look(&site.source()));
    let written = ledger.get(Counter::RestoredBytes);
    assert_eq!(written, found.change.bytes);
    assert!((1..100_000).contains(&written), "{written}");
    assert!(ledger.get(Counter::KeptBytes) > 2_900_000);
}

#[test]
fn a_change_that_hides_behind_its_time_is_found_by_content() {
    let site = Site::new(3, 1);
    small_tree(&site.source(), 1);
    site.save();
    let wanted = look(&site.source());
    let file = fs::File::options().write(true).open(site.source().join("noise")).unwrap();
    let mtime = file.metadata().unwrap().modified().unwrap();
    file.write_all_at(b"hidden", 30_000).unwrap();
    file.set_modified(mtime).unwrap();
    onto(&site, &site.source(), &by_time()).unwrap().assert_clean();
    assert_ne!(look(&site.source()), wanted, "size and time are believed");
    let by_content = Manner { reuse: Some(Reuse::ByContent), ..plain() };
    onto(&site, &site.source(), &by_content).unwrap().assert_clean();
    assert_same(&wanted, &look(&site.source()));
}

#[test]
fn holes_are_holes_again_whatever_was_in_them() {
    let site = Site::new(3, 1);
    small_tree(&site.source(), 1);
    let path = site.source().join("sparse");
    let file = fs::File::create(&path).unwrap();
    file.write_all_at(&noise(3, 20_000), 1 << 20).unwrap();
    file.set_len(2 << 20).unwrap();
    site.save();
    let wanted = look(&site.source());
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.write_all_at(b"not a hole", 100).unwrap();
    onto(&site, &site.source(), &by_time()).unwrap().assert_clean();
    assert_same(&wanted, &look(&site.source()));
}

#[test]
fn what_the_snapshot_does_not_have_goes_only_when_asked() {
    let site = Site::new(3, 1);
    small_tree(&site.source(), 1);
    site.save();
    let wanted = look(&site.source());
    fs::create_dir_all(site.source().join("more/deep")).unwrap();
    fs::write(site.source().join("more/deep/file"), b"12345").unwrap();
    // A directory that holds something, where a file belongs.
    fs::remove_file(site.source().join("empty")).unwrap();
    fs::create_dir(site.source().join("empty")).unwrap();
    fs::write(site.source().join("empty/x"), b"x").unwrap();
    let ledger = onto(&site, &site.source(), &by_time()).unwrap();
    assert_eq!(ledger.loss_at("empty").kind, Kind::Refused);
    assert!(site.source().join("more/deep/file").exists());
    let (found, seen) = preview(&site, &site.source(), &deleting());
    assert_eq!((found.remove.entries, found.remove.bytes), (5, 6), "{seen:?}");
    let ledger = onto(&site, &site.source(), &deleting()).unwrap();
    ledger.assert_clean();
    assert_eq!(ledger.get(Counter::RemovedEntries), 5);
    assert_same(&wanted, &look(&site.source()));
}

#[test]
fn a_wrong_target_is_not_emptied() {
    let site = Site::new(3, 1);
    small_tree(&site.source(), 1);
    site.save();
    let to = site.target();
    fs::create_dir(&to).unwrap();
    for number in 0..20 {
        fs::write(to.join(format!("precious {number}")), b"x").unwrap();
    }
    let before = look(&to);
    let refused = onto(&site, &to, &deleting()).map(drop).unwrap_err();
    assert_eq!(refused.kind(), Kind::Refused);
    assert_eq!(look(&to), before);
    let filter = PathFilter { include: None, exclude: Some(Exclude::new(["*.o"]).unwrap()) };
    let refused = onto(&site, &to, &Manner { filter, ..deleting() }).map(drop).unwrap_err();
    assert_eq!(refused.kind(), Kind::Usage);
    let whatever = Manner { delete: Some(Delete::Whatever), ..by_time() };
    onto(&site, &to, &whatever).unwrap().assert_clean();
    assert_same(&look(&site.source()), &look(&to));
}

#[test]
fn a_store_below_the_target_is_never_removed() {
    let site = Site::new(3, 1);
    small_tree(&site.source(), 1);
    site.save();
    let to = site.target();
    fs::create_dir_all(to.join("backup")).unwrap();
    fs::write(to.join("other"), b"x").unwrap();
    fs::create_dir(to.join("backup/member")).unwrap();
    fs::write(to.join("backup/member/pinstripe.member"), b"label").unwrap();
    fs::write(to.join("backup/member/pack"), b"data").unwrap();
    let whatever = Manner { delete: Some(Delete::Whatever), ..by_time() };
    let ledger = onto(&site, &to, &whatever).unwrap();
    assert_eq!(ledger.warnings().len(), 1, "{:?}", ledger.seen());
    assert_eq!(fs::read(to.join("backup/member/pack")).unwrap(), b"data");
    assert!(!to.join("other").exists());
}

#[test]
fn a_planted_symlink_is_replaced_and_never_followed() {
    let site = Site::new(3, 1);
    small_tree(&site.source(), 1);
    site.save();
    let wanted = look(&site.source());
    let (to, outside) = (site.target(), site.path("outside"));
    for directory in [&to, &outside] {
        fs::create_dir(directory).unwrap();
    }
    fs::write(outside.join("text"), b"secret").unwrap();
    let before = look(&outside);
    symlink(&outside, to.join("d")).unwrap();
    symlink(outside.join("text"), to.join("noise")).unwrap();
    symlink(&outside, to.join("extra")).unwrap();
    let whatever = Manner { delete: Some(Delete::Whatever), ..by_time() };
    onto(&site, &to, &whatever).unwrap().assert_clean();
    assert_same(&wanted, &look(&to));
    assert_eq!(look(&outside), before);
}

#[test]
fn everything_returns_to_its_own_place() {
    let site = Site::new(3, 1);
    small_tree(&site.source(), 1);
    site.save();
    let wanted = look(&site.source());
    fs::remove_dir_all(site.source().join("d")).unwrap();
    fs::write(site.source().join("noise"), b"gone").unwrap();
    let path = site.source();
    let full = Manner { full_paths: true, ..deleting() };
    let ledger = Ledger::new();
    let root = Path::new("/");
    let options = RestoreOptions { path: path.as_os_str().as_bytes(), to: root, ..full };
    run(&site.store(), &options, &ledger.monitor).unwrap();
    ledger.assert_clean();
    assert_same(&wanted, &look(&site.source()));
}

#[test]
fn patterns_choose_what_comes_back() {
    let site = Site::new(3, 1);
    small_tree(&site.source(), 1);
    site.save();
    let chosen = |include: &[&str], exclude: &[&str]| {
        let to = site.target();
        let read =
            |patterns: &[&str]| (!patterns.is_empty()).then(|| Exclude::new(patterns).unwrap());
        let filter = PathFilter { include: read(include), exclude: read(exclude) };
        onto(&site, &to, &Manner { filter, ..plain() }).unwrap().assert_clean();
        let found = look(&to).into_keys().map(|path| String::from_utf8(path).unwrap());
        found.filter(|path| !path.is_empty()).collect::<Vec<_>>()
    };
    assert_eq!(chosen(&["short"], &[]), ["d", "d/e", "d/e/short"]);
    assert_eq!(chosen(&["d"], &["again"]), ["d", "d/e", "d/e/short", "d/text"]);
    assert_eq!(chosen(&[], &["d"]), ["empty", "link", "noise"]);
    assert_eq!(chosen(&["again"], &[]), ["d", "d/again"]);
}

#[test]
fn owners_are_mapped_or_left() {
    if !is_root() {
        skipped("owners_are_mapped_or_left", "only root may give files away");
        return;
    }
    let site = Site::new(3, 1);
    small_tree(&site.source(), 1);
    let file = site.source().join("d/text");
    std::os::unix::fs::chown(&file, Some(1234), Some(55)).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o6755)).unwrap();
    site.save();
    let restored = |owners: Owners| {
        let to = site.target();
        onto(&site, &to, &Manner { owners, ..plain() }).unwrap().assert_clean();
        let stat = fs::metadata(to.join("d/text")).unwrap();
        (stat.uid(), stat.gid(), stat.mode() & 0o7777)
    };
    assert_eq!(restored(Owners::default()), (1234, 55, 0o6755));
    let map = Owners { users: vec![(1234, 7), (7, 8)], groups: vec![(55, 9)], leave: false };
    assert_eq!(restored(map), (7, 9, 0o6755));
    let leave = Owners { leave: true, ..Owners::default() };
    assert_eq!(restored(leave), (0, 0, 0o755), "no bit lends the rights of somebody else");
}

#[test]
fn no_unfinished_file_ever_has_a_name_that_something_may_have() {
    let site = Site::bare(1);
    let to = site.target();
    let sink = TreeSink::create(&to, Rules::OVERWRITE).unwrap();
    let names = || {
        let names = fs::read_dir(&to).unwrap().map(|it| it.unwrap().file_name());
        names.map(|name| name.into_string().unwrap()).collect::<Vec<_>>()
    };
    let file = sink.create_file(b"file", 4, plain_file()).unwrap();
    file.write_at(0, b"ha").unwrap();
    assert!(names()[0].starts_with(".pinstripe-"), "what a kill would leave: {:?}", names());
    file.write_at(2, b"lf").unwrap();
    file.finish().unwrap();
    assert_eq!(names(), ["file"]);
    drop(sink.create_file(b"other", 4, plain_file()).unwrap());
    assert_eq!(names(), ["file"]);
}

fn plain_file() -> Metadata {
    Metadata {
        kind: FileKind::File,
        mode: 0o644,
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        mtime: Time { seconds: 1, nanos: 2 },
        rdev: (0, 0),
        xattrs: Vec::new(),
    }
}

/// Into an empty target files go under their own names at once. What a kill leaves there is told by
/// a mark, refused as a target, and completed in place: a file that is not whole does not have its
/// time yet.
#[test]
fn a_restore_that_was_cut_off_is_known_and_gone_on_with() {
    let site = Site::new(1, 0);
    small_tree(&site.source(), 1);
    let snapshot = site.save();
    let wanted = look(&site.source());
    let (to, source) = (site.target(), site.source());
    let below = source.as_os_str().as_bytes()[1..].to_vec();
    let marks = || {
        let names = fs::read_dir(&to).unwrap().map(|it| it.unwrap().file_name());
        names.filter(|it| it.as_bytes().starts_with(b".pinstripe-")).count()
    };
    // As a kill leaves it: one file whole, one with all of its length and half of its content.
    let sink = TreeSink::create(&to, Rules::EMPTY).unwrap();
    sink.begin(&mark_of(&snapshot, &below)).unwrap();
    assert_eq!(marks(), 1);
    let stat = fs::metadata(source.join("noise")).unwrap();
    let time = Time { seconds: stat.mtime(), nanos: stat.mtime_nsec() as u32 };
    let metadata = Metadata { mtime: time, ..plain_file() };
    let half = sink.create_file(b"noise", stat.len(), metadata).unwrap();
    half.write_at(stat.len() - 9, b"not these").unwrap();
    std::mem::forget(half);
    assert_eq!(fs::metadata(to.join("noise")).unwrap().len(), stat.len());

    let refused = onto(&site, &to, &plain()).map(drop).unwrap_err();
    assert_eq!(refused.kind(), Kind::Refused);
    assert!(refused.to_string().contains("was interrupted"), "{refused}");
    // Another snapshot's restore does not say that this one is complete.
    fs::write(source.join("later"), b"x").unwrap();
    site.save();
    onto(&site, &to, &by_time()).unwrap();
    assert_eq!(marks(), 1);
    fs::remove_file(to.join("later")).unwrap();
    let ledger = Ledger::new();
    let path = source.as_os_str().as_bytes();
    let name = snapshot.id.to_string();
    let options = RestoreOptions { snapshot: name.as_str().into(), path, to: &to, ..by_time() };
    run(&site.store(), &options, &ledger.monitor).unwrap();
    ledger.assert_clean();
    assert_eq!(marks(), 0);
    assert_same(&wanted, &look(&to));
}

#[derive(Debug, Clone)]
enum Change {
    Overwrite(usize, u64, u64),
    Truncate(usize, u64),
    Remove(usize),
    Add(u64),
    Touch(usize),
    BecomeSymlink(usize),
    BecomeDirectory(usize),
}

fn change() -> impl Strategy<Value = Change> {
    let at = 0_usize..8;
    prop_oneof![
        (at.clone(), 0_u64..60_000, any::<u64>())
            .prop_map(|(at, from, s)| Change::Overwrite(at, from, s)),
        (at.clone(), 0_u64..90_000).prop_map(|(at, to)| Change::Truncate(at, to)),
        at.clone().prop_map(Change::Remove),
        any::<u64>().prop_map(Change::Add),
        at.clone().prop_map(Change::Touch),
        at.clone().prop_map(Change::BecomeSymlink),
        at.prop_map(Change::BecomeDirectory),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn any_damage_of_a_tree_is_undone(changes in prop::collection::vec(change(), 1..12), checksum: bool) {
        let site = Site::new(3, 1);
        small_tree(&site.source(), 1);
        site.save();
        let wanted = look(&site.source());
        let names = ["noise", "d/text", "d/e/short", "empty", "d/again", "link", "d", "d/e"];
        for (number, change) in changes.iter().enumerate() {
            let path = |at: &usize| site.source().join(names[*at]);
            // What one change took away the next one may not find: that is part of the game.
            let _ = match change {
                Change::Overwrite(at, from, seed) => fs::File::options().write(true).open(path(at))
                    .and_then(|file| file.write_all_at(&noise(*seed, 500), *from)),
                Change::Truncate(at, to) => fs::File::options().write(true).open(path(at))
                    .and_then(|file| file.set_len(*to)),
                Change::Remove(at) => fs::remove_file(path(at)).or_else(|_| fs::remove_dir_all(path(at))),
                Change::Add(seed) => fs::write(site.source().join(format!("new {number}")), noise(*seed, 100)),
                Change::Touch(at) => fs::set_permissions(path(at), fs::Permissions::from_mode(0o700)),
                Change::BecomeSymlink(at) => fs::remove_file(path(at))
                    .and_then(|()| symlink("/nowhere", path(at))),
                Change::BecomeDirectory(at) => fs::remove_file(path(at))
                    .and_then(|()| fs::create_dir(path(at)))
                    .and_then(|()| fs::write(path(at).join("inside"), b"x")),
            };
        }
        let reuse = Some(if checksum { Reuse::ByContent } else { Reuse::ByTime });
        let manner = Manner { reuse, delete: Some(Delete::Whatever), ..plain() };
        let ledger = onto(&site, &site.source(), &manner).unwrap();
        ledger.assert_clean();
        assert_same(&wanted, &look(&site.source()));
    }
}
