//! A Linux of its own, as a process: User-Mode Linux with md's modules, busybox and mdadm in its
//! memory.
//!
//! Kernel and busybox are Debian packages, unpacked in a folder and never installed.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Modules that the guest loads, those that they need included.
const MODULES: [&str; 5] = ["brd", "raid0", "raid1", "raid10", "raid456"];
/// Longer than any of the scripts takes.
const PATIENCE: Duration = Duration::from_secs(600);

/// The files that a guest is started from.
pub struct FlusherLease {
    folder: PathBuf,
    kernel: PathBuf,
    initrd: Vec<u8>,
}

impl FlusherLease {
    /// Gets kernel and programs, all in `folder`.
    pub fn prepare(folder: &Path) -> Result<Self, String> {
        let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        if cpu.contains("amx_tile") {
            return Err("User-Mode Linux 6.1 does not run on processors with AMX".to_owned());
        }
        let packages = folder.join("packages");
        fs::create_dir_all(&packages).map_err(|error| error.to_string())?;
        let mut apt = Command::new("apt-get");
        apt.args(["download", "-q", "user-mode-linux", "busybox-static"]).current_dir(&packages);
        output(&mut apt)?;
        let unpacked = folder.join("unpacked");
        for package in files(&packages) {
            output(Command::new("dpkg").arg("-x").arg(package).arg(&unpacked))?;
        }
        let find = |name: &str| {
            let found = all_files(&unpacked).into_iter().find(|it| it.ends_with(name));
            found.ok_or_else(|| format!("the packages have no {name}"))
        };
        let kernel = find("bin/linux.uml")?;
        let mut archive = Archive::default();
        archive.file("bin/busybox", &read(&find("bin/busybox")?)?);
        add_program(&mut archive, "mdadm")?;
        let order = add_modules(&mut archive, folder, &unpacked)?;
        archive.file("modules/order", order.join("\n").as_bytes());
        Ok(FlusherLease { folder: folder.to_path_buf(), kernel, initrd: archive.bytes })
    }

    /// Boots, runs `script` with the disk as `/dev/ubda` and what the host gives it as `/dev/ubdb`,
    /// and returns what it printed.
    pub fn run(&self, script: &str, disk: &Path, gift: &Path) -> Result<String, String> {
        let mut archive = Archive { bytes: self.initrd.clone(), ..Archive::default() };
        archive.file("init", format!("{INIT}{script}\necho GUEST DONE\npoweroff -f\n").as_bytes());
        let initrd = self.folder.join("initrd");
        fs::write(&initrd, archive.finished()).map_err(|error| error.to_string())?;
        let log = self.folder.join("guest.log");
        let said = File::create(&log).map_err(|error| error.to_string())?;
        let mut guest = Command::new(&self.kernel);
        guest.arg("mem=512M").arg(format!("initrd={}", initrd.display()));
        guest.arg(format!("ubda={}", disk.display())).arg(format!("ubdb={}", gift.display()));
        guest.args(["con=null", "con0=null,fd:1", "quiet"]);
        guest.stdin(Stdio::null()).stdout(said).stderr(Stdio::null());
        let mut guest = guest.spawn().map_err(|error| format!("the guest: {error}"))?;
        let started = Instant::now();
        while guest.try_wait().map_err(|error| error.to_string())?.is_none() {
            if started.elapsed() > PATIENCE {
                guest.kill().map_err(|error| error.to_string())?;
                guest.wait().map_err(|error| error.to_string())?;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let said = String::from_utf8_lossy(&read(&log)?).replace('\r', "");
        match said.contains("GUEST DONE") {
            true => Ok(said),
            false => Err(format!("the guest did not come to its end; it said:\n{said}")),
        }
    }
}

/// The first commands of a guest.
const INIT: &str = "#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
for m in $(cat /modules/order); do
    case $m in brd.ko) insmod /modules/$m rd_nr=6 rd_size=8192 ;; *) insmod /modules/$m ;; esac
done
echo 100000 > /proc/sys/dev/raid/speed_limit_min
";

/// A program and the libraries that it needs.
fn add_program(archive: &mut Archive, name: &str) -> Result<(), String> {
    let path = output(Command::new("sh").arg("-c").arg(format!("readlink -f $(which {name})")))?;
    archive.file(&format!("bin/{name}"), &read(Path::new(path.trim()))?);
    let libraries = output(Command::new("ldd").arg(path.trim()))?;
    for library in libraries.split_whitespace().filter(|word| word.starts_with('/')) {
        archive.file(library.trim_start_matches('/'), &read(Path::new(library))?);
    }
    Ok(())
}

/// The modules, in the order in which they are loaded.
fn add_modules(
    archive: &mut Archive,
    folder: &Path,
    unpacked: &Path,
) -> Result<Vec<String>, String> {
    let modules = unpacked.join("usr/lib/uml/modules");
    let version = files(&modules).pop().ok_or("the packages have no modules")?;
    let lib = folder.join("m/lib/modules");
    fs::create_dir_all(&lib).map_err(|error| error.to_string())?;
    let name = version.file_name().unwrap_or_default().to_owned();
    let link = lib.join(&name);
    if !link.exists() {
        std::os::unix::fs::symlink(&version, link).map_err(|error| error.to_string())?;
    }
    output(Command::new("depmod").arg("-b").arg(folder.join("m")).arg(&name))?;
    let mut order: Vec<String> = Vec::new();
    for module in MODULES {
        let mut modprobe = Command::new("modprobe");
        modprobe.arg("-d").arg(folder.join("m")).arg("-S").arg(&name);
        let depends = output(modprobe.args(["--show-depends", module]))?;
        for path in depends.lines().filter_map(|line| line.strip_prefix("insmod ")) {
            // Behind the path stand the module's options.
            let path = Path::new(path.split_whitespace().next().unwrap_or_default());
            let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if !order.contains(&file) {
                archive.file(&format!("modules/{file}"), &read(path)?);
                order.push(file);
            }
        }
    }
    Ok(order)
}

/// Files for the guest's memory, in cpio's format `newc`.
#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    folders: Vec<PathBuf>,
    inodes: u32,
}

impl Archive {
    fn file(&mut self, path: &str, content: &[u8]) {
        for folder in Path::new(path).ancestors().skip(1).collect::<Vec<_>>().into_iter().rev() {
            if !folder.as_os_str().is_empty() && !self.folders.iter().any(|it| it == folder) {
                self.folders.push(folder.to_path_buf());
                self.entry(&folder.to_string_lossy(), 0o040_755, &[]);
            }
        }
        self.entry(path, 0o100_755, content);
    }

    fn entry(&mut self, path: &str, mode: u32, content: &[u8]) {
        self.inodes += 1;
        let numbers = [
            self.inodes,
            mode,
            0,
            0,
            1,
            0,
            content.len() as u32,
            0,
            0,
            0,
            0,
            path.len() as u32 + 1,
            0,
        ];
        self.bytes.extend_from_slice(b"070701");
        numbers.iter().for_each(|it| self.bytes.extend_from_slice(format!("{it:08x}").as_bytes()));
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn finished(mut self) -> Vec<u8> {
        for folder in ["proc", "sys", "dev", "tmp"] {
            self.entry(folder, 0o040_755, &[]);
        }
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// The entries of a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// All files below a folder.
fn all_files(folder: &Path) -> Vec<PathBuf> {
    let below = |path: PathBuf| match path.is_dir() && !path.is_symlink() {
        true => all_files(&path),
        false => vec![path],
    };
    files(folder).into_iter().flat_map(below).collect()
}

/// The output of a program; its error output when it failed.
pub fn output(command: &mut Command) -> Result<String, String> {
    let done = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    match done.status.success() {
        true => Ok(String::from_utf8_lossy(&done.stdout).into_owned()),
        false => Err(format!("{command:?}: {}", String::from_utf8_lossy(&done.stderr))),
    }
}

/// A file of so many bytes, all zeros, for the guest.
pub fn blank(path: &Path, bytes: u64) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.set_permissions(fs::Permissions::from_mode(0o600))?;
    file.set_len(bytes)?;
    file.flush()
}
