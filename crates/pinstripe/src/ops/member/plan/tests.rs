use proptest::prelude::*;

use super::*;
use pinstripe_base::id::SetId;

fn spread(set: u8, holders: &[(usize, u64)]) -> SetPlacement {
    let name = ExtentName::pack(SetId([set; 16]));
    SetPlacement { name, holders: holders.iter().copied().collect() }
}

fn unlimited(members: &[usize]) -> Takers {
    Takers { members: members.to_vec(), ..Takers::default() }
}

fn told(moves: &[Move]) -> Vec<(u8, usize, usize)> {
    let set = |name| match name {
        ExtentName::In(_, id) => id[0],
        ExtentName::Label => unreachable!("only extents of sets move"),
    };
    moves.iter().map(|it| (set(it.name), it.from, it.to)).collect()
}

#[test]
fn emptying_goes_to_the_member_with_the_fewest_bytes_that_has_none() {
    let spreads = [
        spread(1, &[(0, 10), (1, 10)]),
        spread(2, &[(0, 10), (2, 10)]),
        spread(3, &[(1, 10), (3, 10)]),
        spread(4, &[(0, 10), (3, 10)]),
    ];
    let plan = empty(&spreads, 0, &unlimited(&[1, 2, 3]), None);
    // Set 1 to 2 (10 bytes there), set 2 to 1 or 3 (20 both): the lower number. Set 4 to 2.
    assert_eq!(told(&plan.moves), [(1, 0, 2), (2, 0, 1), (4, 0, 2)]);
    assert!(plan.homeless.is_empty());
}

#[test]
fn a_preferred_member_gets_all_that_it_has_none_of() {
    let spreads = [spread(1, &[(0, 9), (1, 9)]), spread(2, &[(0, 9), (3, 9)])];
    let plan = empty(&spreads, 0, &unlimited(&[1, 2, 3]), Some(3));
    assert_eq!(told(&plan.moves), [(1, 0, 3), (2, 0, 2)]);
}

#[test]
fn what_every_taker_has_is_homeless() {
    let spreads = [spread(1, &[(0, 9), (1, 9), (2, 9)]), spread(2, &[(0, 9), (1, 9)])];
    let plan = empty(&spreads, 0, &unlimited(&[1, 2]), None);
    assert_eq!((told(&plan.moves), plan.homeless), (vec![(2, 0, 2)], vec![spreads[0].name]));
    assert_eq!(empty(&spreads, 7, &unlimited(&[1, 2]), None), Emptied::default());
    // The member itself is no place to go, even if it is named.
    assert_eq!(empty(&spreads[1..], 0, &unlimited(&[0, 1]), None).homeless.len(), 1);
}

#[test]
fn a_new_member_gets_its_share() {
    let wide: Vec<_> = (0..40).map(|set| spread(set, &[(0, 8), (1, 8), (2, 8)])).collect();
    let moves = even_out(&wide, &unlimited(&[0, 1, 2, 3]), &BTreeSet::new());
    assert_eq!(moves.len(), 30, "120 extents over 4");
    assert!(moves.iter().all(|it| it.to == 3));
    for from in 0..3 {
        assert_eq!(moves.iter().filter(|it| it.from == from).count(), 10);
    }
}

#[test]
fn what_is_even_stays() {
    let even = [spread(1, &[(0, 8), (1, 8)]), spread(2, &[(2, 8), (0, 8)])];
    assert_eq!(even_out(&even, &unlimited(&[0, 1, 2]), &BTreeSet::new()), []);
    assert_eq!(even_out(&[], &unlimited(&[0, 1]), &BTreeSet::new()), []);
    assert_eq!(even_out(&even, &unlimited(&[]), &BTreeSet::new()), []);
    // Those on their way out count as nothing.
    assert_eq!(even_out(&even, &unlimited(&[1, 2]), &BTreeSet::new()), []);
}

#[test]
fn an_extent_that_would_only_change_sides_stays() {
    assert_eq!(even_out(&[spread(1, &[(0, 100)])], &unlimited(&[0, 1]), &BTreeSet::new()), []);
    let two = [spread(1, &[(0, 100)]), spread(2, &[(0, 100)])];
    assert_eq!(told(&even_out(&two, &unlimited(&[0, 1]), &BTreeSet::new())), [(1, 0, 1)]);
}

proptest! {
    #[test]
    fn plans_are_sound_and_leave_nothing_to_do(
        sets in prop::collection::vec(prop::collection::btree_map(0_usize..6, Just(16_u64), 1..5), 0..40),
        takers in 1_usize..7,
    ) {
        let mut spreads: Vec<_> = (0..).zip(&sets)
            .map(|(set, holders)| SetPlacement { name: spread(set, &[]).name, holders: holders.clone() })
            .collect();
        let takers: Vec<_> = (0..takers).collect();
        for it in even_out(&spreads, &unlimited(&takers), &BTreeSet::new()) {
            let spread = spreads.iter_mut().find(|spread| spread.name == it.name).unwrap();
            prop_assert_eq!(spread.holders.remove(&it.from), Some(it.bytes));
            prop_assert!(takers.contains(&it.to));
            prop_assert_eq!(spread.holders.insert(it.to, it.bytes), None);
        }
        prop_assert_eq!(even_out(&spreads, &unlimited(&takers), &BTreeSet::new()), vec![]);
        // Between members that differ by more than an extent nothing is left that could move.
        let loads = loads(&spreads, &takers);
        for (from, to) in pairs(&unlimited(&takers).weights(&loads)) {
            let can_move = spreads.iter()
                .any(|it| it.holders.contains_key(&from) && !it.holders.contains_key(&to));
            prop_assert!(!can_move || loads[&from] <= loads[&to] + 16);
        }
    }
}

#[test]
fn a_member_gets_no_more_than_it_has_room_for() {
    let spreads = [
        spread(1, &[(0, 10), (1, 10)]),
        spread(2, &[(0, 10), (1, 10)]),
        spread(3, &[(0, 10), (1, 10)]),
    ];
    let room_bytes = [(2, 10), (3, 0)].into();
    let takers = Takers { members: vec![0, 1, 2, 3], room_bytes, ..Takers::default() };
    let moved = even_out(&spreads, &takers, &BTreeSet::new());
    assert_eq!(moved.iter().map(|it| it.to).collect::<Vec<_>>(), [2]);
    let plan = empty(&spreads, 0, &takers, None);
    assert_eq!((told(&plan.moves), plan.homeless.len()), (vec![(1, 0, 2)], 2));
    // A member that is full can still be emptied.
    assert_eq!(empty(&[spread(4, &[(3, 9)])], 3, &takers, None).moves.len(), 1);
}

/// Member 1 uses more than member 0, but its disk has more free space.
#[test]
fn data_moves_to_the_disk_with_more_free_space() {
    let sets = [spread(1, &[(0, 100)]), spread(2, &[(1, 100)]), spread(3, &[(1, 100)])];
    let rooms = |room_bytes: [(usize, u64); 2], devices: [(usize, u64); 2]| Takers {
        members: vec![0, 1],
        room_bytes: room_bytes.into(),
        devices: devices.into(),
    };
    let two = rooms([(0, 50), (1, 5000)], [(0, 7), (1, 8)]);
    assert_eq!(told(&even_out(&sets, &two, &BTreeSet::new())), [(1, 0, 1)]);
    // On one file system both have the same space: the used bytes are evened out.
    let wide: Vec<_> = (1..5).map(|set| spread(set, &[(1, 100)])).collect();
    let one = rooms([(0, 5000), (1, 5000)], [(0, 7), (1, 7)]);
    let even = even_out(&wide, &one, &BTreeSet::new());
    assert_eq!(even.len(), 2);
    // Another program wrote to it before the second member was asked.
    let later = rooms([(0, 5000), (1, 700)], [(0, 7), (1, 7)]);
    assert_eq!(told(&even_out(&wide, &later, &BTreeSet::new())), told(&even));
}
