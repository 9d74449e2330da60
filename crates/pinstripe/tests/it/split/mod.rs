//! Splits at random: every size, geometry, layout, block and codec comes back; damage within parity
//! costs nothing, and beyond it exactly the blocks that were hit.

pub mod made;
mod places;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use pinstripe_split::{PAGES_BYTES, SplitLayout};
use proptest::prelude::*;

use made::{Made, Shape, change, merged, own, scale, shapes, striped};
use places::Striped;

/// The fate of an output.
#[derive(Debug, Clone)]
enum Harm {
    Gone,
    Cut(u64),
    Flips(Vec<u64>),
    Overwritten(u64, u64),
    Longer(u16),
}

fn harms() -> impl Strategy<Value = Harm> {
    prop_oneof![
        Just(Harm::Gone),
        any::<u64>().prop_map(Harm::Cut),
        // Heads, ends and manifests are small: places near both ends are drawn more often.
        prop::collection::vec(prop_oneof![any::<u64>(), 0..16_384u64], 1..9).prop_map(Harm::Flips),
        (any::<u64>(), any::<u64>()).prop_map(|(start, end)| Harm::Overwritten(start, end)),
        any::<u16>().prop_map(Harm::Longer),
    ]
}

impl Harm {
    fn act(&self, path: &Path) {
        if let Harm::Gone = self {
            return fs::remove_file(path).unwrap();
        }
        change(path, |bytes| {
            let len = bytes.len();
            match self {
                Harm::Gone => {}
                Harm::Cut(at) => bytes.truncate(scale(*at, len).unwrap()),
                Harm::Flips(places) => {
                    for place in places {
                        bytes[scale(*place, len).unwrap()] ^= 0x10;
                    }
                }
                Harm::Overwritten(one, other) => {
                    let (one, other) = (scale(*one, len).unwrap(), scale(*other, len).unwrap());
                    bytes[one.min(other)..one.max(other)].fill(0xa5);
                }
                Harm::Longer(by) => bytes.resize(len + usize::from(*by), 0x5a),
            }
        });
    }
}

#[test]
fn what_no_output_has_is_zeros_on_a_disk_that_held_something_else() {
    let made = Made::new(&Shape {
        layout: SplitLayout::Ranges,
        outputs: 2,
        parity: 0,
        block_bytes: 64 << 10,
        strip_bytes: 4096,
        codec: "lz4",
        source: "fake:9M".to_owned(),
    });
    fs::remove_file(made.path(0)).unwrap();
    let first_range = 0..8 << 20;
    made.assert_lost(std::slice::from_ref(&first_range));
}

#[test]
fn verify_finds_a_byte_where_a_plain_output_has_zeros() {
    let made = Made::new(&Shape {
        layout: SplitLayout::Plain,
        outputs: 2,
        parity: 0,
        block_bytes: 64 << 10,
        strip_bytes: 4096,
        codec: "raw",
        source: "fake:9M,zero=100%".to_owned(),
    });
    assert!(!made.verify_finds(&[]));
    for at in [0, 70_000, (8 << 20) - 1] {
        change(&made.path(0), |bytes| bytes[at] ^= 1);
        made.assert_whole();
        assert!(made.verify_finds(&[]), "{at}");
        change(&made.path(0), |bytes| bytes[at] ^= 1);
    }
    change(&made.path(1), |bytes| bytes.truncate((1 << 20) - 1));
    assert!(made.verify_finds(&[]));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: pinstripe_testing::cases(20), max_shrink_iters: 200, ..Default::default() })]

    #[test]
    fn whatever_is_split_comes_back(shape in shapes(prop_oneof![striped(0..3), own()])) {
        let made = Made::new(&shape);
        made.assert_whole();
        prop_assert!(!made.verify_finds(&[]));
        let reader = made.reader().unwrap();
        let len = made.source.len() as u64;
        for range in [0..len.min(1), len / 3..len / 2, len.saturating_sub(4097)..len] {
            let mut read = vec![1; (range.end - range.start) as usize];
            reader.read_at(range.start, &mut read).unwrap();
            prop_assert!(read == made.source[range.start as usize..range.end as usize]);
        }
    }

    #[test]
    fn as_many_outputs_as_there_is_parity_may_be_hurt_in_any_way(
        shape in shapes(striped(1..3)),
        harms in prop::collection::vec(harms(), 2),
        first in 0usize..6,
    ) {
        let made = Made::new(&shape);
        for (number, harm) in harms.iter().take(shape.parity.into()).enumerate() {
            harm.act(&made.path((first + number) % shape.outputs));
        }
        made.assert_whole();
    }

    #[test]
    fn flips_without_parity_cost_the_blocks_that_they_hit(
        shape in shapes(own()),
        hits in prop::collection::vec((0usize..6, any::<bool>(), any::<u64>()), 0..6),
    ) {
        let made = Made::new(&shape);
        // All of them are found before any is made; two at one place are one.
        let mut flips = BTreeMap::new();
        for (number, in_plain, place) in hits {
            let number = number % shape.outputs;
            let in_plain = in_plain && shape.layout == SplitLayout::Plain;
            let found = if in_plain { made.in_plain(number, place) } else { made.in_log(number, place) };
            flips.extend(found.map(|(path, at, cost)| ((path, at), cost)));
        }
        for (path, at) in flips.keys() {
            change(path, |bytes| bytes[*at] ^= 1);
        }
        let has_hit = !flips.is_empty();
        let lost = merged(flips.into_values());
        made.assert_lost(&lost);
        prop_assert_eq!(made.verify_finds(&lost), has_hit);
    }

    #[test]
    fn flips_beyond_parity_cost_the_blocks_that_they_hit(
        shape in shapes(striped(0..3)),
        hits in prop::collection::vec((any::<u64>(), 1u8..64, any::<u64>()), 0..6),
    ) {
        let made = Made::new(&shape);
        let striped = Striped::of(&made);
        // Of several hits in a row the last one counts.
        let hits: BTreeMap<_, _> =
            hits.into_iter().map(|(row, which, at)| (row % striped.rows(), (which, at))).collect();
        let (mut lost, mut is_hit) = (Vec::new(), false);
        for (row, (which, at)) in hits {
            let Some((places, costs)) = striped.hit(row, which, at) else { continue };
            for (output, place) in &places {
                change(&made.path(*output), |bytes| bytes[*place] ^= 1);
                is_hit = true;
            }
            if places.len() > usize::from(shape.parity) {
                lost.extend(costs);
            }
        }
        let lost = merged(lost);
        made.assert_lost(&lost);
        prop_assert_eq!(made.verify_finds(&lost), is_hit);
    }

    #[test]
    fn a_log_that_is_gone_or_cut_off_costs_the_batches_that_were_there(
        shape in shapes(own().prop_map(|(layout, outputs, _)| (layout, outputs.max(2), 0))),
        number in 0usize..6,
        place: u64,
        is_gone: bool,
    ) {
        let made = Made::new(&shape);
        let number = number % shape.outputs;
        let path = made.log_path(number);
        let left = match is_gone {
            true => 0,
            false => place % (fs::metadata(&path).unwrap().len() + 1),
        };
        let in_log = left.saturating_sub(PAGES_BYTES);
        let is_cut = |it: &&pinstripe_split::Located| {
            it.log == number && it.place.position + it.place.log_bytes > in_log
        };
        let reader = made.reader().unwrap();
        let batches = reader.batches().iter().filter(is_cut).map(|it| it.place);
        let lost = merged(batches.map(|it| it.offset..it.offset + it.raw_bytes));
        drop(reader);
        match is_gone {
            true => fs::remove_file(path).unwrap(),
            false => fs::File::options().write(true).open(path).unwrap().set_len(left).unwrap(),
        }
        if is_gone && shape.layout == SplitLayout::Plain {
            // Without its log an output of plain bytes is any file: it is left out.
            fs::remove_file(made.path(number)).unwrap();
        }
        made.assert_lost(&lost);
    }
}
