//! What the last two records of the log say, with members that failed between them.

use super::*;

/// The earlier record says what parity was; the later one changed data when parity's member had
/// failed, and says nothing of it.
#[test]
fn what_was_synced_after_a_member_failed_is_not_taken_back() {
    for (level, count) in redundant() {
        for slot in 0..count {
            // The same block again, and its neighbour in the column.
            for second in [0, CHUNK] {
                let what = format!("{level}, member {slot}, then at {second}");
                let disks = disks(count);
                let mut flusher = create(&create_options(level), shared(&disks)).unwrap();
                let mut model = vec![0; 256 << 10];
                let mut put = |flusher: &mut Flusher, at: u64, byte: u8| {
                    flusher.array().write(at, &[byte; 4096], Duration::ZERO).unwrap();
                    flusher.sync().unwrap();
                    model[at as usize..at as usize + 4096].fill(byte);
                };
                (0..8).for_each(|n| put(&mut flusher, n * CHUNK, 1 + n as u8));
                flusher.checkpoint().unwrap();
                put(&mut flusher, 0, 11);
                flusher.fail(slot).unwrap();
                put(&mut flusher, second, 12);
                drop(flusher);
                let flusher = assemble(shared(&disks)).unwrap_or_else(|it| panic!("{what}: {it}"));
                check(flusher.array(), &model, &what);
            }
        }
    }
}
