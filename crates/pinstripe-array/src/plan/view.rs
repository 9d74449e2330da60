//! A row as the read planner and the write planner see it, and the sources of the old bytes of its
//! shards.

use super::Class;
use super::sweep::Segment;
use crate::geometry::RowMap;
use crate::set::{MemberSet, ShardSet};
use pinstripe_base::error::{Error, Kind};

/// A row as the read planner and the write planner see it.
pub(super) struct View {
    row: u64,
    pub mirrors: bool,
    /// The data shards; for a mirror, all copies.
    pub data: ShardSet,
    pub parity: ShardSet,
    /// Shards on absent members.
    pub gone: ShardSet,
}

/// The sources of the old bytes of the shards of a segment.
pub(super) struct Sources {
    /// Known to be zeros, so that they need not be read.
    pub zeros: ShardSet,
    /// With the caller.
    pub cached: ShardSet,
    /// Shards that can only be computed from the rest of the row.
    pub lost: ShardSet,
    /// On their members.
    pub readable: ShardSet,
}

impl View {
    pub fn new(row: &RowMap, absent: MemberSet) -> Self {
        View {
            row: row.index(),
            mirrors: row.mirrors(),
            data: row.data_shards(),
            parity: row.parity_shards(),
            gone: row.shards_on(absent),
        }
    }

    pub fn shards(&self) -> ShardSet {
        self.data.or(self.parity)
    }

    pub fn sources(&self, segment: &Segment) -> Sources {
        let all = self.shards();
        let zeros = segment.class(Class::Unwritten).and(all);
        let changing = segment.class(Class::Dirty).or(segment.class(Class::Partial));
        let cached = segment.class(Class::Cached).minus(changing).minus(zeros);
        let lost = self.gone.or(segment.class(Class::Erased)).minus(zeros).minus(cached);
        let readable = all.minus(zeros).minus(cached).minus(lost);
        Sources { zeros, cached, lost, readable }
    }

    /// The data shards and the parity from which lost data shards are computed; `None` if that is
    /// impossible.
    pub(crate) fn solution(&self, sources: &Sources) -> Option<ShardSet> {
        let unknown = self.data.and(sources.lost).len();
        let free = self.parity.and(sources.zeros).lowest(unknown);
        let read = self.parity.and(sources.readable).lowest(unknown - free.len());
        let parity = free.or(read);
        (parity.len() == unknown).then(|| self.data.minus(sources.lost).or(parity))
    }

    /// The copy from which a mirror is read: the caller's copy, else one that is zeros, else the
    /// first readable one.
    pub(crate) fn copy_to_read(&self, sources: &Sources) -> Option<ShardSet> {
        let choices = [sources.cached, sources.zeros, sources.readable];
        choices.into_iter().find_map(ShardSet::first).map(ShardSet::one)
    }

    pub fn too_many(&self, segment: &Segment) -> Error {
        let lost = self.sources(segment).lost;
        let most = if self.mirrors { self.data.len() - 1 } else { self.parity.len() };
        let what = format!(
            "row {} of the array (a stripe) has lost more chunks than its parity or its copies can \
             replace",
            self.row
        );
        Error::new(Kind::TooManyLosses, what)
            .expected(format!("at most {most} lost chunks in this row"), lost.len())
            .advice("attach an absent member")
    }
}
