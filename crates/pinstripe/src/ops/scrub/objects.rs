//! Small objects. Checks that every member has a complete copy of each permanent object; a missing
//! or damaged copy is restored from another member.
//!
//! Marks, sessions and steps of deletion are temporary. Scrub cannot distinguish a missing mark or
//! step from one that was just removed, and restoring a removed one could delete a snapshot that is
//! wanted again. Marks, sessions and steps are left to the verbs that read them, which accept any
//! intact copy. A damaged copy of a temporary object is reported, for repair to rewrite.

use std::collections::BTreeSet;

use super::finding::{Fate, Ledger};
use crate::ops::copies::Copies;
use crate::ops::judge::judge;
use crate::ops::standing::is_object_wanted;
use crate::store::{Store, read_small, replace_small};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_member::{ExtentKind, ExtentName, SharedMember};

/// Compares every small object with its checksum, and repairs damaged ones from an intact copy on
/// another member.
pub(super) fn run(store: &Store, ledger: &Ledger<'_>) -> Result<()> {
    labels(store, ledger)?;
    let mut names: BTreeSet<_> = store.key_names()?.into_iter().collect();
    let lasting = store.lasting_objects()?;
    let is_snapshot = |name: &&ExtentName| matches!(name, ExtentName::In(ExtentKind::Snapshots, _));
    names.extend(lasting.iter().filter(is_snapshot));
    lasting.difference(&names).try_for_each(|name| copies(store, *name, ledger))?;
    names.into_iter().try_for_each(|name| object(store, name, ledger))
}

/// Reports damaged copies of an object that scrub does not write.
fn copies(store: &Store, name: ExtentName, ledger: &Ledger<'_>) -> Result<()> {
    for (number, member) in store.present() {
        match sound(store, number, member, name) {
            Ok(_) => {}
            Err(error) if matches!(error.kind(), Kind::NotFound | Kind::Unanswered) => {}
            Err(error) if matches!(error.kind(), Kind::Unsupported | Kind::KeysChanged) => {
                return Err(error);
            }
            Err(error) => ledger.object(number, name, &error, Fate::Repairable),
        }
    }
    Ok(())
}

fn sound(store: &Store, number: usize, member: &SharedMember, name: ExtentName) -> Result<Vec<u8>> {
    let bytes = read_small(&**member, name)?;
    judge(store, number, name, &bytes).map(|()| bytes)
}

/// Rewrites labels from the store's present table.
fn labels(store: &Store, ledger: &Ledger<'_>) -> Result<()> {
    let mut unsound = Vec::new();
    for (number, member) in store.present() {
        match sound(store, number, member, ExtentName::Label) {
            Ok(_) => {}
            Err(error) if matches!(error.kind(), Kind::Unsupported | Kind::KeysChanged) => {
                return Err(error);
            }
            Err(error) if error.kind() == Kind::Unanswered => {}
            Err(error) => unsound.push((number, error)),
        }
    }
    if unsound.is_empty() {
        return Ok(());
    }
    let fate = match store.write_labels() {
        Ok(_) => Fate::Mended,
        Err(_) => Fate::Repairable,
    };
    for (number, error) in unsound {
        ledger.object(number, ExtentName::Label, &error, fate);
    }
    Ok(())
}

fn object(store: &Store, name: ExtentName, ledger: &Ledger<'_>) -> Result<()> {
    let copies = Copies::read(store, name)?;
    // All copies went while this was at it: removed, not lost.
    if copies.is_gone() {
        return Ok(());
    }
    let Some(good) = copies.good else {
        if !is_object_wanted(store, name)? {
            return Ok(());
        }
        ledger.set(
            name,
            Error::new(Kind::TooManyLosses, "no member has an intact copy of this object"),
            Fate::Lost,
        );
        return Ok(());
    };
    // A key slot that is just being removed may be put back here: it is marked as removed before
    // it goes, so it opens nothing.
    for (number, member, error) in copies.unsound {
        match replace_small(&**member, name, &good) {
            Ok(()) => ledger.object(number, name, &error, Fate::Mended),
            Err(_) => ledger.object(number, name, &error, Fate::Repairable),
        }
    }
    Ok(())
}
