//! The suites of faults and of hostile members, on stores behind servers.
//!
//! `PINSTRIPE_HOSTILE_SEEDS=FROM..TO` plays more draws of attacks and verbs.

use pinstripe_sim::{faults, hostile_members};

use crate::site::{Above, Apart, Below};

/// Faults of the members of a host: the host does not get what the server sent.
mod above {
    use super::*;

    #[test]
    fn a_member_that_fails_is_done_without_and_repaired_later() {
        faults::a_member_that_fails_is_done_without_and_repaired_later::<Above>();
    }

    #[test]
    fn one_failure_more_than_parity_ends_the_backup_and_hurts_nothing() {
        faults::one_failure_more_than_parity_ends_the_backup_and_hurts_nothing::<Above>();
    }

    #[test]
    fn a_full_member_is_passed_over_where_parity_allows_and_else_ends_the_backup() {
        faults::a_full_member_is_passed_over_where_parity_allows_and_else_ends_the_backup::<Above>(
        );
    }

    #[test]
    fn what_was_open_on_a_member_that_fails_is_laid_again_with_its_parity() {
        faults::what_was_open_on_a_member_that_fails_is_laid_again_with_its_parity::<Above>();
    }

    #[test]
    fn more_full_members_than_parity_replaces_end_the_backup() {
        faults::more_full_members_than_parity_replaces_end_the_backup::<Above>();
    }

    #[test]
    fn writes_that_are_lost_or_torn_are_healed() {
        faults::writes_that_are_lost_or_torn_are_healed::<Above>();
    }

    #[test]
    fn reads_that_fail_lie_or_end_early_are_healed() {
        faults::reads_that_fail_lie_or_end_early_are_healed::<Above>();
    }

    #[test]
    fn a_member_that_cannot_be_listed_is_done_without() {
        faults::a_member_that_cannot_be_listed_is_done_without::<Above>();
    }
}

/// Faults of the members of a server: its disks fail, lie, or lose what they acknowledged.
mod below {
    use super::*;

    #[test]
    fn a_member_that_fails_is_done_without_and_repaired_later() {
        faults::a_member_that_fails_is_done_without_and_repaired_later::<Below>();
    }

    #[test]
    fn one_failure_more_than_parity_ends_the_backup_and_hurts_nothing() {
        faults::one_failure_more_than_parity_ends_the_backup_and_hurts_nothing::<Below>();
    }

    #[test]
    fn a_full_member_is_passed_over_where_parity_allows_and_else_ends_the_backup() {
        faults::a_full_member_is_passed_over_where_parity_allows_and_else_ends_the_backup::<Below>(
        );
    }

    #[test]
    fn what_was_open_on_a_member_that_fails_is_laid_again_with_its_parity() {
        faults::what_was_open_on_a_member_that_fails_is_laid_again_with_its_parity::<Below>();
    }

    #[test]
    fn more_full_members_than_parity_replaces_end_the_backup() {
        faults::more_full_members_than_parity_replaces_end_the_backup::<Below>();
    }

    #[test]
    fn writes_that_are_lost_or_torn_are_healed() {
        faults::writes_that_are_lost_or_torn_are_healed::<Below>();
    }

    #[test]
    fn reads_that_fail_lie_or_end_early_are_healed() {
        faults::reads_that_fail_lie_or_end_early_are_healed::<Below>();
    }

    #[test]
    fn a_member_that_cannot_be_listed_is_done_without() {
        faults::a_member_that_cannot_be_listed_is_done_without::<Below>();
    }
}

/// Members of one server that lie: its disks were changed behind its back.
mod disks {
    use super::*;

    #[test]
    fn one_member_of_four_deletes_nothing_of_a_sealed_store() {
        hostile_members::one_member_of_four_deletes_nothing_of_a_sealed_store::<Below>();
    }

    #[test]
    #[ignore = "with --all: it takes 4 s, and the same of a sealed store is in the gate"]
    fn one_member_of_four_deletes_nothing_of_a_plain_store() {
        hostile_members::one_member_of_four_deletes_nothing_of_a_plain_store::<Below>();
    }

    #[test]
    fn as_many_members_as_parity_replaces_delete_nothing_together() {
        hostile_members::as_many_members_as_parity_replaces_delete_nothing_together::<Below>();
    }

    #[test]
    fn a_deleted_snapshot_that_a_member_puts_back_is_named_and_forgotten_again() {
        hostile_members::a_deleted_snapshot_that_a_member_puts_back_is_named_and_forgotten_again::<
            Below,
        >();
    }

    #[test]
    fn whatever_hostile_members_do_in_turn_nothing_is_lost() {
        hostile_members::whatever_hostile_members_do_in_turn_nothing_is_lost::<Below>();
    }

    #[test]
    fn a_scrub_state_of_the_last_generation_stops_no_scrub() {
        hostile_members::a_scrub_state_of_the_last_generation_stops_no_scrub::<Below>();
    }

    #[test]
    fn junk_in_the_place_of_every_object_of_a_member_stops_nothing() {
        hostile_members::junk_in_the_place_of_every_object_of_a_member_stops_nothing::<Below>();
    }

    #[test]
    fn a_made_up_label_is_named_and_written_anew() {
        hostile_members::a_made_up_label_is_named_and_written_anew::<Below>();
    }

    #[test]
    fn a_made_up_trailer_gives_up_no_extent() {
        hostile_members::a_made_up_trailer_gives_up_no_extent::<Below>();
    }

    #[test]
    fn a_mac_of_the_store_itself_does_not_move_with_its_object() {
        hostile_members::a_mac_of_the_store_itself_does_not_move_with_its_object::<Below>();
    }
}

/// Servers that lie: each member of the store is behind a server of its own.
mod servers {
    use super::*;

    #[test]
    fn one_member_of_four_deletes_nothing_of_a_sealed_store() {
        hostile_members::one_member_of_four_deletes_nothing_of_a_sealed_store::<Apart>();
    }

    #[test]
    #[ignore = "with --all: it takes 4 s, and the same of a sealed store is in the gate"]
    fn one_member_of_four_deletes_nothing_of_a_plain_store() {
        hostile_members::one_member_of_four_deletes_nothing_of_a_plain_store::<Apart>();
    }

    #[test]
    fn as_many_members_as_parity_replaces_delete_nothing_together() {
        hostile_members::as_many_members_as_parity_replaces_delete_nothing_together::<Apart>();
    }

    #[test]
    fn a_deleted_snapshot_that_a_member_puts_back_is_named_and_forgotten_again() {
        hostile_members::a_deleted_snapshot_that_a_member_puts_back_is_named_and_forgotten_again::<
            Apart,
        >();
    }

    #[test]
    fn whatever_hostile_members_do_in_turn_nothing_is_lost() {
        hostile_members::whatever_hostile_members_do_in_turn_nothing_is_lost::<Apart>();
    }

    #[test]
    fn a_scrub_state_of_the_last_generation_stops_no_scrub() {
        hostile_members::a_scrub_state_of_the_last_generation_stops_no_scrub::<Apart>();
    }

    #[test]
    fn junk_in_the_place_of_every_object_of_a_member_stops_nothing() {
        hostile_members::junk_in_the_place_of_every_object_of_a_member_stops_nothing::<Apart>();
    }

    #[test]
    fn a_made_up_label_is_named_and_written_anew() {
        hostile_members::a_made_up_label_is_named_and_written_anew::<Apart>();
    }

    #[test]
    fn a_made_up_trailer_gives_up_no_extent() {
        hostile_members::a_made_up_trailer_gives_up_no_extent::<Apart>();
    }

    #[test]
    fn a_mac_of_the_store_itself_does_not_move_with_its_object() {
        hostile_members::a_mac_of_the_store_itself_does_not_move_with_its_object::<Apart>();
    }
}
