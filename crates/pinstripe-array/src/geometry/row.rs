//! One row: which member holds which shard, and where.
//!
//! The source is `raid5_compute_sector`, `raid6_d0` and `__raid10_find_phys` of the Linux kernel
//! (drivers/md); here one description serves both directions.

use super::layout::{Copies, Rotation};
use super::{ArrayGeometry, Layout, Level};
use crate::set::{MemberSet, ShardSet};

/// The place of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The member.
    pub member: usize,
    /// The offset of the chunk in the member's data.
    pub start: u64,
}

/// The placement of all shards of one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowMap {
    index: u64,
    len: u32,
    members: u8,
    data: u8,
    shards: u8,
    kind: ShardKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ShardKind {
    /// One chunk on each member, all at the same offset.
    Stripe { start: u64, p: Option<u8>, q: Option<u8>, order: ShardOrder, ddf: bool },
    /// Copies of one chunk.
    Mirror { first: u8, chunk: u64, chunk_bytes: u32, stride: u64, copies: Copies },
}

/// The order of data shards on the members without parity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ShardOrder {
    /// From the lowest member to the highest.
    Ascending,
    /// From member `first` on, around a ring of `ring` members.
    Ring { first: u8, ring: u8 },
}

impl RowMap {
    pub(super) fn new(geometry: &ArrayGeometry, index: u64) -> Self {
        let members = geometry.members;
        let kind = match geometry.layout {
            Layout::Copies(copies) => mirror_row(geometry, copies, index),
            _ if geometry.level == Level::Raid1 => ShardKind::Mirror {
                first: 0,
                chunk: index,
                chunk_bytes: geometry.chunk_bytes(),
                stride: 0,
                copies: Copies { near: members, far: 1, offset: false },
            },
            layout => parity_row(geometry, layout, index),
        };
        RowMap {
            index,
            len: geometry.row_len(index),
            members,
            data: geometry.data() as u8,
            shards: geometry.shards() as u8,
            kind,
        }
    }

    /// The row's number.
    pub fn index(&self) -> u64 {
        self.index
    }

    /// Bytes of each chunk of the row: a full chunk, except in the last row of a mirror.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Chunks of user data in the row.
    pub fn data(&self) -> usize {
        self.data.into()
    }

    /// The number of data and parity shards in the row, or of copies.
    pub fn shards(&self) -> usize {
        self.shards.into()
    }

    /// Parity shards.
    pub fn parity(&self) -> usize {
        if self.mirrors() { 0 } else { self.shards() - self.data() }
    }

    /// Whether the shards are copies of one chunk.
    pub fn mirrors(&self) -> bool {
        matches!(self.kind, ShardKind::Mirror { .. })
    }

    /// The data shards; for a mirror, all copies.
    pub(crate) fn data_shards(&self) -> ShardSet {
        ShardSet::below(self.shards() - self.parity())
    }

    /// The parity shards.
    pub(crate) fn parity_shards(&self) -> ShardSet {
        ShardSet::below(self.shards()).minus(self.data_shards())
    }

    /// The place of a shard. Near copies come first, then the copies one stride further, and so on.
    ///
    /// # Panics
    /// Panics if there is no such shard.
    pub fn place(&self, shard: usize) -> Place {
        assert!(shard < self.shards(), "the row has no shard {shard}");
        match self.kind {
            ShardKind::Stripe { start, p, q, order, .. } => {
                let member = match shard.checked_sub(self.data()) {
                    None => data_member(order, p, q, shard),
                    Some(0) => p.unwrap_or_default().into(),
                    Some(_) => q.unwrap_or_default().into(),
                };
                Place { member, start }
            }
            ShardKind::Mirror { first, chunk, chunk_bytes, stride, copies } => {
                let (members, near) = (usize::from(self.members), usize::from(copies.near));
                let (far, near_index) = (shard / near, shard % near);
                let beside = usize::from(first) + near_index;
                // Near copies that pass the last member continue in the first one's next chunk.
                let chunk = chunk + (beside / members) as u64 + far as u64 * stride;
                let member = (beside + far * near) % members;
                Place { member, start: chunk * u64::from(chunk_bytes) }
            }
        }
    }

    /// The member of a data shard.
    ///
    /// # Panics
    /// Like [`place`](Self::place).
    pub fn member(&self, shard: usize) -> usize {
        self.place(shard).member
    }

    /// The member of P.
    pub fn p(&self) -> Option<usize> {
        (self.parity() > 0).then(|| self.member(self.data()))
    }

    /// The member of Q.
    pub fn q(&self) -> Option<usize> {
        (self.parity() > 1).then(|| self.member(self.data() + 1))
    }

    /// The shard that a member holds; `None` for a member without a copy in a mirror.
    pub(crate) fn shard_on(&self, member: usize) -> Option<usize> {
        if let ShardKind::Stripe { p, q, order, .. } = self.kind
            && member < usize::from(self.members)
        {
            let is = |parity: Option<u8>| parity.is_some_and(|it| usize::from(it) == member);
            return Some(match () {
                () if is(p) => self.data(),
                () if is(q) => self.data() + 1,
                () => data_on(order, p, q, member),
            });
        }
        (0..self.shards()).find(|&shard| self.member(shard) == member)
    }

    /// The shards on any of these members.
    pub(crate) fn shards_on(&self, members: MemberSet) -> ShardSet {
        members.iter().filter_map(|member| self.shard_on(member)).collect()
    }

    /// The power of 2 with which a data shard counts in Q: its place in the kernel's syndrome,
    /// which begins after Q; in DDF's layouts the syndrome counts P and Q as zeros. Without Q, this
    /// is the shard's number.
    pub fn coefficient(&self, data: usize) -> usize {
        let ShardKind::Stripe { p: Some(p), q: Some(q), ddf, .. } = self.kind else { return data };
        let member = self.member(data);
        if ddf {
            return member;
        }
        let members = usize::from(self.members);
        let (p, q) = (usize::from(p), usize::from(q));
        let behind_q = |member: usize| (member + members - (q + 1) % members) % members;
        behind_q(member) - usize::from(behind_q(p) < behind_q(member))
    }

    /// The number of coefficients: the number of data shards, or of all members in DDF's layouts.
    pub fn coefficients(&self) -> usize {
        match self.kind {
            ShardKind::Stripe { ddf: true, .. } => self.members.into(),
            _ => self.data(),
        }
    }
}

/// The member of data shard `data`.
fn data_member(order: ShardOrder, p: Option<u8>, q: Option<u8>, data: usize) -> usize {
    match order {
        ShardOrder::Ring { first, ring } => (usize::from(first) + data) % usize::from(ring),
        ShardOrder::Ascending => {
            let (low, high) = (p.min(q).or(p), p.max(q));
            let parities = [low, high.filter(|_| q.is_some())];
            parities
                .into_iter()
                .flatten()
                .fold(data, |member, parity| member + usize::from(member >= usize::from(parity)))
        }
    }
}

/// The data shard on a member that has no parity.
fn data_on(order: ShardOrder, p: Option<u8>, q: Option<u8>, member: usize) -> usize {
    match order {
        ShardOrder::Ring { first, ring } => {
            (member + usize::from(ring) - usize::from(first)) % usize::from(ring)
        }
        ShardOrder::Ascending => {
            let below = |parity: Option<u8>| parity.is_some_and(|it| usize::from(it) < member);
            member - usize::from(below(p)) - usize::from(below(q))
        }
    }
}

fn parity_row(geometry: &ArrayGeometry, layout: Layout, index: u64) -> ShardKind {
    let start = index << geometry.chunk_shift;
    let six = geometry.level == Level::Raid6;
    let rotation = match layout {
        Layout::Parity(rotation) => rotation,
        _ if geometry.level == Level::Raid4 => Rotation::ParityLast,
        _ => {
            return ShardKind::Stripe {
                start,
                p: None,
                q: None,
                order: ShardOrder::Ascending,
                ddf: false,
            };
        }
    };
    let (p, q) = parity_members(rotation, six, geometry.members, index);
    let ring = |first: u8, ring: u8| ShardOrder::Ring { first: first % ring, ring };
    let members = geometry.members;
    let order = match rotation {
        Rotation::LeftSymmetric | Rotation::RightSymmetric => ring(p + 1 + u8::from(six), members),
        Rotation::DdfNContinue => ring(p + 1, members),
        Rotation::LeftSymmetric6 | Rotation::RightSymmetric6 => ring(p + 1, members - 1),
        _ => ShardOrder::Ascending,
    };
    let ddf = matches!(
        rotation,
        Rotation::DdfZeroRestart | Rotation::DdfNRestart | Rotation::DdfNContinue
    );
    ShardKind::Stripe { start, p: Some(p), q: six.then_some(q), order, ddf }
}

/// The members of P and of Q in a row; the second one is meaningless for a level without Q.
fn parity_members(rotation: Rotation, six: bool, members: u8, index: u64) -> (u8, u8) {
    use Rotation::*;
    let last = members - 1;
    let turn = |ring: u8, index: u64| (index % u64::from(ring)) as u8;
    match rotation {
        LeftAsymmetric | LeftSymmetric => {
            let p = last - turn(members, index);
            (p, (p + 1) % members)
        }
        RightAsymmetric | RightSymmetric | DdfZeroRestart => {
            let p = turn(members, index);
            (p, (p + 1) % members)
        }
        DdfNRestart => {
            let p = last - turn(members, index + 1);
            (p, (p + 1) % members)
        }
        DdfNContinue => {
            let p = last - turn(members, index);
            (p, (p + last) % members)
        }
        ParityFirst => (0, 1),
        ParityLast if six => (last - 1, last),
        ParityLast => (last, last),
        LeftAsymmetric6 | LeftSymmetric6 => (last - 1 - turn(last, index), last),
        RightAsymmetric6 | RightSymmetric6 => (turn(last, index), last),
        ParityFirst6 => (0, last),
    }
}

fn mirror_row(geometry: &ArrayGeometry, copies: Copies, index: u64) -> ShardKind {
    let (members, far) = (u64::from(geometry.members), u64::from(copies.far));
    let copy = index * u64::from(copies.near);
    let (row, first) = (copy / members, (copy % members) as u8);
    let chunk = if copies.offset { row * far } else { row };
    let chunk_bytes = geometry.chunk_bytes();
    ShardKind::Mirror { first, chunk, chunk_bytes, stride: geometry.stride, copies }
}
