//! Clients of others: libnbd's tools, those of QEMU, and fio.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use pinstripe_base::monitor::Monitor;
use pinstripe_base::sync::Stop;
use pinstripe_io::device::{Access, Device, FileDevice, MemoryDevice, Policy};
use pinstripe_nbd::{Export, Server, Settings};

use super::{noise, served};
use pinstripe_testing::skipped;

const MIB: usize = 1 << 20;

/// Whether a program is here; if not, the test says so.
fn has(test: &str, program: &str) -> bool {
    let is_here = Command::new(program).arg("--version").output().is_ok();
    if !is_here {
        pinstripe_testing::not_installed(test, program);
    }
    is_here
}

fn uri(socket: &Path) -> String {
    format!("nbd+unix:///?socket={}", socket.display())
}

fn run(program: &str, args: &[&str]) -> Output {
    let output = Command::new(program).args(args).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {args:?}: {said}");
    output
}

fn told(program: &str, args: &[&str]) -> String {
    String::from_utf8(run(program, args).stdout).unwrap()
}

/// A file of 16 MiB with data in every second one, as a device.
fn sparse_file(path: &Path) -> FileDevice {
    let device = FileDevice::open(path, Access::CreateNew, Policy::Buffered).unwrap();
    device.set_len(16 * MIB as u64).unwrap();
    for at in (0..16).step_by(2) {
        device.write_at((at * MIB) as u64, &noise(at as u32 + 1, MIB)).unwrap();
    }
    device
}

#[test]
fn nbdinfo_is_told_all_that_there_is() {
    let test = "nbdinfo_is_told_all_that_there_is";
    if !has(test, "nbdinfo") {
        return;
    }
    let memory = Arc::new(MemoryDevice::new("memory"));
    memory.set_len(12345).unwrap();
    let exports = [
        Export::sparse("", memory.clone()).described("a test"),
        Export::new("fixed", memory.clone()).read_only(),
        Export::sparse("bare", memory).without_trim().without_fast_zero(),
    ];
    served(&exports, Settings::default(), |path| {
        let said = told("nbdinfo", &["--list", "--json", &uri(path)]);
        let said: String = said.split_whitespace().collect();
        for part in [
            "\"protocol\":\"newstyle-fixed\"",
            "\"structured\":true",
            "\"export-size\":12345",
            "\"base:allocation\"",
            "\"can_multi_conn\":true",
            "\"can_fast_zero\":true",
            "\"can_df\":true",
            "\"can_fua\":true",
            "\"can_trim\":true",
            "\"can_zero\":true",
            "\"can_flush\":true",
            "\"block_size_preferred\":4096",
            "\"block_size_maximum\":33554432",
            "\"export-name\":\"fixed\"",
            "\"is_read_only\":true",
        ] {
            assert!(said.contains(part), "no {part} in {said}");
        }
        let text = told("nbdinfo", &[&uri(path)]);
        assert!(text.contains("description: a test"), "{text}");
        for operation in ["trim", "fast-zero"] {
            let can = |name: &str| {
                let uri = uri(path).replace(":///", &format!(":///{name}"));
                let mut nbdinfo = std::process::Command::new("nbdinfo");
                nbdinfo.args(["--can", operation, &uri]).status().unwrap().success()
            };
            assert!(can("") && !can("bare") && !can("fixed"), "{operation}");
        }
    });
}

#[test]
fn nbdinfo_comes_by_tcp() {
    if !has("nbdinfo_comes_by_tcp", "nbdinfo") {
        return;
    }
    let memory = MemoryDevice::new("memory");
    memory.write_at(0, &noise(1, 5 * MIB)).unwrap();
    let exports = [Export::sparse("", Arc::new(memory))];
    let (monitor, stop) = (Monitor::default(), Stop::new().unwrap());
    let server = Server::bind(&["tcp:127.0.0.1:0".parse().unwrap()]).unwrap();
    let address = server.addresses()[0].to_string();
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| server.serve(&exports, &Settings::default(), &monitor, &stop));
        let uri = format!("nbd://{}", address.strip_prefix("tcp:").unwrap());
        let said = Command::new("nbdinfo").args(["--size", &uri]).output().unwrap();
        stop.set();
        assert_eq!(String::from_utf8_lossy(&said.stdout).trim(), (5 * MIB).to_string());
        serving.join().unwrap().unwrap();
    });
}

#[test]
fn nbdcopy_brings_back_what_it_took() {
    if !has("nbdcopy_brings_back_what_it_took", "nbdcopy") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (source, copy) = (folder.path().join("source"), folder.path().join("copy"));
    drop(sparse_file(&source));
    let disk = folder.path().join("disk");
    let device = FileDevice::open(&disk, Access::CreateNew, Policy::Buffered).unwrap();
    device.write_at(0, &vec![0xee; 16 * MIB]).unwrap();
    let exports = [Export::sparse("", Arc::new(device))];
    served(&exports, Settings::default(), |path| {
        let (source, copy) = (source.to_str().unwrap(), copy.to_str().unwrap());
        run("nbdcopy", &["--threads=4", "--connections=4", "--flush", source, &uri(path)]);
        run("nbdcopy", &["--threads=4", "--request-size=1048576", &uri(path), copy]);
        run("nbdcopy", &["--synchronous", "--allocated", source, &uri(path)]);
    });
    let wanted = fs::read(&source).unwrap();
    assert!(fs::read(&copy).unwrap() == wanted);
    assert!(fs::read(&disk).unwrap() == wanted);
    let traffic = exports[0].traffic();
    assert!(traffic.connections >= 9 && traffic.zeroes > 0 && traffic.flushes > 0, "{traffic:?}");
    assert_eq!((traffic.errors, traffic.refusals), (0, 0));
}

#[test]
#[ignore = "with --all: it starts qemu-img"]
fn qemu_converts_compares_maps_and_checks() {
    if !has("qemu_converts_compares_maps_and_checks", "qemu-img") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (source, copy) = (folder.path().join("source"), folder.path().join("copy"));
    let device = sparse_file(&source);
    let target = MemoryDevice::new("target");
    target.write_at(0, &vec![0xee; 32 * MIB]).unwrap();
    let exports = [
        Export::sparse("", Arc::new(device)).read_only(),
        Export::sparse("target", Arc::new(target)),
    ];
    served(&exports, Settings::default(), |path| {
        let (source, copy) = (source.to_str().unwrap(), copy.to_str().unwrap());
        let from = uri(path);
        let to = format!("nbd+unix:///target?socket={}", path.display());
        run("qemu-img", &["convert", "-f", "raw", "-O", "raw", "-m", "8", "-W", &from, copy]);
        run("qemu-img", &["compare", "-f", "raw", "-F", "raw", source, &from]);
        let map = told("qemu-img", &["map", "-f", "raw", "--output=json", &from]);
        assert!(map.contains("\"length\": 1048576"), "{map}");
        run("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", source, &to]);
        run("qemu-img", &["create", "-q", "-f", "qcow2", &to, "16M"]);
        run("qemu-img", &["convert", "-n", "-f", "raw", "-O", "qcow2", "-W", source, &to]);
        run("qemu-img", &["check", "-f", "qcow2", &to]);
        run("qemu-img", &["compare", "-f", "raw", "-F", "qcow2", source, &to]);
    });
    assert!(fs::read(&copy).unwrap() == fs::read(&source).unwrap());
    assert_eq!(exports.each_ref().map(|it| it.traffic().errors), [0, 0]);
}

#[test]
fn fio_finds_what_it_wrote() {
    if !has("fio_finds_what_it_wrote", "fio") {
        return;
    }
    if !told("fio", &["--enghelp"]).contains("nbd") {
        return skipped("fio_finds_what_it_wrote", "this fio has no engine for NBD");
    }
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    let device = FileDevice::open(&disk, Access::CreateNew, Policy::Direct).unwrap();
    device.set_len(16 * MIB as u64).unwrap();
    let memory = MemoryDevice::new("memory");
    memory.set_len(16 * MIB as u64).unwrap();
    let exports =
        [Export::sparse("disk", Arc::new(device)), Export::new("memory", Arc::new(memory))];
    served(&exports, Settings::default(), |path| {
        for name in ["disk", "memory"] {
            let uri = format!("--uri=nbd+unix:///{name}?socket={}", path.display());
            let job = ["--name=verify", "--ioengine=nbd", &uri, "--rw=randwrite", "--iodepth=32"];
            let sizes = ["--size=16M", "--bsrange=512-96k", "--bs_unaligned=1"];
            let checks = [
                "--verify=crc32c",
                "--verify_state_save=0",
                "--verify_fatal=1",
                "--fsync=50",
                "--minimal",
            ];
            run("fio", &[&job[..], &sizes, &checks].concat());
        }
    });
    for export in &exports {
        let traffic = export.traffic();
        assert!(traffic.reads > 100 && traffic.writes > 100, "{traffic:?}");
        assert_eq!((traffic.errors, traffic.refusals), (0, 0));
    }
}
