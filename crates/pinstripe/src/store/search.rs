//! Finds the members of a store by their labels, from any one of them.
//!
//! Any label may name places to search; a directory found there counts only by its own label. The
//! settings and table that count are those on which the members agree (`agreement`) or, if the keys
//! are known, those of the newest label that a holder of the keys made.
//!
//! Not in this module: members without a label (open), and what a verb does about an absent member.

use std::path::{Path, PathBuf};

use super::halves::Outsider;
use super::open::OpenOptions;
use super::table::{format_of, has_left};
use super::unannounced::Unannounced;
use super::{MemberSlot, agreement, read_small};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_member::label::{Format, Label, MemberRow, MemberState, MemberTable, StoreConfig};
use pinstripe_member::{
    ExtentKind, ExtentName, Member, Places, PrefetchHint, SharedMember, is_remote, of_bytes as path,
};
use pinstripe_stripe::Voucher;

/// The members of a store that were found, and the table that lists them.
pub(super) struct Search {
    pub(super) any: PathBuf,
    /// The place of the named member as its label records it.
    pub(super) own_old: PathBuf,
    /// The store's settings.
    pub(super) config: StoreConfig,
    pub(super) format: Format,
    /// The table of members that counts.
    pub(super) table: MemberTable,
    /// The places read so far, each with its label or the error.
    pub(super) looked: Vec<(PathBuf, Result<Label>)>,
    options: OpenOptions,
}

impl Search {
    /// Reads the labels at all places that any label gives for a member. If the keys are known,
    /// only labels that a holder of the keys made count.
    pub(super) fn run(
        any: &Path,
        voucher: Option<&Voucher>,
        options: &OpenOptions,
    ) -> Result<Self> {
        let (named, own) = options.read_member(any)?;
        if options.without.contains(&own.member.into()) {
            let what = format!(
                "member {} is excluded with --without-member and also given with --store",
                own.member
            );
            return Err(Error::new(Kind::Usage, what)
                .at(any)
                .advice("give another member of the store with --store"));
        }
        let mut search = Search {
            any: any.to_path_buf(),
            own_old: path(own_place(&own.table, &own)),
            config: own.config.clone(),
            format: own.format,
            table: own.table.clone(),
            looked: vec![(
                any.to_path_buf(),
                verified(own.clone(), &*options.watch(named), voucher),
            )],
            options: options.clone(),
        };
        let store = own.config.store;
        let is_of_half = |label: &Label| !options.half || label.table == own.table;
        // Any label may name places to search: a label found there counts by itself.
        let mut hints = vec![own.table.clone()];
        options.look_ahead(store, &hints[0], any);
        while let Some(place) = search.unseen(&hints) {
            let found = options.read_member(&place).and_then(|(member, label)| {
                if label.config.store != store {
                    let what = "this member belongs to another store";
                    return Err(Error::new(Kind::WrongMember, what)
                        .at(&place)
                        .expected(store, label.config.store));
                }
                match is_of_half(&label) {
                    true => verified(label, &*options.watch(member), voucher),
                    false => Err(of_another_half(&place)),
                }
            });
            match &found {
                Ok(label) if !hints.contains(&label.table) => hints.push(label.table.clone()),
                // A newer version knows more than this one.
                Err(error) if error.kind() == Kind::Unsupported => return Err(error.duplicate()),
                _ => {}
            }
            search.looked.push((place, found));
        }
        search.settle(&own, voucher.is_some())?;
        search.refuse_left(&own)?;
        search.refuse_copy()?;
        Ok(search)
    }

    /// Decides which settings and which table count, and drops labels with other settings.
    fn settle(&mut self, own: &Label, is_verified: bool) -> Result<()> {
        let found = self.labels();
        let newest = || {
            // The half of the named member is opened.
            let named = self.looked[0].1.as_ref().ok().map(|label| &label.table);
            let has_parted = |label: &Label| {
                named.is_some_and(|named| {
                    agreement::have_parted(named, &label.table)
                        && agreement::holds(named, self.config.parity, &found)
                })
            };
            (found.iter().copied().filter(|label| !has_parted(label)))
                .reduce(|one, other| if other.table.replaces(&one.table) { other } else { one })
        };
        let (config, table) = match is_verified {
            true => newest().map(|label| (&label.config, &label.table)).ok_or_else(|| {
                Error::corrupt(
                    "no member has a label that was made with the keys of this store",
                    &self.any,
                )
                .advice(FORGED)
            })?,
            false => (agreement::agreed_config(own, &found), agreement::agreed_table(own, &found)),
        };
        let (config, table) = (config.clone(), table.clone());
        self.format = format_of(found.iter().copied().filter(|it| it.config == config));
        self.own_old = path(own_place(&table, own));
        for (place, found) in &mut self.looked {
            if found.as_ref().is_ok_and(|label| label.config != config) {
                *found = Err(Error::corrupt(
                    "this label describes a different store configuration",
                    &*place,
                )
                .advice("open the store through another member"));
            }
        }
        (self.config, self.table) = (config, table);
        Ok(())
    }

    /// Refuses the named member if its label is also at the place that the label records. One of
    /// the two members is then a copy of the other: if two hosts used one each, they would change
    /// the member independently and unnoticed. The only member of a store is not checked, because
    /// no other member depends on it.
    fn refuse_copy(&self) -> Result<()> {
        let is_there = |row: &&MemberRow| row.state != MemberState::Left;
        let Some(Ok(own)) = self.looked.first().map(|(_, found)| found.as_ref()) else {
            return Ok(());
        };
        let number = usize::from(own.member);
        let Some(row) = self.table.row(number).filter(|_| self.has_as_member(own)) else {
            return Ok(());
        };
        let recorded = self.options.reached(&self.any, self.config.store, row);
        let is_twin = |(place, found): &(PathBuf, Result<Label>)| {
            let is_it = |label: &Label| label.member == own.member && self.has_as_member(label);
            *place == recorded && found.as_ref().is_ok_and(is_it)
        };
        if recorded == self.any
            || self.table.rows.iter().filter(is_there).count() == 1
            || !self.looked.iter().any(is_twin)
            || !self.options.are_two_labels(&self.any, &recorded)
        {
            return Ok(());
        }
        let recorded = recorded.display();
        let what = format!(
            "two locations have the label of member {number}: this location and {recorded}"
        );
        Err(Error::new(Kind::WrongMember, what)
            .at(&self.any)
            .expected("one location for each member", "two locations with the same label")
            .advice(format!(
                "the other members expect this member at {recorded}: give that location, or \
                 another member, with --store; if the complete member was moved from there, remove \
                 the old label ({})",
                ExtentName::Label.path()
            )))
    }

    /// Returns a place where a member may be and that was not searched yet.
    fn unseen(&self, hints: &[MemberTable]) -> Option<PathBuf> {
        let rows = hints.iter().flat_map(|table| &table.rows);
        let rows = rows.filter(|row| !self.options.without.contains(&row.number.into()));
        let mut places = rows.flat_map(|row| self.candidates(row));
        let is_new = |place: &PathBuf| self.looked.iter().all(|(looked, _)| looked != place);
        places
            .find(is_new)
            .or_else(|| self.options.also.iter().find(|place| is_new(place)).cloned())
    }

    fn candidates(&self, row: &MemberRow) -> Vec<PathBuf> {
        candidates(
            &self.options.reached(&self.any, self.config.store, row),
            &self.own_old,
            &self.any,
        )
    }

    /// Returns the changes of the table that too few of the labels found have.
    pub(super) fn unannounced(&self, has_macs: bool) -> Unannounced {
        let found: Vec<_> =
            self.labels().into_iter().filter(|label| self.has_as_member(label)).collect();
        Unannounced::find(&self.table, self.config.parity, has_macs, &found)
    }

    /// Returns the slots of the table, and the members that were found at another place than the
    /// recorded one.
    pub(super) fn member_slots(&self) -> (Vec<MemberSlot>, Vec<(usize, PathBuf)>) {
        let mut member_slots: Vec<MemberSlot> =
            (0..self.table.next).map(|_| MemberSlot::default()).collect();
        let mut moved = Vec::new();
        for row in &self.table.rows {
            let number = usize::from(row.number);
            let slot = &mut member_slots[number];
            slot.row = Some(row.clone());
            slot.place = self.options.reached(&self.any, self.config.store, row);
            if self.options.without.contains(&number) {
                slot.absence = Some(left_out(number));
                continue;
            }
            let candidates = self.candidates(row);
            let is_it = |label: &Label| label.member == row.number && self.has_as_member(label);
            let mine = self.looked.iter().filter_map(|(place, found)| match found {
                Ok(label) if is_it(label) => Some(place),
                _ => None,
            });
            // The named member; else the one in its recorded place; else any.
            let rank = |place: &Path| {
                let at = candidates.iter().position(|candidate| candidate == place);
                (place != self.any, at.unwrap_or(candidates.len()))
            };
            let found = mine.min_by_key(|place| rank(place));
            match found.map(|place| (place, self.options.open(place))) {
                Some((place, Ok(member))) => {
                    if *place != slot.place {
                        moved.push((number, slot.place.clone()));
                    }
                    slot.take(&self.options, place.clone(), member, number);
                }
                Some((_, Err(error))) => slot.absence = Some(error),
                None => slot.absence = self.absence(number, &candidates),
            }
        }
        (member_slots, moved)
    }

    /// Returns the places whose own label says that they are members of this store although the
    /// table does not list them: a member that was replaced while it was absent, or a member of
    /// another half.
    pub(super) fn outsiders(&self) -> Vec<Outsider> {
        let claims = self.looked.iter().filter_map(|(place, found)| {
            let label = found.as_ref().ok()?;
            let number = usize::from(label.member);
            let is_claim = label.table.row(number).is_some() && !self.has_left(label);
            let is_claim = is_claim && !self.has_as_member(label);
            is_claim.then(|| Outsider { place: place.clone(), table: label.table.clone() })
        });
        claims.collect()
    }

    /// Whether a label belonged to a member that is not in the table any more.
    fn has_left(&self, label: &Label) -> bool {
        has_left(label) && self.table.row(label.member.into()).is_none()
    }

    /// Refuses the named member if it has left the store.
    fn refuse_left(&self, own: &Label) -> Result<()> {
        if !self.has_left(own) {
            return Ok(());
        }
        let places = self.table.rows.iter().map(|row| path(&row.place).display().to_string());
        let places: Vec<String> = places.collect();
        let what = format!("member {} was removed from the store", own.member);
        Err(Error::new(Kind::NotFound, what)
            .at(&self.any)
            .advice(format!("give a member of the store with --store: {}", places.join(", "))))
    }

    /// Whether the table has the member of this label, and the label does not belong to another
    /// half.
    fn has_as_member(&self, label: &Label) -> bool {
        let number = usize::from(label.member);
        let claimed = label.table.row(number).map(|row| row.id);
        let parity = self.config.parity;
        claimed.is_some()
            && self.table.row(number).map(|row| row.id) == claimed
            && !agreement::is_of_another_half(label, &self.table, parity, &self.labels())
    }

    /// Returns those of the labels found that belong to members.
    fn labels(&self) -> Vec<&Label> {
        self.looked.iter().filter_map(|(_, found)| found.as_ref().ok()).collect()
    }

    /// Returns why a member is at none of the places where it may be.
    fn absence(&self, number: usize, candidates: &[PathBuf]) -> Option<Error> {
        let why = |candidate: &PathBuf| {
            let (_, found) = self.looked.iter().find(|(place, _)| place == candidate)?;
            Some(match found {
                Ok(label) if usize::from(label.member) == number => of_another_half(candidate),
                Ok(label) => another(candidate, number, label.member.into()),
                Err(error) => error.duplicate(),
            })
        };
        candidates.iter().find_map(why)
    }
}

/// Returns the error for a member that the caller asked to leave out.
fn left_out(number: usize) -> Error {
    Error::new(Kind::NotFound, format!("member {number} is excluded with --without-member")).advice(
        "run the command again without --without-member to use the member, then run 'pinstripe \
         repair'",
    )
}

/// Returns the place of a label's own member, as a table records it.
fn own_place<'a>(table: &'a MemberTable, own: &'a Label) -> &'a [u8] {
    let row = |table: &'a MemberTable| table.row(own.member.into()).map(|row| &row.place[..]);
    row(table).or_else(|| row(&own.table)).unwrap_or_default()
}

/// Returns the error for a place that has member `found` of the store instead of member `number`.
fn another(place: &Path, number: usize, found: usize) -> Error {
    Error::new(Kind::WrongMember, "this location has another member of this store")
        .at(place)
        .expected(format!("member {number}"), format!("member {found}"))
}

/// Returns the error for a member of another half.
fn of_another_half(place: &Path) -> Error {
    Error::new(Kind::WrongMember, "this member belongs to another half of the store")
        .at(place)
        .advice(format!(
            "import the snapshots of that half with 'pinstripe member merge {}'; then replace this \
             member by a new one with 'pinstripe member replace N --to DIR'",
            place.display()
        ))
}

/// Returns the places where a member may be: where it was last seen, and where it would be if all
/// members had moved together with the named one (`own_old` -> `own_new`).
pub(super) fn candidates(last_seen: &Path, own_old: &Path, own_new: &Path) -> Vec<PathBuf> {
    let mut all = vec![last_seen.to_path_buf()];
    if [last_seen, own_old, own_new].into_iter().any(is_remote) {
        return all;
    }
    let (mut old, mut new) = (own_old, own_new);
    while let (Some(old_up), Some(new_up)) = (old.parent(), new.parent()) {
        if old.file_name() != new.file_name() {
            break;
        }
        (old, new) = (old_up, new_up);
    }
    if let Ok(rest) = last_seen.strip_prefix(old)
        && old != new
        && !rest.as_os_str().is_empty()
    {
        all.push(new.join(rest));
    }
    all
}

/// The advice for a label that was not made with the store's keys.
const FORGED: &str = "this label was not written with a key of this store, so its member is not \
                      trusted; 'pinstripe repair' rewrites the label";

/// Opens a directory as a member and reads its label.
///
/// # Errors
/// Fails with [`Kind::NotFound`] if the directory is not a member.
#[cfg(test)]
pub(crate) fn read_member(place: &Path) -> Result<(SharedMember, Label)> {
    read_member_at(&Places::default(), place)
}

/// The kinds that every verb needs, or profits from, when it opens a store.
pub(super) const OPENING: [PrefetchHint; 7] = [
    PrefetchHint { label: true, ..PrefetchHint::new(ExtentKind::Keys, 2) },
    PrefetchHint::new(ExtentKind::Snapshots, 1),
    PrefetchHint::new(ExtentKind::Forgotten, 1),
    PrefetchHint::maybe(ExtentKind::Checkpoints, 1),
    PrefetchHint::new(ExtentKind::Gc, 7),
    PrefetchHint { again: true, ..PrefetchHint::maybe(ExtentKind::Index, 1) },
    PrefetchHint::maybe(ExtentKind::Packs, 1),
];

/// Opens the member at a place and reads its label.
pub(super) fn read_member_at(places: &Places, place: &Path) -> Result<(SharedMember, Label)> {
    let member = places.open(place)?;
    let label = read_label(&*member)?;
    Ok((member, label))
}

/// Returns a label that was just read from a member; if there is a voucher, only a label that a
/// holder of the keys made is accepted.
fn verified(label: Label, member: &dyn Member, voucher: Option<&Voucher>) -> Result<Label> {
    match voucher {
        None => Ok(label),
        Some(_) => label_of(member, voucher),
    }
}

/// Reads a label; if there is a voucher, a label that no holder of the keys made is refused.
pub(super) fn label_of(member: &dyn Member, voucher: Option<&Voucher>) -> Result<Label> {
    let label = read_label(member)?;
    if let Some(voucher) = voucher {
        let place = member.place().join(ExtentName::Label.path());
        let verified = read_small(member, ExtentName::Label)
            .and_then(|bytes| voucher.verify(ExtentName::Label, &bytes));
        verified.map_err(|error| error.at(place).advice(FORGED))?;
    }
    Ok(label)
}

/// Returns the error of a label that no holder of the keys made.
pub(super) fn forgery(found: &Result<Label>) -> Option<&Error> {
    found.as_ref().err().filter(|error| error.advice_text() == Some(FORGED))
}

fn read_label(member: &dyn Member) -> Result<Label> {
    let place = member.place();
    let bytes = read_small(member, ExtentName::Label).map_err(|error| match error.kind() {
        Kind::NotFound if is_remote(place) => {
            Error::new(Kind::NotFound, "no member of a store is under this prefix")
                .at(place)
                .advice(
                    "check the endpoint, the bucket and the prefix; if the member is permanently \
                     lost, run 'pinstripe member replace N --to PLACE'",
                )
        }
        Kind::NotFound => Error::new(Kind::NotFound, "this directory is not a member of a store")
            .at(place)
            .advice(
                "is the disk of the member mounted? if the member is permanently lost, run \
                 'pinstripe member replace N --to DIR'",
            ),
        _ => error,
    })?;
    Label::decode(&bytes).map_err(|error| {
        error
            .at(place.join(ExtentName::Label.path()))
            .advice("open the store through another member, then run 'pinstripe repair'")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_that_moved_together_are_found() {
        let at = |last: &str, old: &str, new: &str| {
            candidates(Path::new(last), Path::new(old), Path::new(new))
        };
        assert_eq!(at("/a/m1", "/a/m0", "/a/m0"), [PathBuf::from("/a/m1")]);
        let moved = at("/a/m1", "/a/m0", "/b/c/m0");
        assert_eq!(moved, [PathBuf::from("/a/m1"), PathBuf::from("/b/c/m1")]);
        assert_eq!(at("/x/m1", "/a/m0", "/b/m0"), [PathBuf::from("/x/m1")]);
    }
}
