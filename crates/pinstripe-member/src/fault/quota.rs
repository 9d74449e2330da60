//! Members of limited room: a step that needs more than is left fails as on a full disk.
//!
//! One [`Quota`] is shared by all processes of a test, as a disk is. It counts the bytes of files;
//! names cost nothing. As on a disk, a member's reserve is room that is free once it is given up.
//! Steps that need no room always pass.

#![allow(
    clippy::disallowed_methods,
    reason = "this module determines the lengths of the files of a member"
)]

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use pinstripe_base::sync::lock;
use rustix::io::Errno;

use crate::{DiskStep, RESERVE, Steps};

/// The room that a member's reserve takes.
const RESERVE_BYTES: u64 = 32 << 10;

/// The room that members have left, by their directories.
#[derive(Default)]
pub struct Quota(Mutex<BTreeMap<PathBuf, u64>>);

impl Quota {
    /// Limits the bytes that a member may still take, in addition to its reserve.
    pub fn limit(&self, member: &Path, bytes: u64) {
        let reserve = fs::OpenOptions::new().create(true).append(true).open(member.join(RESERVE));
        drop(reserve);
        lock(&self.0).insert(member.to_path_buf(), bytes);
    }

    /// Gives a member room without a limit.
    pub fn lift(&self, member: &Path) {
        lock(&self.0).remove(member);
    }

    /// The room that a member has left, if it is limited.
    pub fn left(&self, member: &Path) -> Option<u64> {
        let left = *lock(&self.0).get(member)?;
        let is_kept = member.join(RESERVE).exists();
        Some(if is_kept { left } else { left + RESERVE_BYTES })
    }

    /// The steps of a process that shares these members.
    pub fn before(self: &Arc<Self>, steps: Arc<dyn Steps>) -> Arc<dyn Steps> {
        Arc::new(Limited { quota: Arc::clone(self), steps })
    }

    /// The limited member that contains a path.
    fn member_of(&self, path: &Path) -> Option<PathBuf> {
        lock(&self.0).keys().find(|member| path.starts_with(member)).cloned()
    }

    fn take(&self, member: &Path, bytes: u64) -> io::Result<()> {
        if bytes > self.left(member).unwrap_or(u64::MAX) {
            return Err(Errno::NOSPC.into());
        }
        self.change(member, |left| left.saturating_sub(bytes));
        Ok(())
    }

    fn give_back(&self, member: &Path, bytes: u64) {
        self.change(member, |left| left.saturating_add(bytes));
    }

    fn change(&self, member: &Path, change: impl FnOnce(u64) -> u64) {
        if let Some(left) = lock(&self.0).get_mut(member) {
            *left = change(*left);
        }
    }
}

/// The steps of one process, under the quota.
struct Limited {
    quota: Arc<Quota>,
    steps: Arc<dyn Steps>,
}

fn len(path: &Path) -> u64 {
    fs::symlink_metadata(path).map_or(0, |found| if found.is_file() { found.len() } else { 0 })
}

impl Steps for Limited {
    fn take(&self, step: &DiskStep<'_>, act: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        let (path, needs, frees) = match *step {
            DiskStep::Create(path) => (path, 0, 0),
            DiskStep::Write { path, offset, len: bytes } => {
                (path, (offset + bytes as u64).saturating_sub(len(path)), 0)
            }
            DiskStep::Unlink(path) => (path, 0, len(path)),
            DiskStep::Rename { to, .. } => (to, 0, len(to)),
            _ => return self.steps.take(step, act),
        };
        let Some(member) = self.quota.member_of(path) else { return self.steps.take(step, act) };
        // A new file needs some room, and takes none as long as it is empty.
        if matches!(step, DiskStep::Create(_)) && self.quota.left(&member) == Some(0) {
            return Err(Errno::NOSPC.into());
        }
        self.quota.take(&member, needs)?;
        let done = self.steps.take(step, act);
        match done {
            Ok(()) => self.quota.give_back(&member, frees),
            Err(_) => self.quota.give_back(&member, needs),
        }
        done
    }

    fn free_bytes(&self, member: &Path) -> Option<u64> {
        self.quota.left(member).or_else(|| self.steps.free_bytes(member))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DirectoryMember, ExtentName, Member};
    use pinstripe_base::error::Kind;
    use pinstripe_base::id::SetId;

    struct Pass;

    impl Steps for Pass {
        fn take(
            &self,
            _: &DiskStep<'_>,
            act: &mut dyn FnMut() -> io::Result<()>,
        ) -> io::Result<()> {
            act()
        }
    }

    #[test]
    fn a_member_without_room_fails_until_something_is_deleted() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("m0");
        let quota = Arc::new(Quota::default());
        drop(DirectoryMember::create_in_with(&place, None).unwrap());
        let member = DirectoryMember::open(&place).unwrap();
        let member = member.with_steps(quota.before(Arc::new(Pass)));
        let name = |number| ExtentName::pack(SetId([number; 16]));
        member.put(name(1), &[1; 3000]).unwrap();
        quota.limit(&place, 1000);
        let left = quota.left(&place).unwrap();
        assert_eq!(member.caps().free_bytes, Some(left));
        assert_eq!(left, 1000);
        let full = member.put(name(2), &vec![2; left as usize + 1]).unwrap_err();
        assert_eq!(full.kind(), Kind::NoSpace);
        assert_eq!(quota.left(&place), Some(left), "what failed takes no room");
        member.delete(name(1)).unwrap();
        member.put(name(2), &vec![2; left as usize + 1]).unwrap();
        quota.lift(&place);
        assert_eq!(quota.left(&place), None);
    }
}
