//! The machine of a measurement: a figure without it says nothing.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use pinstripe_base::units::format_size;
use serde::{Deserialize, Serialize};

/// The machine on which something was measured; what the system does not tell is "unknown".
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's name.
    pub processor: String,
    /// Threads that can run at one time.
    pub cores: usize,
    /// All memory.
    pub memory_bytes: u64,
    /// The kernel's release.
    pub kernel: String,
}

impl Machine {
    /// A machine of which nothing is known, as in results of another program.
    pub fn unknown() -> Machine {
        let unknown = || "unknown".to_owned();
        Machine { processor: unknown(), cores: 0, memory_bytes: 0, kernel: unknown() }
    }

    /// Whether anything is known about it.
    pub fn is_known(&self) -> bool {
        *self != Machine::unknown()
    }

    /// Asks the system.
    pub fn probe() -> Machine {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let memory = field(&read("/proc/meminfo"), "MemTotal").and_then(|text| {
            text.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
        });
        let processor = field(&read("/proc/cpuinfo"), "model name");
        let kernel = read("/proc/sys/kernel/osrelease").trim().to_owned();
        Machine {
            processor: processor.unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: memory.unwrap_or(0),
            kernel: if kernel.is_empty() { "unknown".to_owned() } else { kernel },
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.is_known() {
            return f.write_str("The machine is not described.");
        }
        let Machine { processor, cores, memory_bytes, kernel } = self;
        let memory = format_size(*memory_bytes);
        let cores = pinstripe_base::units::counted(*cores as u64, "core", "cores");
        write!(f, "Measured on {processor}, {cores}, {memory} of memory, Linux {kernel}.")
    }
}

/// The type of the file system that holds `path`: ext4, xfs, tmpfs.
pub fn file_system(path: &Path) -> String {
    let find = || {
        let device = fs::metadata(path).ok()?.dev();
        let numbers = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        mounts.lines().find_map(|line| mounted_type(line, &numbers))
    };
    find().unwrap_or_else(|| "unknown file system".to_owned())
}

/// The type in a line of mountinfo that is about the device with these numbers.
fn mounted_type(line: &str, numbers: &str) -> Option<String> {
    let (mount, source) = line.split_once(" - ")?;
    let is_it = mount.split(' ').nth(2)? == numbers;
    is_it.then(|| source.split(' ').next().unwrap_or_default().to_owned())
}

/// The value of `name : value` or `name: value`.
fn field(text: &str, name: &str) -> Option<String> {
    let of_line = |line: &str| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    };
    text.lines().find_map(of_line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_files_are_read() {
        assert_eq!(field("processor\t: 0\nmodel name\t: Fast\n", "model name").unwrap(), "Fast");
        assert_eq!(field("MemTotal:   24 kB\n", "MemTotal").unwrap(), "24 kB");
        let line = "29 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw";
        assert_eq!(mounted_type(line, "254:0").unwrap(), "ext4");
        assert_eq!(mounted_type(line, "254:1"), None);
    }

    #[test]
    fn this_machine_has_cores_and_memory() {
        let machine = Machine::probe();
        assert!(machine.cores > 0 && machine.memory_bytes > 0);
        assert!(machine.to_string().contains(&machine.kernel));
    }
}
