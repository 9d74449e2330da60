//! Decides which table of members counts when labels differ and none can be authenticated.
//!
//! A label lists the members of the store, and a member can write any list into its own label. For
//! this reason a newer table replaces an older one only when as many members *of the older one*
//! have the newer one as any writer must have reached (`votes::votes_needed`). The search starts
//! with the table of the label that the caller named. If that many of the table's own members have
//! another table, the other table counts: a change was interrupted, or the named label is forged.
//!
//! The functions do no I/O: they get labels and return a table. In a store whose labels carry MACs
//! the newest verified table counts, and this module is not used.

use super::votes::votes_needed;
use pinstripe_member::label::{Label, MemberState, MemberTable, StoreConfig};

/// Returns the table on which the labels agree; `named` is the label of the member that the user
/// named.
pub(super) fn agreed_table<'a>(named: &'a Label, found: &[&'a Label]) -> &'a MemberTable {
    let parity = named.config.parity;
    let mut tables: Vec<&MemberTable> = Vec::new();
    for label in std::iter::once(&named).chain(found) {
        if tables.iter().all(|known| **known != label.table) {
            tables.push(&label.table);
        }
    }
    tables.sort_by(|one, other| match one.replaces(other) {
        true => std::cmp::Ordering::Greater,
        false => std::cmp::Ordering::Less,
    });
    let holds = |table: &MemberTable| holds(table, parity, found);
    // Only tables in which the named member keeps its number: the others are of another half, or
    // have dropped it.
    let knows_named = |table: &MemberTable| {
        let row = named.table.row(named.member.into());
        row.is_some() && table.row(named.member.into()).map(|row| row.id) == row.map(|row| row.id)
    };
    let first = match holds(&named.table) {
        true => &named.table,
        // No table holds when members are absent or differ: the newest is then the best guess.
        false => {
            let held = tables.iter().rev().find(|table| holds(table) && knows_named(table));
            match held {
                Some(held) => held,
                None => return tables.last().unwrap_or(&&named.table),
            }
        }
    };
    let mut current = first;
    // One step at a time: only members of the current table vote on the next one, so a made-up
    // table cannot bring its own voters.
    loop {
        let members = TableMembers::count(current, found);
        // A member with a still later table has accepted this one.
        let next = tables.iter().find(|table| {
            table.replaces(current)
                && members.saying(|said| said == **table || said.replaces(table))
                    >= members.votes(parity.into())
        });
        match next {
            Some(next) => current = next,
            None => return current,
        }
    }
}

/// Whether a label's member belongs to another half of the store than `table`: enough labels have
/// that member's table, and no change leads from it to `table`.
pub(super) fn is_of_another_half(
    label: &Label,
    table: &MemberTable,
    parity: u8,
    found: &[&Label],
) -> bool {
    let own = &label.table;
    let is_no_older = own != table && own.generation >= table.generation;
    (is_no_older || have_parted(own, table)) && holds(own, parity, found)
}

/// Whether no change leads from one of two tables to the other: they give the same number to
/// different members, although a number is given only once.
pub(super) fn have_parted(one: &MemberTable, other: &MemberTable) -> bool {
    one.rows.iter().any(|row| other.row(row.number.into()).is_some_and(|it| it.id != row.id))
}

/// Whether as many members of a table have it as any writer must have reached.
pub(super) fn holds(table: &MemberTable, parity: u8, found: &[&Label]) -> bool {
    let members = TableMembers::count(table, found);
    members.saying(|said| said == table) >= members.votes(parity.into())
}

/// The settings on which the members in the named label's table agree: those of the named label,
/// unless as many members as any writer must have reached have other ones.
pub(super) fn agreed_config<'a>(named: &'a Label, found: &[&'a Label]) -> &'a StoreConfig {
    let members = TableMembers::count(&named.table, found);
    let votes = members.votes(named.config.parity.into());
    let saying = |config: &StoreConfig| {
        members.labels.iter().filter(|label| label.config == *config).count()
    };
    let others = members.labels.iter().map(|label| &label.config);
    let agreed =
        others.max_by_key(|config| saying(config)).filter(|config| saying(config) >= votes);
    agreed.filter(|_| saying(&named.config) < votes).unwrap_or(&named.config)
}

/// The members of one table, with the labels that were found on them.
struct TableMembers<'a> {
    labels: Vec<&'a Label>,
    all: usize,
}

impl<'a> TableMembers<'a> {
    fn count(table: &MemberTable, found: &[&'a Label]) -> Self {
        let rows: Vec<_> = table.rows.iter().filter(|row| row.state != MemberState::Left).collect();
        let labels = rows.iter().filter_map(|row| {
            let is_its = |label: &&&Label| {
                let own = label.table.row(label.member.into());
                label.member == row.number && own.is_some_and(|own| own.id == row.id)
            };
            // If several directories claim one slot, the one with the oldest table votes: an extra
            // directory can hold back a change, but never push one through.
            found
                .iter()
                .copied()
                .filter(|label| is_its(&label))
                .min_by_key(|it| it.table.generation)
        });
        TableMembers { labels: labels.collect(), all: rows.len() }
    }

    fn votes(&self, parity: usize) -> usize {
        votes_needed(self.all, parity, self.all - self.labels.len())
    }

    fn saying(&self, says: impl Fn(&MemberTable) -> bool) -> usize {
        self.labels.iter().filter(|label| says(&label.table)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pinstripe_base::id::StoreId;
    use pinstripe_member::label::{Chunker, Encryption, Format, MemberFacts, MemberRow, Padding};

    fn table(generation: u64, numbers: &[u16]) -> MemberTable {
        let row = |&number| MemberRow {
            number,
            id: [number as u8; 16],
            state: MemberState::Active,
            place: vec![],
            facts: MemberFacts::default(),
        };
        let rows: Vec<_> = numbers.iter().map(row).collect();
        MemberTable { generation, next: 100, rows }
    }

    fn label(parity: u8, member: u16, table: &MemberTable) -> Label {
        let config = StoreConfig {
            store: StoreId([7; 16]),
            parity,
            strip_bytes: 4096,
            chunking: "64K".into(),
            codec: "raw".into(),
            created_seconds: 0,
            encryption: Encryption::None,
            chunker: Chunker::Keyed,
            padding: Padding::None,
        };
        Label { format: Format::V2, config, member, table: table.clone() }
    }

    /// The table agreed on, opened through the first of these members; generation and members.
    fn agreed(parity: u8, said: &[(u16, &MemberTable)]) -> (u64, Vec<u16>) {
        let labels: Vec<_> = said.iter().map(|(n, table)| label(parity, *n, table)).collect();
        let found: Vec<&Label> = labels.iter().collect();
        let table = agreed_table(found[0], &found);
        (table.generation, table.rows.iter().map(|row| row.number).collect())
    }

    #[test]
    fn one_member_of_four_takes_nothing_over() {
        let honest = table(5, &[0, 1, 2, 3]);
        let forged = table(1 << 60, &[2, 50]);
        let said = [(0, &honest), (1, &honest), (2, &forged), (3, &honest), (50, &forged)];
        assert_eq!(agreed(1, &said), (5, vec![0, 1, 2, 3]));
        // One honest member is away, too.
        let said = [(0, &honest), (1, &honest), (2, &forged), (50, &forged)];
        assert_eq!(agreed(1, &said), (5, vec![0, 1, 2, 3]));
        // Its own directories may be as many as it likes.
        let own: Vec<u16> = std::iter::once(2).chain(60..80).collect();
        let forged = table(6, &own);
        let mut said = vec![(0, &honest), (1, &honest), (3, &honest)];
        said.extend(own.iter().map(|number| (*number, &forged)));
        assert_eq!(agreed(1, &said), (5, vec![0, 1, 2, 3]));
    }

    #[test]
    fn a_change_that_enough_members_say_is_true_for_one_that_was_away() {
        let (old, new) = (table(5, &[0, 1, 2, 3]), table(6, &[0, 1, 2, 3, 4]));
        let said = [(3, &old), (0, &new), (1, &new), (2, &new), (4, &new)];
        assert_eq!(agreed(1, &said).0, 6);
        // The one that was away opens it while another one is away now.
        assert_eq!(agreed(1, &[(3, &old), (1, &new), (2, &new), (4, &new)]).0, 6);
        // Several changes ago.
        let newer = table(7, &[0, 1, 2, 4]);
        let said = [(3, &old), (0, &newer), (1, &newer), (2, &newer), (4, &newer)];
        assert_eq!(agreed(1, &said).0, 7);
    }

    #[test]
    fn a_change_that_was_cut_off_did_not_happen() {
        let (old, new) = (table(5, &[0, 1, 2, 3]), table(6, &[0, 1, 2, 3, 4]));
        for first in [0, 1] {
            let mut said = vec![(0, &new), (1, &old), (2, &old), (3, &old), (4, &new)];
            said.swap(0, first);
            assert_eq!(agreed(1, &said).0, 5, "opened through {first}");
        }
    }

    #[test]
    fn where_a_writer_reaches_one_member_that_one_decides() {
        let (old, new) = (table(5, &[0, 1]), table(6, &[0, 2]));
        assert_eq!(agreed(1, &[(1, &old), (0, &new)]).0, 6);
        assert_eq!(agreed(1, &[(0, &new), (1, &old)]).0, 6);
        assert_eq!(agreed(0, &[(0, &table(3, &[0]))]).0, 3);
        assert_eq!(agreed(1, &[(0, &new), (2, &new)]).0, 6);
    }

    #[test]
    fn halves_are_told_from_members_that_were_away() {
        let is_apart = |said: &[(u16, &MemberTable)], of: u16, table: &MemberTable| {
            let labels: Vec<_> = said.iter().map(|(n, table)| label(1, *n, table)).collect();
            let found: Vec<&Label> = labels.iter().collect();
            let at = said.iter().position(|(number, _)| *number == of).unwrap();
            is_of_another_half(found[at], table, 1, &found)
        };
        let other_two = |generation| {
            let mut table = table(generation, &[0, 1, 2]);
            table.rows[2].id = [99; 16];
            table
        };
        // Both halves of two members added one.
        let (first, second) = (table(6, &[0, 1, 2]), other_two(6));
        let said = [(0, &first), (2, &first), (1, &second)];
        assert!(!is_apart(&said, 0, &first));
        assert!(is_apart(&said, 0, &second));
        // The second half did more since.
        let second = other_two(9);
        assert!(is_apart(&said, 0, &second));
        // One that was away while members were added, and one that was first to hear of a change.
        let (old, new) = (table(5, &[0, 1]), table(6, &[0, 1, 2]));
        assert!(!is_apart(&[(0, &new), (1, &old), (2, &new)], 1, &new));
        let (old, new) = (table(5, &[0, 1, 2, 3]), table(6, &[0, 1, 2, 3, 4]));
        let said = [(0, &new), (1, &old), (2, &old), (3, &old), (4, &new)];
        assert!(!is_apart(&said, 0, &old));
        // The change was cut off, another was made with the same number, and this one was away.
        let (cut, made) = (table(6, &[0, 1, 2, 3, 4]), {
            let mut table = table(7, &[0, 1, 2, 3, 4]);
            table.rows[4].id = [99; 16];
            table
        });
        let said = [(0, &cut), (1, &made), (2, &made), (3, &made), (4, &cut)];
        assert!(!is_apart(&said, 0, &made));
    }

    #[test]
    fn one_member_does_not_change_the_settings_of_four() {
        let table = table(1, &[0, 1, 2, 3]);
        let mut labels: Vec<_> = (0..4).map(|number| label(1, number, &table)).collect();
        labels[0].config.chunking = "fixed:4K".into();
        let found: Vec<&Label> = labels.iter().collect();
        for named in 0..4 {
            assert_eq!(agreed_config(found[named], &found).chunking, "64K", "through {named}");
        }
    }

    #[test]
    fn with_too_few_to_agree_the_newest_is_taken() {
        let (old, new) = (table(5, &[0, 1, 2]), table(6, &[0, 1, 3]));
        assert_eq!(agreed(1, &[(2, &old), (1, &new)]).0, 6);
    }
}
