//! Arrays of Linux md held against ours, both ways: `cargo xtask md-oracle`.
//!
//! ```text
//! md makes and fills a set --> we read it, whole and without members
//! we write to it           --> mdadm --examine finds it clean; md assembles it, finds no mismatch in a
//!                              check, and reads what we wrote, whole and without members
//! ```
//! md runs in a User-Mode Linux (see `guest`), so that no module, no root and no spare disk are
//! needed.

#![allow(clippy::disallowed_methods, clippy::disallowed_macros, reason = "a test")]

mod guest;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use guest::{FlusherLease, blank, output};
use pinstripe_array::{MdAssembleOptions, assemble_md_members};
use pinstripe_io::device::{Access, Device, FileDevice, Policy, SharedDevice};

const MEMBER_BYTES: u64 = 8 << 20;
/// Room for the members of a set on the guest's disk.
const SLOTS: u64 = 6;

/// A set that md makes.
struct Set {
    name: &'static str,
    level: u32,
    members: usize,
    /// The number of members that may be lost.
    redundancy: usize,
    options: &'static str,
}

const fn set(
    name: &'static str,
    level: u32,
    members: usize,
    redundancy: usize,
    options: &'static str,
) -> Set {
    Set { name, level, members, redundancy, options }
}

#[rustfmt::skip]
const SETS: [Set; 30] = [
    set("r0", 0, 3, 0, "--chunk=64"),
    set("r0-c4", 0, 5, 0, "--chunk=4"),
    set("r1", 1, 2, 1, "--bitmap=none"),
    set("r1-bitmap", 1, 3, 2, "--bitmap=internal"),
    set("r4", 4, 4, 1, "--chunk=64"),
    set("r5-la", 5, 4, 1, "--chunk=64 --layout=la"),
    set("r5-ra", 5, 3, 1, "--chunk=16 --layout=ra"),
    set("r5-ls", 5, 4, 1, "--chunk=64 --layout=ls"),
    set("r5-ls-c512", 5, 3, 1, "--chunk=512 --layout=ls"),
    set("r5-rs", 5, 5, 1, "--chunk=4 --layout=rs"),
    set("r5-first", 5, 4, 1, "--chunk=32 --layout=parity-first"),
    set("r5-last", 5, 4, 1, "--chunk=32 --layout=parity-last"),
    set("r5-bitmap", 5, 4, 1, "--chunk=64 --bitmap=internal"),
    set("r6-la", 6, 5, 2, "--chunk=64 --layout=la"),
    set("r6-ra", 6, 4, 2, "--chunk=64 --layout=ra"),
    set("r6-ls", 6, 4, 2, "--chunk=64 --layout=ls"),
    set("r6-rs", 6, 5, 2, "--chunk=16 --layout=rs"),
    set("r6-first", 6, 5, 2, "--chunk=16 --layout=parity-first"),
    set("r6-last", 6, 5, 2, "--chunk=16 --layout=parity-last"),
    set("r6-ddf-zero", 6, 5, 2, "--chunk=16 --layout=ddf-zero-restart"),
    set("r6-ddf-n", 6, 5, 2, "--chunk=16 --layout=ddf-N-continue"),
    set("r6-ls-6", 6, 5, 2, "--chunk=16 --layout=left-symmetric-6"),
    set("r6-first-6", 6, 4, 2, "--chunk=64 --layout=parity-first-6"),
    set("r10-n2", 10, 4, 1, "--chunk=64 --layout=n2"),
    set("r10-f2", 10, 4, 1, "--chunk=64 --layout=f2"),
    set("r10-o2", 10, 5, 1, "--chunk=16 --layout=o2"),
    set("r1-1.0", 1, 2, 1, "--metadata=1.0 --bitmap=internal"),
    set("r5-1.0", 5, 4, 1, "--metadata=1.0 --chunk=64"),
    set("r5-1.1", 5, 3, 1, "--metadata=1.1 --chunk=16 --bitmap=internal"),
    set("r10-1.1", 10, 4, 1, "--metadata=1.1 --chunk=64 --layout=f2"),
];

/// Bytes that differ from place to place.
fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed;
    let mut next = move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 27)).to_le_bytes()
    };
    (0..bytes / 8).flat_map(|_| next()).collect()
}

/// The place of a member on the guest's disk.
fn place(set: usize, member: usize) -> u64 {
    (set as u64 * SLOTS + member as u64) * MEMBER_BYTES
}

/// The lines of a script that carry members between the disk and the guest's memory.
fn copy(number: usize, set: &Set, to_disk: bool) -> String {
    let line = |member: usize| {
        let (ram, at) = (format!("/dev/ram{member}"), place(number, member) >> 20);
        match to_disk {
            true => format!("dd if={ram} of=/dev/ubda bs=1M seek={at} 2>/dev/null\n"),
            false => format!("dd if=/dev/ubda of={ram} bs=1M skip={at} count=8 2>/dev/null\n"),
        }
    };
    (0..set.members).map(line).collect()
}

fn rams(members: usize) -> String {
    (0..members).map(|member| format!(" /dev/ram{member}")).collect()
}

/// md makes all sets, fills them with the gift, and writes here and there again.
fn create_options() -> String {
    let mut script = String::new();
    for (number, set) in SETS.iter().enumerate() {
        let Set { name, level, members, options, .. } = set;
        let devices = rams(*members);
        let is_other = options.contains("--metadata");
        let metadata = if is_other { "" } else { "--metadata=1.2" };
        script += &format!(
            "for d in{devices}; do dd if=/dev/zero of=$d bs=1M 2>/dev/null; done
yes | mdadm --create /dev/md0 --run --force {metadata} --homehost=oracle --name={name} \
--level={level} --raid-devices={members} --assume-clean {options}{devices} 2>/tmp/out || cat /tmp/out
n=$(($(cat /sys/block/md0/size) / 2))
dd if=/dev/ubdb of=/dev/md0 bs=1k count=$n conv=fsync 2>/dev/null
for at in 3 77 1234 4000; do
    dd if=/dev/ubdb of=/dev/md0 bs=1k seek=$at skip=$((at + 5)) count=9 conv=fsync 2>/dev/null
done
mdadm --stop /dev/md0 2>/dev/null
"
        );
        script += &copy(number, set, true);
    }
    script + "sync\n"
}

/// md takes all sets back: what it reads, whole, after a check and degraded.
fn taking_back() -> String {
    let mut script = String::new();
    for (number, set) in SETS.iter().enumerate() {
        let Set { name, members, redundancy, .. } = set;
        script += &copy(number, set, false);
        script += &format!(
            "mdadm --assemble --run /dev/md0{} 2>/tmp/out || cat /tmp/out
sum() {{ sha256sum < /dev/md0 | cut -c1-64; }}
echo \"RESULT {name} whole $(sum)\"
",
            rams(*members)
        );
        if *redundancy > 0 {
            script += &format!(
                "while ! grep -q idle /sys/block/md0/md/sync_action; do \
    echo RESULT {name} busy $(cat /sys/block/md0/md/sync_action); sleep 0.1; done
echo check > /sys/block/md0/md/sync_action
while ! grep -q idle /sys/block/md0/md/sync_action; do sleep 0.1; done
echo RESULT {name} mismatches $(cat /sys/block/md0/md/mismatch_cnt)
"
            );
        }
        for gone in 0..*redundancy {
            script += &format!(
                "mdadm /dev/md0 --fail /dev/ram{gone} 2>/dev/null
echo 3 > /proc/sys/vm/drop_caches
echo \"RESULT {name} without-{gone} $(sum)\"
"
            );
        }
        script += "mdadm --stop /dev/md0 2>/dev/null\n";
    }
    script
}

/// The members of a set as files, taken off the guest's disk.
fn members(folder: &Path, disk: &Path, number: usize) -> Vec<PathBuf> {
    let disk = FileDevice::open(disk, Access::Read, Policy::Buffered).unwrap();
    let file = |member: usize| {
        let mut bytes = vec![0; MEMBER_BYTES as usize];
        disk.read_at(place(number, member), &mut bytes).unwrap();
        let path = folder.join(format!("{}-{member}.img", SETS[number].name));
        fs::write(&path, bytes).unwrap();
        path
    };
    (0..SETS[number].members).map(file).collect()
}

fn open(paths: &[PathBuf], access: Access) -> Vec<SharedDevice> {
    let open = |path| Arc::new(FileDevice::open(path, access, Policy::Buffered).unwrap());
    paths.iter().map(|path| open(path) as SharedDevice).collect()
}

/// The content of the array on some members.
fn content(paths: &[PathBuf]) -> Vec<u8> {
    let found =
        assemble_md_members(open(paths, Access::Read), MdAssembleOptions::default()).unwrap();
    assert!(found.left_out.is_empty(), "{:?}", found.left_out);
    let mut bytes = vec![0; found.array.len().unwrap() as usize];
    found.array.read_at(0, &mut bytes).unwrap();
    bytes
}

/// The data that md wrote: the gift, and parts of it in other places.
fn expected(gift: &[u8], bytes: usize) -> Vec<u8> {
    let mut model = gift[..bytes].to_vec();
    for at in [3, 77, 1234, 4000] {
        let (to, from) = (at << 10, (at + 5) << 10);
        model[to..to + (9 << 10)].copy_from_slice(&gift[from..from + (9 << 10)]);
    }
    model
}

/// Writes of ours, in all sizes and at all kinds of places.
fn write_over(paths: &[PathBuf], model: &mut [u8]) {
    let options = MdAssembleOptions { write: Some(1_700_000_000), force: false };
    let array = assemble_md_members(open(paths, Access::Write), options).unwrap().array;
    let fresh = pattern(99, 3 << 20);
    let end = model.len();
    for (at, len) in [(0, 4096), (5000, 1), (70_001, 131_072), (1 << 20, 2 << 20), (end - 700, 700)]
    {
        array.write_at(at as u64, &fresh[..len]).unwrap();
        model[at..at + len].copy_from_slice(&fresh[..len]);
    }
    array.finish().unwrap();
}

/// `mdadm --examine` has nothing to complain of.
fn examine(path: &Path) {
    let said = output(Command::new("mdadm").arg("--examine").arg(path)).unwrap();
    let line = |key: &str| said.lines().find(|line| line.trim_start().starts_with(key));
    // Level 0 has no state to be clean.
    assert!(line("State :").is_none_or(|it| it.contains("clean")), "{said}");
    assert!(line("Checksum :").is_some_and(|it| it.contains("correct")), "{said}");
}

fn sha256(bytes: &[u8], folder: &Path) -> String {
    let path = folder.join("content");
    fs::write(&path, bytes).unwrap();
    output(Command::new("sha256sum").arg(path)).unwrap()[..64].to_owned()
}

#[test]
fn what_md_makes_is_read_and_what_is_written_here_md_takes_back() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let guest = FlusherLease::prepare(folder).unwrap();
    let (disk, gift_file) = (folder.join("disk"), folder.join("gift"));
    let gift = pattern(7, 48 << 20);
    fs::write(&gift_file, &gift).unwrap();
    blank(&disk, SETS.len() as u64 * SLOTS * MEMBER_BYTES).unwrap();
    let said = guest.run(&create_options(), &disk, &gift_file).unwrap();
    println!("{} sets were made by md", SETS.len());

    let mut models = Vec::new();
    for (number, set) in SETS.iter().enumerate() {
        let paths = members(folder, &disk, number);
        let mut model = content(&paths);
        assert!(model == expected(&gift, model.len()), "{}: differs whole; {said}", set.name);
        for first in 0..set.members {
            let is_gone =
                |n: usize| (0..set.redundancy).any(|gone| (first + gone) % set.members == n);
            let left: Vec<_> =
                (0..set.members).filter(|n| !is_gone(*n)).map(|n| paths[n].clone()).collect();
            assert!(content(&left) == model, "{}: differs without {first}", set.name);
        }
        write_over(&paths, &mut model);
        assert!(content(&paths) == model, "{}: differs after writing", set.name);
        paths.iter().for_each(|path| examine(path));
        let back = FileDevice::open(&disk, Access::Write, Policy::Buffered).unwrap();
        for (member, path) in paths.iter().enumerate() {
            back.write_at(place(number, member), &fs::read(path).unwrap()).unwrap();
        }
        models.push(sha256(&model, folder));
        println!("{}: read, written, examined", set.name);
    }

    let said = guest.run(&taking_back(), &disk, &gift_file).unwrap();
    let results: Vec<&str> =
        said.lines().filter_map(|line| line.trim().strip_prefix("RESULT ")).collect();
    for (set, sum) in SETS.iter().zip(&models) {
        let mut wanted = vec![format!("{} whole {sum}", set.name)];
        if set.redundancy > 0 {
            wanted.push(format!("{} mismatches 0", set.name));
        }
        wanted.extend((0..set.redundancy).map(|gone| format!("{} without-{gone} {sum}", set.name)));
        let own = format!("{} ", set.name);
        let found: Vec<_> = results.iter().filter(|it| it.starts_with(&own)).collect();
        assert_eq!(found, wanted.iter().collect::<Vec<_>>(), "{said}");
        println!("{}: taken back by md, {} results", set.name, found.len());
    }
}
