//! Disks that fail in the middle, on directories: see `pinstripe_sim::faults`.

use pinstripe_sim::{OnDirectories, faults};

#[test]
fn a_member_that_fails_is_done_without_and_repaired_later() {
    faults::a_member_that_fails_is_done_without_and_repaired_later::<OnDirectories>();
}

#[test]
fn one_failure_more_than_parity_ends_the_backup_and_hurts_nothing() {
    faults::one_failure_more_than_parity_ends_the_backup_and_hurts_nothing::<OnDirectories>();
}

#[test]
fn a_full_member_is_passed_over_where_parity_allows_and_else_ends_the_backup() {
    faults::a_full_member_is_passed_over_where_parity_allows_and_else_ends_the_backup::<
        OnDirectories,
    >();
}

#[test]
fn what_was_open_on_a_member_that_fails_is_laid_again_with_its_parity() {
    faults::what_was_open_on_a_member_that_fails_is_laid_again_with_its_parity::<OnDirectories>();
}

#[test]
fn more_full_members_than_parity_replaces_end_the_backup() {
    faults::more_full_members_than_parity_replaces_end_the_backup::<OnDirectories>();
}

#[test]
fn writes_that_are_lost_or_torn_are_healed() {
    faults::writes_that_are_lost_or_torn_are_healed::<OnDirectories>();
}

#[test]
fn reads_that_fail_lie_or_end_early_are_healed() {
    faults::reads_that_fail_lie_or_end_early_are_healed::<OnDirectories>();
}

#[test]
fn a_member_that_cannot_be_listed_is_done_without() {
    faults::a_member_that_cannot_be_listed_is_done_without::<OnDirectories>();
}
