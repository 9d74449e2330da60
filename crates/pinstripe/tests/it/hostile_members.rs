//! Members that lie, on directories: see `pinstripe_sim::hostile_members`.

use pinstripe_sim::{OnDirectories, hostile_members};

#[test]
fn one_member_of_four_deletes_nothing_of_a_sealed_store() {
    hostile_members::one_member_of_four_deletes_nothing_of_a_sealed_store::<OnDirectories>();
}

#[test]
#[ignore = "with --all: it takes 4 s, and the same of a sealed store is in the gate"]
fn one_member_of_four_deletes_nothing_of_a_plain_store() {
    hostile_members::one_member_of_four_deletes_nothing_of_a_plain_store::<OnDirectories>();
}

#[test]
fn as_many_members_as_parity_replaces_delete_nothing_together() {
    hostile_members::as_many_members_as_parity_replaces_delete_nothing_together::<OnDirectories>();
}

#[test]
fn a_deleted_snapshot_that_a_member_puts_back_is_named_and_forgotten_again() {
    hostile_members::a_deleted_snapshot_that_a_member_puts_back_is_named_and_forgotten_again::<
        OnDirectories,
    >();
}

#[test]
fn whatever_hostile_members_do_in_turn_nothing_is_lost() {
    hostile_members::whatever_hostile_members_do_in_turn_nothing_is_lost::<OnDirectories>();
}

#[test]
fn a_scrub_state_of_the_last_generation_stops_no_scrub() {
    hostile_members::a_scrub_state_of_the_last_generation_stops_no_scrub::<OnDirectories>();
}

#[test]
fn junk_in_the_place_of_every_object_of_a_member_stops_nothing() {
    hostile_members::junk_in_the_place_of_every_object_of_a_member_stops_nothing::<OnDirectories>();
}

#[test]
fn a_made_up_label_is_named_and_written_anew() {
    hostile_members::a_made_up_label_is_named_and_written_anew::<OnDirectories>();
}

#[test]
fn a_made_up_trailer_gives_up_no_extent() {
    hostile_members::a_made_up_trailer_gives_up_no_extent::<OnDirectories>();
}

#[test]
fn a_mac_of_the_store_itself_does_not_move_with_its_object() {
    hostile_members::a_mac_of_the_store_itself_does_not_move_with_its_object::<OnDirectories>();
}
