//! `pinstripe overlay`: what programs see of a source is what it has, or an error.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::fakevmcore::obstacle;
use crate::mount::{Background, Mounted, odd_tree, ok, where_mounts_work};
use crate::stand::{Stand, assert_same_tree, noise, set_home, skipped};

fn status(stand: &Stand, name: &str) -> Value {
    let ran = stand.run(&format!("overlay status {name} --json"));
    assert_eq!(ran.code, 0, "{}", ran.err);
    ran.events().remove(0)
}

/// Reads of any place and length by several readers, with what the source has.
fn read_at_random(source: &Path, shown: &Path, readers: u64, steps: u64) {
    let wanted = fs::read(source).unwrap();
    std::thread::scope(|scope| {
        for reader in 0..readers {
            let wanted = &wanted;
            scope.spawn(move || {
                let file = File::open(shown).unwrap();
                let (mut x, mut at) = (reader * 7919 + 1, 0);
                for step in 0..steps {
                    x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let length = 1 + (x >> 40) as usize % 300_000;
                    at = match step % 4 {
                        0 => (x >> 20) as usize % wanted.len(),
                        _ => (at + 3 * length) % wanted.len(),
                    };
                    let mut read = vec![0; length.min(wanted.len() - at)];
                    file.read_exact_at(&mut read, at as u64).unwrap();
                    assert!(read == wanted[at..][..read.len()], "reader {reader} at {at}");
                }
            });
        }
    });
}

#[test]
fn an_overlay_shows_what_the_source_has() {
    let name = "an_overlay_shows_what_the_source_has";
    let Some(stand) = where_mounts_work(name, Stand::in_memory) else { return };
    odd_tree(&stand.path("tree"));
    fs::write(stand.path("tree/huge"), noise(11, 60 << 20)).unwrap();
    let mounted = Mounted::of(&stand, "overlay tree mnt --memory 64M", "mnt");
    assert_same_tree(&stand.path("tree"), &mounted.place);
    read_at_random(&stand.path("tree/huge"), &mounted.place.join("huge"), 4, 150);
    let mut colour = [0; 16];
    let length = rustix::fs::getxattr(mounted.place.join("one"), "user.colour", &mut colour);
    assert_eq!(&colour[..length.unwrap()], b"green");

    let refused = fs::write(mounted.place.join("new"), "new").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(Errno::ROFS.raw_os_error()));
    let told = status(&stand, "mnt");
    assert!(told["memory"]["peak_bytes"].as_u64().unwrap() <= 64 << 20, "{told}");
    assert!(told["files"].as_array().unwrap().iter().any(|file| file["path"] == "huge"), "{told}");

    // New files appear, removed ones leave.
    fs::write(stand.path("tree/new"), "new").unwrap();
    fs::remove_file(stand.path("tree/large")).unwrap();
    assert_eq!(fs::read(mounted.place.join("new")).unwrap(), b"new");
    assert!(File::open(mounted.place.join("large")).is_err());
    assert_eq!(mounted.end(), 0);
}

#[test]
fn a_file_that_changes_is_never_a_mixture() {
    let name = "a_file_that_changes_is_never_a_mixture";
    let Some(stand) = where_mounts_work(name, Stand::in_memory) else { return };
    fs::create_dir(stand.path("src")).unwrap();
    let (path, stale) = (stand.path("src/file"), Some(Errno::STALE.raw_os_error()));
    fs::write(&path, noise(1, 20 << 20)).unwrap();
    let mounted = Mounted::of(&stand, "overlay src mnt", "mnt");
    let shown = mounted.place.join("file");
    let mut read = vec![0; 4096];
    for (seed, bytes) in [(2, 20 << 20), (3, 5 << 20), (4, 30 << 20)] {
        let open = File::open(&shown).unwrap();
        open.read_exact_at(&mut read, 0).unwrap();
        let before = fs::read(&path).unwrap();
        pinstripe_testing::await_tick();
        fs::write(&path, noise(seed, bytes)).unwrap();
        // What was not read before is not there any more; at once, a new open has what is there.
        let at = before.len() - 4096;
        let late = open.read_exact_at(&mut read, at as u64).map_err(|error| error.raw_os_error());
        assert!(late == Err(stale) || before[at..] == read, "{late:?}");
        assert!(fs::read(&shown).unwrap() == noise(seed, bytes), "{seed}");
    }
    // Replaced and removed under an open file.
    pinstripe_testing::await_tick();
    fs::write(&path, noise(5, 40 << 20)).unwrap();
    let open = File::open(&shown).unwrap();
    fs::write(stand.path("src/other"), noise(9, 30 << 20)).unwrap();
    fs::rename(stand.path("src/other"), &path).unwrap();
    let late = open.read_exact_at(&mut read, 17 << 20).unwrap_err();
    assert_eq!(late.raw_os_error(), stale, "nothing of it was read before");
    assert!(fs::read(&shown).unwrap() == noise(9, 30 << 20));
    fs::remove_dir_all(stand.path("src")).unwrap();
    assert!(File::open(&shown).is_err());
    assert!(fs::read_dir(&mounted.place).map_or(0, Iterator::count) == 0);
    drop(open);
    assert_eq!(mounted.end(), 0);
}

/// A process that stands still until this is dropped: nothing that waits for it could end.
struct Stopped(Pid);

impl Stopped {
    fn new(process: Pid) -> Self {
        kill_process(process, Signal::STOP).unwrap();
        let stopped = Stopped(process);
        // A thread that runs on another processor stops a moment later, and may answer until then.
        let folder = format!("/proc/{}/task", process.as_raw_nonzero());
        while !fs::read_dir(&folder).unwrap().all(|task| is_stopped(&task.unwrap().path())) {
            std::thread::yield_now();
        }
        stopped
    }
}

/// Whether a thread has the state T (proc(5)), which stands behind its name in parentheses.
fn is_stopped(task: &Path) -> bool {
    // One that has ended meanwhile answers nothing either.
    let Ok(stat) = fs::read_to_string(task.join("stat")) else { return true };
    stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('T'))
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::CONT);
    }
}

#[test]
fn a_source_that_hangs_is_an_error_and_not_a_hang() {
    let name = "a_source_that_hangs_is_an_error_and_not_a_hang";
    let Some(stand) = where_mounts_work(name, Stand::in_memory) else { return };
    fs::create_dir(stand.path("src")).unwrap();
    fs::write(stand.path("src/file"), noise(1, 30 << 20)).unwrap();
    // The source is a file system whose process is stopped and goes on.
    let slow = Mounted::of(&stand, "overlay src slow", "slow");
    let fast = Mounted::of(&stand, "overlay slow fast --timeout 300ms", "fast");
    let open = File::open(fast.place.join("file")).unwrap();
    let mut read = vec![0; 4096];
    open.read_exact_at(&mut read, 0).unwrap();
    let stopped = Stopped::new(Pid::from_child(&slow.child));
    for at in [10 << 20, 20 << 20, 29 << 20] {
        let late = open.read_exact_at(&mut read, at).unwrap_err();
        assert_eq!(late.raw_os_error(), Some(Errno::IO.raw_os_error()), "at {at}");
    }
    assert!(fs::read_dir(&fast.place).is_err());
    assert!(status(&stand, "fast")["source"]["late"].as_u64().unwrap() >= 4);
    drop(stopped);
    assert!(fs::read(fast.place.join("file")).unwrap() == noise(1, 30 << 20));
    drop(open);
    assert_eq!(fast.end(), 0);
    assert_eq!(slow.end(), 0);
}

#[test]
fn a_cache_serves_the_next_overlay_and_nothing_that_changed() {
    let name = "a_cache_serves_the_next_overlay_and_nothing_that_changed";
    let Some(stand) = where_mounts_work(name, Stand::in_memory) else { return };
    fs::create_dir(stand.path("src")).unwrap();
    for (name, seed) in [("kept", 1), ("changed", 2)] {
        fs::write(stand.path("src").join(name), noise(seed, 8 << 20)).unwrap();
    }
    let line = "overlay src mnt --cache cache,64M";
    let read = |mounted: &Mounted, seed: u64| {
        assert!(fs::read(mounted.place.join("kept")).unwrap() == noise(1, 8 << 20));
        assert!(fs::read(mounted.place.join("changed")).unwrap() == noise(seed, 8 << 20));
        let told = status(&stand, "mnt");
        told["cache"]["found_bytes"].as_u64().unwrap()
    };
    let mounted = Mounted::of(&stand, line, "mnt");
    assert_eq!(read(&mounted, 2), 0);
    assert_eq!(mounted.end(), 0);
    pinstripe_testing::await_tick();
    fs::write(stand.path("src/changed"), noise(3, 8 << 20)).unwrap();
    let mounted = Mounted::of(&stand, line, "mnt");
    assert_eq!(read(&mounted, 3), 8 << 20, "what did not change");
    assert_eq!(mounted.end(), 0);

    // Damage is read again from the source.
    let cells = File::options().write(true).open(stand.path("cache/cells")).unwrap();
    for cell in 0..1024 {
        cells.write_all_at(b"damage", cell * 65536 + 100).unwrap();
    }
    let mounted = Mounted::of(&stand, line, "mnt");
    assert_eq!(read(&mounted, 3), 0);
    assert!(status(&stand, "mnt")["cache"]["damaged_cells"].as_u64().unwrap() > 0);
    assert_eq!(mounted.end(), 0);

    // What is no cache is told, and left alone; the overlay goes on without.
    fs::create_dir(stand.path("foreign")).unwrap();
    fs::write(stand.path("foreign/letter"), "mine").unwrap();
    let background = Background::at(&stand, "mnt");
    let ran = stand.run("overlay src mnt --cache foreign,64M --json");
    assert!(ran.err.contains("files that are not part of a cache"), "{}", ran.err);
    let process = ran.events().last().unwrap()["process"].as_u64().unwrap();
    assert!(fs::read(stand.path("mnt/kept")).unwrap() == noise(1, 8 << 20));
    assert_eq!(fs::read_dir(stand.path("foreign")).unwrap().count(), 1);
    background.end(process);
}

#[test]
fn an_overlay_finds_a_stride_and_tells_it() {
    let name = "an_overlay_finds_a_stride_and_tells_it";
    let Some(stand) = where_mounts_work(name, Stand::in_memory) else { return };
    fs::create_dir(stand.path("src")).unwrap();
    let content = noise(1, 90 << 20);
    fs::write(stand.path("src/file"), &content).unwrap();
    let mounted = Mounted::of(&stand, "overlay src mnt", "mnt");
    let file = File::open(mounted.place.join("file")).unwrap();
    for record in (0..30u64).rev() {
        let (at, mut read) = ((3 * record) << 20, vec![0; 1 << 20]);
        file.read_exact_at(&mut read, at).unwrap();
        assert!(read == content[at as usize..][..1 << 20], "{record}");
    }
    let told = status(&stand, "mnt");
    let streams = told["files"][0]["streams"].as_array().unwrap();
    assert!(streams.iter().any(|it| it["stride_bytes"] == -(3 << 20)), "{told}");
    let rows = stand.run("overlay status mnt");
    assert!(rows.out.contains("stride -3.0 MiB"), "{}", rows.out);
    ok(&stand, "overlay status");
    drop(file);
    assert_eq!(mounted.end(), 0);
}

#[test]
fn a_source_that_cannot_be_one_is_refused() {
    let name = "a_source_that_cannot_be_one_is_refused";
    let Some(stand) = where_mounts_work(name, Stand::in_memory) else { return };
    stand.make_tree();
    fs::create_dir(stand.path("mnt")).unwrap();
    for (line, what) in [
        ("overlay nowhere mnt", "nowhere"),
        ("overlay src/hello mnt", "not a directory"),
        ("overlay src src", "not empty"),
        ("overlay src mnt --cache c", "a directory and a size"),
        ("overlay src", "MOUNTPOINT"),
        ("overlay", "SOURCE"),
        ("overlay status nowhere", "is mounted at this path"),
    ] {
        let ran = stand.run(line);
        assert!(ran.code != 0 && ran.err.contains(what), "{line}: {} {}", ran.code, ran.err);
    }
}

/// Why the kernel would pass nothing through.
fn passthrough_obstacle() -> Option<&'static str> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split('.').map(|part| part.trim().parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version < (6, 9) {
        return Some("the kernel passes files through since 6.9");
    }
    (!pinstripe_testing::is_root()).then_some("only root may pass files through")
}

#[test]
fn local_files_are_passed_through_beside_others_that_are_not() {
    let name = "local_files_are_passed_through_beside_others_that_are_not";
    if let Some(obstacle) = obstacle().or_else(passthrough_obstacle) {
        return skipped(name, obstacle);
    }
    let stand = Stand::in_memory();
    // A directory of the source that is on a file system of another process.
    for (path, seed) in [("src/near", 1), ("other/far", 2)] {
        fs::create_dir_all(stand.path(path).parent().unwrap()).unwrap();
        fs::write(stand.path(path), noise(seed, 9 << 20)).unwrap();
    }
    let far = Mounted::of(&stand, "overlay other src/far", "src/far");
    let mounted = Mounted::of(&stand, "overlay src mnt --passthrough", "mnt");
    let near = mounted.place.join("near");
    assert!(fs::read(&near).unwrap() == noise(1, 9 << 20));
    read_at_random(&stand.path("src/near"), &near, 4, 50);
    let told = status(&stand, "mnt");
    assert_eq!(
        told["memory"]["demanded_bytes"], 0,
        "nothing of it was read by the overlay: {told}"
    );
    assert_eq!(told["memory"]["ahead_bytes"], 0, "{told}");
    assert!(fs::read(mounted.place.join("far/far")).unwrap() == noise(2, 9 << 20));
    read_at_random(&stand.path("other/far"), &mounted.place.join("far/far"), 4, 50);
    assert!(status(&stand, "mnt")["memory"]["demanded_bytes"].as_u64().unwrap() > 0);

    // An open file shows what is there now, as the help says, and so does one that is opened again
    // meanwhile; it is still another inode, with another backing file.
    let mut read = vec![0; 4096];
    let before = File::open(&near).unwrap();
    let again = File::open(&near).unwrap();
    pinstripe_testing::await_tick();
    fs::write(stand.path("src/near"), noise(3, 9 << 20)).unwrap();
    let after = File::open(&near).unwrap();
    for file in [&before, &after, &again] {
        file.read_exact_at(&mut read, 5 << 20).unwrap();
        assert!(read == noise(3, 9 << 20)[5 << 20..][..4096]);
    }
    // Replaced, the open ones keep the old file.
    fs::write(stand.path("src/new"), noise(4, 9 << 20)).unwrap();
    fs::rename(stand.path("src/new"), stand.path("src/near")).unwrap();
    before.read_exact_at(&mut read, 0).unwrap();
    assert!(read == noise(3, 4096));
    assert!(fs::read(&near).unwrap() == noise(4, 9 << 20));
    drop((before, again, after));
    for _ in 0..200 {
        assert_eq!(File::open(&near).unwrap().metadata().unwrap().len(), 9 << 20);
    }
    assert_eq!(mounted.end(), 0);
    assert_eq!(far.end(), 0);
}

#[test]
fn without_the_right_to_pass_through_it_says_so_and_reads_itself() {
    let name = "without_the_right_to_pass_through_it_says_so_and_reads_itself";
    if let Some(obstacle) = obstacle().or_else(passthrough_obstacle) {
        return skipped(name, obstacle);
    }
    let apart = ["--user", "--map-root-user", "--mount"];
    if !Command::new("unshare").args(apart).arg("true").status().is_ok_and(|it| it.success()) {
        return skipped(name, "no user namespace can be made");
    }
    let stand = Stand::in_memory();
    fs::create_dir(stand.path("src")).unwrap();
    fs::create_dir(stand.path("mnt")).unwrap();
    fs::write(stand.path("src/file"), noise(1, 9 << 20)).unwrap();
    // Root of a namespace may mount, but not pass through.
    let script = "\"$0\" overlay src mnt --passthrough --log log && cmp mnt/file src/file && \
                  cmp mnt/file src/file; found=$?; umount mnt; exit $found";
    let pinstripe = env!("CARGO_BIN_EXE_pinstripe");
    let mut command = Command::new("unshare");
    command.args(apart).args(["sh", "-c", script, pinstripe]).current_dir(stand.path(""));
    set_home(&mut command, &stand.path("home"));
    let ran = command.env("XDG_RUNTIME_DIR", stand.path("")).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{out}{err}");
    let log = fs::read_to_string(stand.path("log")).unwrap_or_default();
    assert_eq!(log.matches("passthrough needs root").count(), 1, "{log}");
}

#[test]
fn figures_are_offered_over_http() {
    let name = "figures_are_offered_over_http";
    let Some(stand) = where_mounts_work(name, Stand::in_memory) else { return };
    fs::create_dir(stand.path("src")).unwrap();
    fs::write(stand.path("src/a \"file\""), noise(1, 9 << 20)).unwrap();
    fs::create_dir(stand.path("mnt")).unwrap();
    let line = "overlay src mnt --metrics 127.0.0.1:0 --json --foreground";
    let mut child = stand.command(line).stdout(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut serving = String::new();
    out.read_line(&mut serving).unwrap();
    let serving: Value = serde_json::from_str(&serving).unwrap();
    let url = serving["metrics"].as_str().unwrap();
    let address = url.strip_prefix("http://").unwrap().strip_suffix("/metrics").unwrap();
    assert!(fs::read(stand.path("mnt/a \"file\"")).unwrap() == noise(1, 9 << 20));

    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
    let sample = "pinstripe_shown_file_read_bytes_total{verb=\"overlay\",mountpoint=\"";
    let line = page.lines().find(|line| line.starts_with(sample)).unwrap();
    assert!(line.contains("path=\"a \\\"file\\\"\"") && line.ends_with("} 9437184"), "{line}");
    let taken = stand.run(&format!("overlay src mnt2 --metrics {address} --foreground"));
    assert!(
        taken.code != 0 && taken.err.contains("cannot listen for HTTP requests"),
        "{}",
        taken.err
    );

    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(TcpStream::connect(address).is_err());
}
