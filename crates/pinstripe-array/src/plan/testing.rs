//! A row in memory, on which tests carry out plans and check them.

use std::ops::Range;

use pinstripe_kernel::parity::{encode, gf256, rebuild, update};

use super::*;

/// A row of an array with all known marks, and the content that it should get.
#[derive(Debug)]
pub(super) struct Case {
    pub row: RowMap,
    pub absent: MemberSet,
    pub marks: Vec<Mark>,
    /// The content of each shard, whether or not it can be read.
    pub truth: Vec<Vec<u8>>,
    /// The content that each shard must have in the end.
    pub goal: Vec<Vec<u8>>,
    /// The bytes that the caller has: new bytes and cached ones.
    have: Vec<Vec<Option<u8>>>,
    /// The members' bytes. What the members hold; bytes that may not be read differ from the truth.
    members: Vec<Vec<u8>>,
}

/// Pseudorandom bytes from a seed.
fn noise(seed: u64) -> impl FnMut() -> u8 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    }
}

/// The definition of P and Q, byte by byte.
fn parity_by_definition(row: &RowMap, shards: &mut [Vec<u8>]) {
    for parity in row.parity_shards().iter() {
        let byte = |at: usize| {
            let term = |data: usize| {
                let power = if parity == row.data() { 0 } else { row.coefficient(data) };
                gf256::mul(gf256::exp(power), shards[data][at])
            };
            (0..row.data()).map(term).fold(0, |sum, term| sum ^ term)
        };
        shards[parity] = (0..row.len() as usize).map(byte).collect();
    }
}

impl Case {
    pub fn new(row: RowMap, absent: MemberSet, marks: Vec<Mark>, seed: u64) -> Self {
        let mut byte = noise(seed);
        let len = row.len() as usize;
        let mut truth: Vec<Vec<u8>> =
            (0..row.shards()).map(|_| (0..len).map(|_| byte()).collect()).collect();
        if row.mirrors() {
            let content = truth[0].clone();
            truth.fill(content);
        }
        let of = |class: Class| marks.iter().filter(move |mark| mark.class == class);
        for mark in of(Class::Unwritten) {
            truth[mark.shard][range(&mark.column)].fill(0);
        }
        parity_by_definition(&row, &mut truth);
        let mut have = vec![vec![None; len]; row.shards()];
        for mark in of(Class::Cached) {
            let known = truth[mark.shard][range(&mark.column)].iter().map(|&byte| Some(byte));
            have[mark.shard].splice(range(&mark.column), known);
        }
        let mut goal = truth.clone();
        for mark in of(Class::Dirty).chain(of(Class::Partial)) {
            for at in range(&mark.column) {
                let fresh = mark.class == Class::Dirty || at % 2 == 0;
                have[mark.shard][at] = fresh.then(&mut byte);
                goal[mark.shard][at] = have[mark.shard][at].unwrap_or(truth[mark.shard][at]);
            }
        }
        if row.mirrors() {
            let content = goal[0].clone();
            goal.fill(content);
        }
        parity_by_definition(&row, &mut goal);
        let places: Vec<Place> = (0..row.shards()).map(|shard| row.place(shard)).collect();
        let end = places.iter().map(|place| place.start as usize + len).max().unwrap();
        let mut members = vec![vec![0; end]; 64];
        for (place, shard) in places.iter().zip(&truth) {
            let at = place.start as usize;
            members[place.member][at..at + len].copy_from_slice(shard);
        }
        for mark in of(Class::Unwritten).chain(of(Class::Erased)) {
            let place = row.place(mark.shard);
            for at in range(&mark.column) {
                members[place.member][place.start as usize + at] ^= 1 + byte() % 255;
            }
        }
        absent.iter().for_each(|member| members[member].fill(byte()));
        Case { row, absent, marks, truth, goal, have, members }
    }

    /// The bytes of the pieces' `reads`, taken from the plan's transfers.
    fn read(&self, plan: &RowPlan) -> Vec<Vec<Option<u8>>> {
        let mut got = vec![vec![None; self.row.len() as usize]; self.row.shards()];
        for it in &plan.reads {
            self.check(it);
            for (at, offset) in range(&it.column).zip(it.member_range.clone()) {
                let byte = self.members[it.member][offset as usize];
                assert!(got[it.shard][at].replace(byte).is_none(), "read twice: {plan:?}");
            }
        }
        let asked: usize =
            plan.pieces.iter().map(|piece| piece.reads.len() * piece.column.len()).sum();
        assert_eq!(asked, got.iter().flatten().flatten().count(), "more is read than asked for");
        got
    }

    fn check(&self, it: &Transfer) {
        let place = self.row.place(it.shard);
        assert!(!self.absent.has(it.member) && place.member == it.member && !it.column.is_empty());
        assert_eq!(it.member_range.start, place.start + u64::from(it.column.start));
        assert_eq!(it.member_range.end, place.start + u64::from(it.column.end));
    }

    /// The old bytes of the shards that a piece needs: read, known, or rebuilt.
    fn old(&self, piece: &PlanPiece, got: &[Vec<Option<u8>>]) -> Vec<Option<Vec<u8>>> {
        let sets = [piece.reads, piece.zeros, piece.cached, piece.rebuild];
        let union = sets.iter().fold(ShardSet::EMPTY, |all, set| all.or(*set));
        assert_eq!(sets.iter().map(|set| set.len()).sum::<usize>(), union.len(), "{piece:?}");
        let column = range(&piece.column);
        let take = |bytes: &[Option<u8>]| -> Vec<u8> {
            bytes[column.clone()]
                .iter()
                .map(|byte| byte.expect("what is needed is there"))
                .collect()
        };
        let mut old: Vec<Option<Vec<u8>>> = (0..self.row.shards())
            .map(|shard| match () {
                () if piece.reads.has(shard) => Some(take(&got[shard])),
                () if piece.zeros.has(shard) => Some(vec![0; column.len()]),
                () if piece.cached.has(shard) => Some(take(&self.have[shard])),
                () => None,
            })
            .collect();
        for shard in piece.rebuild.iter() {
            old[shard] = Some(self.rebuilt(&old, shard, column.len()));
        }
        for (shard, bytes) in old.iter().enumerate() {
            let right = bytes.as_ref().is_none_or(|it| *it == self.truth[shard][column.clone()]);
            assert!(right, "shard {shard} was had wrongly: {piece:?}, {:?}", self.marks);
        }
        old
    }

    fn rebuilt(&self, old: &[Option<Vec<u8>>], wanted: usize, len: usize) -> Vec<u8> {
        if self.row.mirrors() {
            return old.iter().flatten().next().expect("a copy to take it from").clone();
        }
        let index = |shard: usize| match shard.checked_sub(self.row.data()) {
            None => self.row.coefficient(shard),
            Some(parity) => self.row.coefficients() + parity,
        };
        // Coefficients of no shard are zeros, as DDF's layouts have them.
        let mut present: Vec<Option<&[u8]>> =
            vec![Some(&[]); self.row.coefficients() + self.row.parity()];
        for (shard, bytes) in old.iter().enumerate() {
            present[index(shard)] = bytes.as_deref();
        }
        let mut out = vec![0; len];
        rebuild(self.row.coefficients(), &present, &mut [(index(wanted), &mut out)]).unwrap();
        out
    }

    /// The new bytes of the data shards that are written; `None` where a piece does not change
    /// them.
    fn fresh(&self, piece: &PlanPiece, old: &[Option<Vec<u8>>]) -> Vec<Option<Vec<u8>>> {
        let shards = 0..self.row.shards();
        let merged = |shard: usize| {
            let content = if self.row.mirrors() { 0 } else { shard };
            let have = &self.have[content][range(&piece.column)];
            if piece.dirty.has(content) {
                return Some(
                    have.iter().map(|byte| byte.expect("dirty bytes are there")).collect(),
                );
            }
            let fills = piece.fill.has(content);
            let mirrored = || old.iter().flatten().next();
            let old = if self.row.mirrors() { mirrored() } else { old[content].as_ref() };
            fills.then(|| {
                have.iter().zip(old.unwrap()).map(|(new, old)| new.unwrap_or(*old)).collect()
            })
        };
        shards.map(merged).collect()
    }

    /// The old or new parity according to the method, and what the piece logs of the unchanged
    /// shards.
    fn parity(
        &self,
        piece: &PlanPiece,
        old: &[Option<Vec<u8>>],
        new: &[Option<Vec<u8>>],
    ) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
        let (row, len) = (&self.row, piece.column.len());
        let rows: Vec<usize> = (0..row.parity()).collect();
        if piece.method == Method::ReadModifyWrite {
            let kept = |n: &usize| piece.writes.has(row.data() + n);
            let mut sums: Vec<Vec<u8>> = rows
                .iter()
                .map(|n| old[row.data() + n].clone().unwrap_or_else(|| vec![0; len]))
                .collect();
            let changed: Vec<usize> = piece.dirty.or(piece.fill).iter().collect();
            let sources = |of: &'_ [Option<Vec<u8>>]| -> Vec<(usize, Vec<u8>)> {
                changed.iter().map(|&d| (row.coefficient(d), of[d].clone().unwrap())).collect()
            };
            let mut add = |sources: &[(usize, Vec<u8>)]| {
                let sources: Vec<_> = sources.iter().map(|(n, bytes)| (*n, &bytes[..])).collect();
                let parity = sums.iter_mut().map(Vec::as_mut_slice).enumerate();
                update(&sources, &mut parity.filter(|(n, _)| kept(n)).collect::<Vec<_>>());
                sums.clone()
            };
            let partial = add(&sources(old));
            return (partial, add(&sources(new)));
        }
        let sum = |data: &dyn Fn(usize) -> Vec<u8>| {
            let shards: Vec<_> = (0..row.data()).map(|d| (row.coefficient(d), data(d))).collect();
            let mut slots: Vec<&[u8]> = vec![&[]; row.coefficients()];
            shards.iter().for_each(|(coefficient, bytes)| slots[*coefficient] = bytes);
            let mut sums = vec![vec![0; len]; row.parity()];
            encode(&slots, &mut sums.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
            sums
        };
        let stays = |d: usize| new[d].is_none();
        let partial = sum(&|d| if stays(d) { old[d].clone().unwrap() } else { Vec::new() });
        (partial, sum(&|d| new[d].clone().or_else(|| old[d].clone()).unwrap()))
    }

    /// Checks what must be logged, by the definition: parity of unchanged data, with changed data
    /// as zeros.
    fn check_log(&self, piece: &PlanPiece, partial: &[Vec<u8>]) {
        let column = range(&piece.column);
        let mut rest = self.truth.clone();
        piece.dirty.or(piece.fill).iter().for_each(|data| rest[data].fill(0));
        parity_by_definition(&self.row, &mut rest);
        for (n, logged) in [piece.log.p, piece.log.q].into_iter().enumerate().filter(|it| it.1) {
            assert!(logged && partial[n] == rest[self.row.data() + n][column.clone()], "{piece:?}");
        }
        let gone = self.row.shards_on(self.absent);
        assert_eq!(
            piece.log.data,
            match self.row.mirrors() {
                true => ShardSet::EMPTY,
                false => piece.dirty.or(piece.fill).and(gone),
            }
        );
    }

    /// Carries out a write plan and compares the members with the goal.
    pub fn write(&mut self, plan: &RowPlan) {
        let got = self.read(plan);
        let mut out = vec![vec![None; self.row.len() as usize]; self.row.shards()];
        for piece in &plan.pieces {
            let old = self.old(piece, &got);
            let mut new = self.fresh(piece, &old);
            if !piece.writes.and(self.row.parity_shards()).is_empty() {
                let (partial, parity) = self.parity(piece, &old, &new);
                self.check_log(piece, &partial);
                (0..).zip(parity).for_each(|(n, bytes)| new[self.row.data() + n] = Some(bytes));
            }
            for shard in piece.writes.iter() {
                let bytes = new[shard].as_ref().expect("what is written was made");
                out[shard].splice(range(&piece.column), bytes.iter().map(|&byte| Some(byte)));
            }
        }
        let before = self.members.clone();
        for it in &plan.writes {
            self.check(it);
            for (at, offset) in range(&it.column).zip(it.member_range.clone()) {
                let byte = out[it.shard][at].take().expect("what is written was made, and once");
                self.members[it.member][offset as usize] = byte;
            }
        }
        assert!(out.iter().flatten().all(Option::is_none), "not all of it is written");
        self.check_members(&before, plan);
    }

    fn check_members(&self, before: &[Vec<u8>], plan: &RowPlan) {
        for shard in 0..self.row.shards() {
            let place = self.row.place(shard);
            let at = |n: usize| place.start as usize + n;
            if self.absent.has(place.member) {
                assert_eq!(self.members[place.member], before[place.member]);
                continue;
            }
            for n in 0..self.row.len() as usize {
                let written = plan
                    .writes
                    .iter()
                    .any(|it| it.shard == shard && it.column.contains(&(n as u32)));
                let is = self.members[place.member][at(n)];
                if written {
                    assert_eq!(
                        is, self.goal[shard][n],
                        "shard {shard}, byte {n}: {:?}",
                        self.marks
                    );
                } else {
                    assert_eq!(is, before[place.member][at(n)]);
                    assert_eq!(self.goal[shard][n], self.truth[shard][n], "{shard} is left out");
                }
            }
        }
    }

    /// Carries out the plan of a read and compares the wanted bytes with the truth.
    pub fn get(&self, plan: &RowPlan) {
        assert!(plan.writes.is_empty());
        let got = self.read(plan);
        let mut wanted = 0;
        for piece in &plan.pieces {
            // This compares all that was had with the truth.
            let old = self.old(piece, &got);
            assert!(piece.wanted.iter().all(|shard| old[shard].is_some()), "{piece:?}");
            wanted += piece.wanted.len() * piece.column.len();
        }
        let asked = self.marks.iter().filter(|mark| mark.class == Class::Wanted);
        assert_eq!(wanted, asked.map(|mark| mark.column.len()).sum::<usize>());
    }
}

fn range(column: &Range<u32>) -> Range<usize> {
    column.start as usize..column.end as usize
}

/// The fewest shards of one column that must be read, by linear algebra: the known, read and zero
/// shards must span those that are computed. `None` if even reading all shards does not suffice;
/// the search ends at `most` shards.
pub(super) fn fewest_reads(case: &Case, column: u32, most: usize) -> Option<usize> {
    let row = &case.row;
    let has = |shard: usize, class: Class| {
        case.marks
            .iter()
            .any(|mark| mark.shard == shard && mark.class == class && mark.column.contains(&column))
    };
    let function = |shard: usize, with: &dyn Fn(usize) -> bool| -> Vec<u8> {
        let factor = |data: usize| match shard.checked_sub(row.data()) {
            _ if row.mirrors() => 1,
            None => u8::from(shard == data),
            Some(0) => 1,
            Some(_) => gf256::exp(row.coefficient(data)),
        };
        (0..row.data()).map(|data| if with(data) { factor(data) } else { 0 }).collect()
    };
    let gone = row.shards_on(case.absent);
    let all = |_: usize| true;
    let changes = |shard: usize| has(shard, Class::Dirty) || has(shard, Class::Partial);
    let mut known = Vec::new();
    let mut readable = Vec::new();
    for shard in 0..row.shards() {
        if has(shard, Class::Unwritten) || has(shard, Class::Cached) && !changes(shard) {
            known.push(function(shard, &all));
        } else if !gone.has(shard) && !has(shard, Class::Erased) {
            readable.push(function(shard, &all));
        }
    }
    let mut targets: Vec<Vec<u8>> =
        (0..row.shards()).filter(|&s| has(s, Class::Wanted)).map(|s| function(s, &all)).collect();
    let content = if row.mirrors() { ShardSet::one(0) } else { row.data_shards() };
    let written = row.mirrors() || !content.is_empty();
    for data in content.iter().filter(|&data| has(data, Class::Partial) && written) {
        if row.mirrors() || !gone.has(data) {
            targets.push(function(data, &all));
        }
    }
    if content.iter().any(changes) {
        // In a block that is partly dirty some bytes stay and some go, and parity needs both.
        for parity in row.parity_shards().minus(gone).iter() {
            targets.push(function(parity, &|data| !has(data, Class::Dirty)));
            targets.push(function(parity, &|data| !changes(data)));
        }
    }
    let suffices = |set: u32| {
        let reads = readable.iter().enumerate().filter(|(n, _)| set >> n & 1 == 1);
        let have: Vec<_> = known.iter().chain(reads.map(|it| it.1)).cloned().collect();
        let rank_with = |more: &[Vec<u8>]| rank([&have[..], more].concat());
        rank_with(&targets) == rank_with(&[])
    };
    let sets = 0u32..1 << readable.len();
    sets.filter(|set| (set.count_ones() as usize) < most && suffices(*set))
        .map(|set| set.count_ones() as usize)
        .min()
        .or_else(|| suffices((1 << readable.len()) - 1).then_some(most))
}

fn rank(mut rows: Vec<Vec<u8>>) -> usize {
    let columns = rows.first().map_or(0, Vec::len);
    let mut rank = 0;
    for column in 0..columns {
        let Some(found) = (rank..rows.len()).find(|&n| rows[n][column] != 0) else { continue };
        rows.swap(rank, found);
        let pivot = rows[rank].clone();
        let inverse = gf256::inv(pivot[column]).unwrap();
        for row in &mut rows[rank + 1..] {
            let factor = gf256::mul(row[column], inverse);
            row.iter_mut().zip(&pivot).for_each(|(to, &from)| *to ^= gf256::mul(factor, from));
        }
        rank += 1;
    }
    rank
}
