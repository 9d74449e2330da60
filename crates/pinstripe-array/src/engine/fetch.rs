//! Carries out the reads of a batch in parallel.

use std::ops::Range;
use std::sync::Mutex;

use crate::executor::{Executor, TaskKind};
use crate::format::BLOCK_BYTES;
use crate::member::ArrayMember;
use crate::plan::{Class, Mark};
use pinstripe_base::sync::{into_inner, lock};

/// The most transfers of one task: several tasks keep several transfers of one member in flight.
pub(super) const TASK_TRANSFERS: usize = 16;

/// A read to be carried out.
pub(super) struct Fetch<'a> {
    pub job: usize,
    pub shard: usize,
    pub column: Range<u32>,
    pub slot: usize,
    pub member: Option<&'a ArrayMember>,
    pub start: u64,
    pub buf: &'a mut [u8],
}

/// Carries out reads, and marks the bad blocks of each job.
pub(super) fn carry_out(
    mut fetches: Vec<Fetch<'_>>,
    executor: &dyn Executor,
) -> Vec<(usize, Mark)> {
    let bad = Mutex::new(Vec::new());
    let locked = || lock(&bad);
    // By member and offset, so that each task moves forward over one part of one disk.
    fetches.sort_unstable_by_key(|it| (it.slot, it.start));
    let tasks: Vec<Mutex<&mut [Fetch<'_>]>> =
        fetches.chunks_mut(TASK_TRANSFERS).map(Mutex::new).collect();
    executor.each(TaskKind::Read, tasks.len(), &|number| {
        let mut task = lock(&tasks[number]);
        for it in task.iter_mut() {
            let erased = |column| Mark { shard: it.shard, class: Class::Erased, column };
            let job = it.job;
            match it.member.map(|member| member.read_checked(it.start, it.buf)) {
                Some(Ok(bad)) => {
                    let column = |block: u32| {
                        let start = it.column.start + block * BLOCK_BYTES as u32;
                        start..start + BLOCK_BYTES as u32
                    };
                    locked().extend(bad.into_iter().map(|it| (job, erased(column(it)))));
                }
                Some(Err(_)) | None => locked().push((job, erased(it.column.clone()))),
            }
        }
    });
    drop(tasks);
    into_inner(bad)
}
