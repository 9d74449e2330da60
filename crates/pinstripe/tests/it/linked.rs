//! Restoring in place where files have several names, in the target or in the snapshot.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use pinstripe::preview::Preview;
use pinstripe::restore::{RestoreOptions, run};
use pinstripe::{Exclude, PathFilter, Reuse, preview};
use pinstripe_base::error::Kind;
use pinstripe_base::monitor::Counter;
use pinstripe_testing::noise;

use pinstripe_sim::{Ledger, Site, limits};
use pinstripe_sim::{assert_same, look, stamps};

/// Restores `path` in place onto `to` after a dry run, which must predict what is counted.
fn in_place(site: &Site, path: &Path, to: &Path, reuse: Reuse, filter: PathFilter) -> Ledger {
    let path = path.as_os_str().as_bytes();
    let plain = RestoreOptions::new("latest", path, to, limits());
    let options = RestoreOptions { reuse: Some(reuse), filter, ..plain };
    let (dry, real) = (Ledger::new(), Ledger::new());
    let before = (look(to), stamps(to));
    let found = preview::run(&site.store(), &options, &dry.monitor, &mut |_, _, _, _| Ok(()));
    let (_, Preview { make, change, keep, .. }) = found.unwrap();
    assert_eq!((look(to), stamps(to)), before, "a dry run changes nothing");
    run(&site.store(), &options, &real.monitor).unwrap();
    let counts = [make.entries + change.entries, keep.entries, make.bytes + change.bytes];
    use Counter::{KeptEntries, RestoredBytes, RestoredEntries};
    assert_eq!(counts, [RestoredEntries, KeptEntries, RestoredBytes].map(|it| real.get(it)));
    assert_eq!(dry.losses().len(), real.losses().len());
    real
}

fn by_time(site: &Site, to: &Path) -> Ledger {
    in_place(site, &site.source(), to, Reuse::ByTime, PathFilter::default())
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Two files of equal content, size and time, with modes 0600 and 0644; saved, and restored to the
/// `to`. Returns their paths there.
fn alike(site: &Site, to: &Path, names: [&str; 2]) -> [PathBuf; 2] {
    let [one, other] = names.map(|name| site.source().join(name));
    fs::write(&one, "same").unwrap();
    fs::write(&other, "same").unwrap();
    let time = fs::metadata(&one).unwrap().modified().unwrap();
    fs::File::options().write(true).open(&other).unwrap().set_modified(time).unwrap();
    set_mode(&one, 0o600);
    set_mode(&other, 0o644);
    site.save();
    fs::create_dir(to).unwrap();
    by_time(site, to).assert_clean();
    names.map(|name| to.join(name))
}

fn join_names(kept: &Path, replaced: &Path) {
    fs::remove_file(replaced).unwrap();
    fs::hard_link(kept, replaced).unwrap();
}

#[test]
fn two_files_that_the_target_has_as_one_get_their_own_metadata() {
    for flip in [false, true] {
        let site = Site::new(3, 1);
        let to = site.target();
        let [private, public] = alike(&site, &to, ["a", "b"]);
        match flip {
            false => join_names(&private, &public),
            true => join_names(&public, &private),
        }
        by_time(&site, &to).assert_clean();
        assert_eq!((mode(&private), mode(&public)), (0o600, 0o644));
        assert_same(&look(&site.source()), &look(&to));
    }
}

#[test]
fn two_files_that_the_target_has_as_one_get_their_own_content() {
    let site = Site::new(3, 1);
    let [one, other] = ["a", "b"].map(|name| site.source().join(name));
    fs::write(&one, noise(1, 300_000)).unwrap();
    let file = fs::File::create(&other).unwrap();
    file.write_all_at(&noise(1, 300_000), 0).unwrap();
    file.write_all_at(b"differs", 200_000).unwrap();
    // Equal times would be believed.
    file.set_modified(UNIX_EPOCH).unwrap();
    site.save();
    for reuse in [Reuse::ByTime, Reuse::ByContent] {
        for kept in ["a", "b"] {
            let to = site.target();
            fs::create_dir(&to).unwrap();
            let restore = || in_place(&site, &site.source(), &to, reuse, PathFilter::default());
            restore().assert_clean();
            let replaced = if kept == "a" { "b" } else { "a" };
            join_names(&to.join(kept), &to.join(replaced));
            restore().assert_clean();
            assert_same(&look(&site.source()), &look(&to));
            fs::remove_dir_all(&to).unwrap();
        }
    }
}

#[test]
fn a_name_outside_of_what_is_restored_is_not_changed() {
    let site = Site::new(3, 1);
    fs::create_dir(site.source().join("d")).unwrap();
    let to = site.target();
    let [private, public] = alike(&site, &to, ["d/a", "b"]);
    let outside = to.join("outside");
    join_names(&public, &private);
    fs::hard_link(&public, &outside).unwrap();
    let source = site.source().join("d");
    let only = PathFilter { include: Some(Exclude::new(["d"]).unwrap()), exclude: None };
    for (path, at, filter) in
        [(&source, &to.join("d"), PathFilter::default()), (&site.source(), &to, only)]
    {
        join_names(&public, &private);
        in_place(&site, path, at, Reuse::ByTime, filter).assert_clean();
        assert_eq!([&private, &public, &outside].map(|it| mode(it)), [0o600, 0o644, 0o644]);
    }
}

#[test]
fn names_of_one_file_get_metadata_without_a_copy() {
    let site = Site::new(3, 1);
    let names = ["a", "b", "c"].map(|name| site.source().join(name));
    fs::write(&names[0], "content").unwrap();
    names[1..].iter().for_each(|name| fs::hard_link(&names[0], name).unwrap());
    site.save();
    let inode = fs::metadata(&names[0]).unwrap().ino();
    let wanted = look(&site.source());
    set_mode(&names[0], 0o777);
    let source = site.source();
    in_place(&site, &source, &source, Reuse::ByTime, PathFilter::default()).assert_clean();
    assert_eq!(fs::metadata(&names[0]).unwrap().ino(), inode);
    assert_same(&wanted, &look(&source));
}

/// The first name has other bytes under the same size and time; the second one is right.
#[test]
fn a_good_copy_is_not_replaced_by_a_link_to_a_bad_one() {
    for bad in ["a", "b"] {
        let site = Site::new(3, 1);
        fs::write(site.source().join("a"), "good").unwrap();
        fs::hard_link(site.source().join("a"), site.source().join("b")).unwrap();
        site.save();
        let to = site.target();
        fs::create_dir(&to).unwrap();
        let time = fs::metadata(site.source().join("a")).unwrap().modified().unwrap();
        for name in ["a", "b"] {
            let content = if name == bad { "evil" } else { "good" };
            fs::write(to.join(name), content).unwrap();
            let file = fs::File::options().write(true).open(to.join(name)).unwrap();
            file.set_modified(time).unwrap();
            set_mode(&to.join(name), mode(&site.source().join("a")));
        }
        by_time(&site, &to).assert_clean();
        assert_same(&look(&site.source()), &look(&to));
    }
}

#[test]
fn one_blocked_name_does_not_cost_the_others() {
    let site = Site::new(3, 1);
    let names = ["a", "b", "c"].map(|name| site.source().join(name));
    fs::write(&names[0], noise(1, 100_000)).unwrap();
    names[1..].iter().for_each(|name| fs::hard_link(&names[0], name).unwrap());
    site.save();
    for blocked in [&["a"][..], &["a", "b"], &["b"], &["a", "b", "c"]] {
        let to = site.target();
        for name in blocked {
            fs::create_dir_all(to.join(name)).unwrap();
            fs::write(to.join(name).join("x"), "x").unwrap();
        }
        let ledger = by_time(&site, &to);
        assert_eq!(ledger.losses().len(), blocked.len(), "{:?}", ledger.seen());
        blocked.iter().for_each(|name| assert_eq!(ledger.loss_at(name).kind, Kind::Refused));
        for name in ["a", "b", "c"].into_iter().filter(|name| !blocked.contains(name)) {
            assert_eq!(fs::read(to.join(name)).unwrap(), noise(1, 100_000));
        }
        fs::remove_dir_all(&to).unwrap();
    }
}

#[test]
fn a_sparse_file_is_compared_with_its_holes() {
    let site = Site::new(3, 1);
    let path = site.source().join("disk");
    let file = fs::File::create(&path).unwrap();
    file.write_all_at(&noise(3, 20_000), 1 << 20).unwrap();
    file.set_len(3 << 20).unwrap();
    site.save();
    let to = site.target();
    fs::create_dir(&to).unwrap();
    by_time(&site, &to).assert_clean();
    let compare = || in_place(&site, &site.source(), &to, Reuse::ByContent, PathFilter::default());
    let before = stamps(&to);
    let ledger = compare();
    assert_eq!(stamps(&to), before, "what is equal is not touched");
    assert_eq!(ledger.get(Counter::RestoredEntries), 0);
    let time = fs::metadata(&path).unwrap().modified().unwrap();
    for at in [0, 900_000, 2_500_000] {
        let file = fs::File::options().write(true).open(to.join("disk")).unwrap();
        file.write_all_at(b"garbage", at).unwrap();
        file.set_modified(time).unwrap();
        assert_eq!(compare().get(Counter::RestoredEntries), 1, "garbage in a hole at {at}");
        assert_same(&look(&site.source()), &look(&to));
    }
}

#[test]
fn the_size_of_a_snapshot_counts_each_file_once() {
    let site = Site::new(3, 1);
    let names = ["a", "b", "c"].map(|name| site.source().join(name));
    fs::write(&names[0], noise(1, 100_000)).unwrap();
    names[1..].iter().for_each(|name| fs::hard_link(&names[0], name).unwrap());
    assert_eq!(site.save().content_bytes(), 100_000);
    pinstripe_testing::await_tick();
    assert_eq!(site.save().content_bytes(), 100_000, "unchanged");
    fs::set_permissions(&names[0], fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(site.save().content_bytes(), 100_000, "changed");
}
