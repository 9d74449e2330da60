//! The work of the kernel's own threads.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Processor time of each of the kernel's threads at one moment.
///
/// They compress, write back and serve loop devices for any process, and the kernel does not say
/// for which one: where a run leaves much work to them, their time counts as its own.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KernelThreads(BTreeMap<u32, u64>);

/// Whose children they are: kthreadd.
const PARENT: &str = "2";

impl KernelThreads {
    /// Reads them below `root`. None are seen from a container that has processes of its own.
    pub fn read(root: &Path) -> Self {
        let found = fs::read_dir(root.join("proc")).into_iter().flatten().flatten();
        let nanos = |process: fs::DirEntry| {
            let number: u32 = process.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(process.path().join("stat")).ok()?;
            // By proc(5): the name, which may hold anything, the state, the parent.
            let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?;
            let worked = fs::read_to_string(process.path().join("schedstat")).ok()?;
            let nanos = worked.split_whitespace().next()?.parse().ok()?;
            (parent == PARENT).then_some((number, nanos))
        };
        KernelThreads(found.filter_map(nanos).collect())
    }

    /// Seconds that they worked since then; of those that ended meanwhile nothing is known.
    pub fn seconds_since(&self, before: &KernelThreads) -> f64 {
        let then = |number: &u32| before.0.get(number).copied().unwrap_or(0);
        let worked = self.0.iter().map(|(number, nanos)| nanos.saturating_sub(then(number)));
        worked.sum::<u64>() as f64 / 1e9
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_threads_of_the_kernel_is_counted_and_of_no_others() {
        let root = tempfile::tempdir().unwrap();
        let put = |number: u32, stat: &str, nanos: u64| {
            let dir = root.path().join(format!("proc/{number}"));
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("stat"), format!("{number} {stat} 0 0 0\n")).unwrap();
            fs::write(dir.join("schedstat"), format!("{nanos} 5 7\n")).unwrap();
        };
        put(2, "(kthreadd) S 0", 9);
        put(30, "(kworker/u4:1) 2 S) I 2", 1_000_000_000);
        put(31, "(kworker/0:0) I 2", 4);
        put(40, "(program 2) R 1", 7);
        fs::write(root.path().join("proc/meminfo"), "").unwrap();
        let before = KernelThreads::read(root.path());
        assert_eq!(before.0.len(), 2);
        put(30, "(kworker/u4:1) 2 S) I 2", 3_500_000_000);
        put(32, "(kworker/0:1) I 2", 500_000_000);
        put(40, "(program 2) R 1", 7_000_000_000);
        fs::remove_dir_all(root.path().join("proc/31")).unwrap();
        let after = KernelThreads::read(root.path());
        assert!((after.seconds_since(&before) - 3.0).abs() < 1e-9);
        assert_eq!(KernelThreads::read(&root.path().join("nowhere")), KernelThreads::default());
    }
}
