//! Columns of which more is lost than parity replaces.

use super::filling::used;
use super::*;
use crate::format::sums::Sum;

/// Loses a block of each of these data shards in one column of row 2, and returns where they lie.
fn lose(flusher: &mut Flusher, shards: &[usize]) -> Vec<usize> {
    // Nothing of the row waits in the log.
    flusher.checkpoint().unwrap();
    let map = flusher.array().shape().map(2);
    for shard in shards {
        let member = flusher.array().member(map.member(*shard)).unwrap();
        member.write(map.place(*shard).start + 4096, &[0xee; 4096]).unwrap();
        member
            .set_sums(map.place(*shard).start / 4096 + 1, &[Sum::from_block(&[1; 4096])])
            .unwrap();
    }
    let at = |shard: &usize| (2 * map.data() + shard) * CHUNK as usize + 4096;
    shards.iter().map(at).collect()
}

fn read(flusher: &Flusher, at: usize) -> Result<Vec<u8>> {
    let mut found = vec![0; 4096];
    flusher.array().read(at as u64, &mut found).map(|()| found)
}

fn check_but(flusher: &Flusher, model: &[u8], lost: &[usize]) {
    for at in (0..model.len()).step_by(4096) {
        match read(flusher, at) {
            Ok(found) => assert!(found == model[at..at + 4096] && !lost.contains(&at), "{at}"),
            Err(error) => assert!(lost.contains(&at), "{at}: {error}"),
        }
    }
}

const LOSERS: [(Level, usize, usize); 3] =
    [(Level::Raid4, 4, 2), (Level::Raid5, 4, 2), (Level::Raid6, 6, 3)];

#[test]
fn a_block_beside_blocks_that_are_lost_can_be_written() {
    for (level, count, losses) in LOSERS {
        let mut dice = Dice(41);
        let (mut flusher, disks, mut model) = used(level, count, &mut dice);
        let shards: Vec<usize> = (0..losses).collect();
        let mut lost = lose(&mut flusher, &shards);
        check_but(&flusher, &model, &lost);
        while let Some(at) = lost.pop() {
            flusher.array().write(at as u64, &[7; 4096], Duration::ZERO).unwrap();
            model[at..at + 4096].fill(7);
            flusher.sync().unwrap_or_else(|error| panic!("{level}: {error}"));
            check_but(&flusher, &model, &lost);
        }
        // Parity is what it should be as soon as nothing is lost.
        flusher.scrub(true).unwrap();
        while !matches!(flusher.step(1 << 20).unwrap(), Step::Done(_)) {}
        flusher.stop().unwrap();
        super::filling::check_without_each(&disks, &model, &format!("{level}"));
    }
}

#[test]
fn what_cannot_be_merged_is_told_once_and_all_else_goes_on() {
    for (level, count, losses) in LOSERS {
        let mut dice = Dice(43);
        let (mut flusher, _, mut model) = used(level, count, &mut dice);
        let shards: Vec<usize> = (0..losses).collect();
        let lost = lose(&mut flusher, &shards);
        flusher.array().write(lost[0] as u64 + 100, &[9; 50], Duration::ZERO).unwrap();
        // Of the same row, and of another one.
        for at in [lost[0] + 8192, 0] {
            flusher.array().write(at as u64, &[8; 4096], Duration::ZERO).unwrap();
            model[at..at + 4096].fill(8);
        }
        assert_eq!(flusher.sync().unwrap_err().kind(), Kind::Corrupt, "{level}");
        flusher.sync().unwrap();
        check_but(&flusher, &model, &lost);
        assert_eq!(flusher.array().dirty_bytes(), 0);
        flusher.stop().unwrap();
    }
}

#[test]
fn a_mirror_with_no_copy_left_of_a_block_takes_whole_blocks() {
    let mut dice = Dice(47);
    let (mut flusher, _, mut model) = used(Level::Raid1, 2, &mut dice);
    let at = lose(&mut flusher, &[0, 1])[0];
    flusher.array().write(at as u64, &[1; 10], Duration::ZERO).unwrap();
    assert_eq!(flusher.sync().unwrap_err().kind(), Kind::Corrupt);
    flusher.array().write(at as u64, &[2; 4096], Duration::ZERO).unwrap();
    model[at..at + 4096].fill(2);
    flusher.sync().unwrap();
    check_but(&flusher, &model, &[]);
}
