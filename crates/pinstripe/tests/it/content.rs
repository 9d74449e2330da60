//! Content without a restore: `cat` and `dump` give what was backed up, byte for byte.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use pinstripe::{Limits, Store, cat, dump};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::Counter;
use pinstripe_testing::{is_root, skipped};
use proptest::prelude::*;

use pinstripe_sim::{Ledger, Site, limits, noise, read_files, small_tree};
use pinstripe_sim::{assert_same, look};

/// The output of `cat` for files of the latest snapshot, named below the source.
fn cat(
    site: &Site,
    store: &Store,
    names: &[&str],
    offset: u64,
    length: Option<u64>,
    ledger: &Ledger,
) -> Result<Vec<u8>> {
    let path = |name: &&str| site.source().join(name).as_os_str().as_bytes().to_vec();
    let files: Vec<_> = names.iter().map(|name| ("latest".to_owned(), path(name))).collect();
    let options = cat::CatOptions { offset, length, ..cat::CatOptions::new(&files, limits()) };
    let mut out = Vec::new();
    cat::run(store, &options, &ledger.monitor, &mut |bytes| {
        out.extend_from_slice(bytes);
        Ok(())
    })?;
    assert_eq!(ledger.get(Counter::RestoredBytes), out.len() as u64);
    Ok(out)
}

fn whole(site: &Site, names: &[&str]) -> Vec<u8> {
    let ledger = Ledger::new();
    let out = cat(site, &site.store(), names, 0, None, &ledger).unwrap();
    ledger.assert_clean();
    out
}

/// A file whose list of chunks is long enough to stand in chunks itself, and one with holes.
fn large_tree(site: &Site) {
    small_tree(&site.source(), 1);
    fs::write(site.source().join("long"), noise(5, 9_000_000)).unwrap();
    let sparse = fs::File::create(site.source().join("sparse")).unwrap();
    sparse.write_all_at(&noise(6, 30_000), 1 << 20).unwrap();
    sparse.write_all_at(b"end", 5 << 20).unwrap();
    sparse.set_len((5 << 20) + 70_000).unwrap();
    let hole = fs::File::create(site.source().join("hole")).unwrap();
    hole.set_len(200_000).unwrap();
}

#[test]
fn cat_gives_whole_files_in_the_order_of_their_names() {
    let site = Site::new(4, 1);
    large_tree(&site);
    site.save();
    let names = ["long", "d/e/short", "empty", "sparse", "hole", "noise", "d/again", "long"];
    let wanted: Vec<u8> =
        names.iter().flat_map(|name| fs::read(site.source().join(name)).unwrap()).collect();
    assert!(whole(&site, &names) == wanted);
}

#[test]
fn cat_refuses_what_has_no_content() {
    let site = Site::new(3, 1);
    small_tree(&site.source(), 1);
    site.save();
    let refused = |name: &str, offset| {
        cat(&site, &site.store(), &["noise", name], offset, None, &Ledger::new()).unwrap_err()
    };
    assert_eq!(refused("d", 0).kind(), Kind::Usage);
    let link = refused("link", 0);
    assert_eq!(link.kind(), Kind::Usage);
    assert_eq!(link.expected_found(), Some(("a regular file", "a symlink")));
    assert_eq!(refused("none", 0).kind(), Kind::NotFound);
    assert_eq!(refused("noise/deeper", 0).kind(), Kind::NotFound);
    assert_eq!(refused("empty", 1).kind(), Kind::Usage);
    assert_eq!(refused("noise", 60_001).kind(), Kind::Usage);
}

#[test]
fn a_reader_that_ends_early_ends_everything() {
    let site = Site::new(3, 1);
    large_tree(&site);
    site.save();
    let path = site.source().join("long").as_os_str().as_bytes().to_vec();
    let files = vec![("latest".to_owned(), path); 20];
    // Less room than one record: nothing may wait for ever.
    let limits = Limits::new(2, 3, 1 << 20);
    let options = cat::CatOptions::new(&files, limits);
    let mut left = 50_000_000_u64;
    let error = cat::run(&site.store(), &options, &Ledger::new().monitor, &mut |bytes| {
        left = left.saturating_sub(bytes.len() as u64);
        if left > 0 { Ok(()) } else { Err(Error::new(Kind::Io, "enough")) }
    });
    assert_eq!(error.unwrap_err().what(), "enough");
}

#[test]
fn damage_within_parity_costs_nothing_and_beyond_it_ends_cat() {
    let site = Site::new(4, 1);
    large_tree(&site);
    site.save();
    let wanted = fs::read(site.source().join("long")).unwrap();
    fs::remove_dir_all(&site.members[1]).unwrap();
    let (store, ledger) = (site.store(), Ledger::new());
    assert!(cat(&site, &store, &["long"], 0, None, &ledger).unwrap() == wanted);
    assert!(ledger.get(Counter::RebuiltStrips) > 0);
    spoil(&site.members[2]);
    let error = cat(&site, &store, &["long"], 0, None, &Ledger::new()).unwrap_err();
    assert!(matches!(error.kind(), Kind::TooManyLosses | Kind::Corrupt), "{error}");
}

/// Overwrites the middle of the strips of every large pack on one member: trees are in small ones.
fn spoil(member: &Path) {
    let mut files = std::collections::BTreeMap::new();
    read_files(&member.join("packs"), &mut files);
    for (path, bytes) in files {
        if bytes.len() < 1 << 20 {
            continue;
        }
        let file = fs::File::options().write(true).open(path).unwrap();
        let third = bytes.len() / 3;
        file.write_all_at(&noise(9, third), third as u64).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(pinstripe_testing::cases(20)))]
    #[test]
    fn cat_gives_any_range(
        ranges in prop::collection::vec((0_u64..6_000_000, prop::option::of(0_u64..400_000)), 8),
    ) {
        thread_local! {
            static SITE: Site = {
                let site = Site::new(3, 1);
                large_tree(&site);
                site.save();
                site
            };
        }
        SITE.with(|site| {
            let store = site.store();
            for (offset, length) in ranges {
                for name in ["long", "sparse", "hole"] {
                    let wanted = fs::read(site.source().join(name)).unwrap();
                    let from = offset.min(wanted.len() as u64);
                    let to = length.map_or(wanted.len(), |it| wanted.len().min((from + it) as usize));
                    let found = cat(site, &store, &[name], from, length, &Ledger::new()).unwrap();
                    assert!(found == wanted[from as usize..to], "{name} {from} {length:?}");
                }
            }
        });
    }
}

/// The archive of what is at `path` in the latest snapshot.
fn dump(store: &Store, path: &Path, fill_holes: bool, ledger: &Ledger) -> Vec<u8> {
    let path = path.as_os_str().as_bytes();
    let options =
        dump::DumpOptions { snapshot: "latest".into(), path, fill_holes, limits: limits() };
    let mut archive = Vec::new();
    dump::run(store, &options, &ledger.monitor, &mut |bytes| {
        archive.extend_from_slice(bytes);
        Ok(())
    })
    .unwrap();
    assert_eq!(archive.len() % 10_240, 0);
    archive
}

/// Unpacks an archive with the system's tar; `None` where there is none.
fn unpack(test: &str, archive: &[u8], to: &Path) -> Option<()> {
    fs::create_dir(to).unwrap();
    let file = to.with_extension("tar");
    fs::write(&file, archive).unwrap();
    let tar = Command::new("tar")
        .args(["--xattrs", "--xattrs-include=*", "--numeric-owner", "-xpf"])
        .arg(&file)
        .arg("-C")
        .arg(to)
        .stdin(Stdio::null())
        .output();
    let Ok(output) = tar else {
        skipped(test, "no tar on this system");
        return None;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(())
}

/// Every kind of entry that an archive holds, and names of every sort.
fn odd_tree(at: &Path) {
    let long = "long name ".repeat(24);
    let deep = at.join(&long).join(&long).join("deep");
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join(&long), noise(2, 5000)).unwrap();
    fs::hard_link(deep.join(&long), at.join("another name")).unwrap();
    fs::write(at.join(OsStr::from_bytes(b"odd \xff\n=name")), b"x").unwrap();
    fs::write(at.join("größe"), b"y").unwrap();
    symlink("t".repeat(400), at.join("long link")).unwrap();
    symlink(OsStr::from_bytes(b"\xfe"), at.join("odd link")).unwrap();
    fs::hard_link(at.join("odd link"), at.join("odd link too")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        at.join("fifo"),
        rustix::fs::FileType::Fifo,
        0o600.into(),
        0,
    )
    .unwrap();
    let attribute = |name: &str, value: &[u8]| {
        rustix::fs::setxattr(at.join("größe"), name, value, rustix::fs::XattrFlags::empty())
    };
    if attribute("user.odd=%name", b"a\0b\n").is_ok() {
        attribute("user.empty", b"").unwrap();
    }
    let old = |name: &str, seconds: i64, nanos: i64| {
        let time = rustix::fs::Timespec { tv_sec: seconds, tv_nsec: nanos };
        let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
        rustix::fs::utimensat(rustix::fs::CWD, at.join(name), &times, rustix::fs::AtFlags::empty())
            .unwrap();
    };
    old("größe", -86_400, 123_456_789);
    old("another name", 1_600_000_000, 1);
    if is_root() {
        rustix::fs::chown(
            at.join("fifo"),
            Some(rustix::fs::Uid::from_raw(3_000_000)),
            Some(rustix::fs::Gid::from_raw(7)),
        )
        .unwrap();
    }
}

#[test]
fn what_tar_unpacks_is_what_was_backed_up() {
    let site = Site::new(4, 1);
    large_tree(&site);
    odd_tree(&site.source());
    site.save();
    let wanted = look(&site.source());
    for fill_holes in [false, true] {
        let ledger = Ledger::new();
        let archive = dump(&site.store(), &site.source(), fill_holes, &ledger);
        ledger.assert_clean();
        assert_eq!(ledger.get(Counter::RestoredEntries), wanted.len() as u64);
        let to = site.target();
        if unpack("what_tar_unpacks_is_what_was_backed_up", &archive, &to).is_none() {
            return;
        }
        let mut wanted = wanted.clone();
        let mut found = look(&to);
        if fill_holes {
            wanted.values_mut().chain(found.values_mut()).for_each(|look| look.extents.clear());
        } else {
            assert!(archive.len() < 10_000_000, "holes take no room: {}", archive.len());
        }
        assert_same(&wanted, &found);
        pinstripe_sim::remove_tree(&to);
    }
}

#[test]
fn a_single_file_and_the_whole_keep_the_names_that_restore_gives() {
    let site = Site::new(3, 1);
    small_tree(&site.source(), 1);
    std::os::unix::net::UnixListener::bind(site.source().join("socket")).unwrap();
    site.save();
    let names = |path: &Path| {
        let ledger = Ledger::new();
        let archive = dump(&site.store(), path, false, &ledger);
        ledger.assert_no_losses();
        let mut archive = tar::Archive::new(&archive[..]);
        let names = archive.entries().unwrap().map(|it| it.unwrap().path_bytes().to_vec());
        (names.collect::<Vec<_>>(), ledger.warnings().len())
    };
    assert_eq!(names(&site.source().join("noise")), (vec![b"noise".to_vec()], 0));
    let (all, warnings) = names(Path::new(""));
    assert_eq!(warnings, 1, "a socket is left out, and that is said");
    let source = site.source().as_os_str().as_bytes()[1..].to_vec();
    assert!(all.contains(&[&source[..], b"/d/e/"].concat()));
    assert!(all.contains(&[&source[..], b"/d/e/short"].concat()));
}

#[test]
fn what_is_lost_is_named_and_the_rest_of_the_archive_stays_readable() {
    let site = Site::new(4, 1);
    large_tree(&site);
    site.save();
    spoil(&site.members[1]);
    spoil(&site.members[3]);
    let ledger = Ledger::new();
    let archive = dump(&site.store(), &site.source(), false, &ledger);
    assert!(!ledger.losses().is_empty());
    let mut archive = tar::Archive::new(&archive[..]);
    let mut sound = 0;
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let name = String::from_utf8(entry.path_bytes().to_vec()).unwrap();
        let mut content = Vec::new();
        std::io::Read::read_to_end(&mut entry, &mut content).unwrap();
        let path = site.source().join(&name);
        let is_plain = entry.header().entry_type() == tar::EntryType::Regular && path.is_file();
        if is_plain {
            let is_named = ledger.losses().iter().any(|loss| loss.place == path);
            assert_eq!(fs::read(&path).unwrap() != content, is_named, "{name}");
            sound += u32::from(!is_named);
        }
    }
    assert!(sound > 0);
}
