//! Work that is counted for each task: the work of the kernel's own threads, and of tasks in the
//! idle class.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Processor time of each of the kernel's threads at one moment.
///
/// Kernel threads compress, write back and serve loop devices for any process, and the kernel does
/// not report for which process; if a run leaves much work to them, their time counts as the run's
/// own.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct KernelThreads(BTreeMap<u32, u64>);

/// The parent of kernel threads: kthreadd.
const PARENT: &str = "2";

impl KernelThreads {
    /// Reads the processor times of kernel threads below `root`. In a container with its own
    /// process namespace no kernel threads are visible.
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

    /// Seconds that the kernel threads worked since the other reading; threads that have ended in
    /// between are not included.
    pub(crate) fn seconds_since(&self, before: &KernelThreads) -> f64 {
        let then = |number: &u32| before.0.get(number).copied().unwrap_or(0);
        let worked = self.0.iter().map(|(number, nanos)| nanos.saturating_sub(then(number)));
        worked.sum::<u64>() as f64 / 1e9
    }
}

/// Processor time, in ticks, of each task of the idle class (SCHED_IDLE) at one moment. In its
/// totals, the kernel counts this time together with that of all other tasks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct IdleTasks(BTreeMap<u32, u64>);

/// The number of the idle class (sched(7)).
const SCHED_IDLE: &str = "5";
/// The position of times and policy in the `stat` file of proc(5), counted from the field after the
/// name.
const USER: usize = 11;
const SYSTEM: usize = 12;
const POLICY: usize = 38;

impl IdleTasks {
    /// Reads the processor times of idle-class tasks below `root`; ended processes are not
    /// included.
    pub fn read(root: &Path) -> Self {
        let found = fs::read_dir(root.join("proc")).into_iter().flatten().flatten();
        let ticks = |process: fs::DirEntry| {
            let number: u32 = process.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(process.path().join("stat")).ok()?;
            let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
            let time = |at: usize| fields.get(at)?.parse::<u64>().ok();
            let is_idle = fields.get(POLICY).is_some_and(|it| *it == SCHED_IDLE);
            is_idle.then(|| Some((number, time(USER)? + time(SYSTEM)?)))?
        };
        IdleTasks(found.filter_map(ticks).collect())
    }

    /// Ticks that the tasks worked since the other reading; a new task counts from its start.
    pub(crate) fn ticks_since(&self, before: &IdleTasks) -> u64 {
        let then = |number: &u32| before.0.get(number).copied().unwrap_or(0);
        self.0.iter().map(|(number, ticks)| ticks.saturating_sub(then(number))).sum()
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

    #[test]
    fn the_time_of_tasks_of_the_idle_class_is_told_apart() {
        let root = tempfile::tempdir().unwrap();
        let put = |number: u32, user: u64, policy: u32| {
            let dir = root.path().join(format!("proc/{number}"));
            fs::create_dir_all(&dir).unwrap();
            let before = ["0"; 8].join(" ");
            let between = ["0"; 25].join(" ");
            let stat = format!("{number} (a) b) S 1 {before} 0 {user} 3 {between} {policy} 0 0\n");
            fs::write(dir.join("stat"), stat).unwrap();
        };
        put(10, 100, 5);
        put(11, 100, 0);
        let before = IdleTasks::read(root.path());
        assert_eq!(before, IdleTasks(BTreeMap::from([(10, 103)])));
        put(10, 150, 5);
        put(11, 900, 0);
        put(12, 7, 5);
        assert_eq!(IdleTasks::read(root.path()).ticks_since(&before), 60);
    }
}
