//! The machine on which a figure was measured, without which the figure says nothing.

use std::fmt;
use std::fs;
use std::path::Path;

use pinstripe_base::units::format_size;
use pinstripe_io::mounts;
use serde::{Deserialize, Serialize};

/// The machine on which something was measured; a property that the system does not report is
/// "unknown".
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's name.
    pub processor: String,
    /// The number of threads that can run at the same time.
    pub cores: usize,
    /// All memory.
    pub memory_bytes: u64,
    /// The kernel's release.
    pub kernel: String,
}

impl Machine {
    /// An unknown machine, as in results of another program.
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
            return f.write_str("The results do not describe the machine.");
        }
        let Machine { processor, cores, memory_bytes, kernel } = self;
        let memory = format_size(*memory_bytes);
        let cores = pinstripe_base::units::counted(*cores as u64, "core", "cores");
        write!(f, "Measured on {processor}, {cores}, {memory} of memory, Linux {kernel}.")
    }
}

/// The type of the file system that holds `path`: ext4, xfs, tmpfs.
pub fn file_system(path: &Path) -> String {
    let found = mounts::of_path(path).map(|it| it.kind);
    found.unwrap_or_else(|| "unknown file system".to_owned())
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
    }

    #[test]
    fn this_machine_has_cores_and_memory() {
        let machine = Machine::probe();
        assert!(machine.cores > 0 && machine.memory_bytes > 0);
        assert!(machine.to_string().contains(&machine.kernel));
    }
}
