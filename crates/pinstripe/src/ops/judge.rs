//! Decides whether a small object is what its name says.

use crate::store::{
    Store, checkpoints, deletion, forgotten, judge_key_object, sessions, snapshots,
};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_member::label::Label;
use pinstripe_member::scrub::ScrubState;
use pinstripe_member::{ExtentKind, ExtentName, snapshot};

/// Whether the bytes of a small object are what member `number` should have under this name.
///
/// # Errors
/// Fails with the defect.
pub fn judge(store: &Store, number: usize, name: ExtentName, bytes: &[u8]) -> Result<()> {
    let wrong = |what| Err(Error::new(Kind::Corrupt, what));
    match name {
        ExtentName::Label => {
            let label = Label::decode(bytes)?;
            store.verify(name, bytes)?;
            if label.config != store.config
                || usize::from(label.member) != number
                || label.table.generation < store.table.generation
            {
                return wrong("this label belongs to another member");
            }
        }
        ExtentName::In(ExtentKind::Checkpoints, _) => {
            checkpoints::judge(store, bytes)?;
        }
        ExtentName::In(ExtentKind::Keys, id) => judge_key_object(store, id, bytes)?,
        ExtentName::In(ExtentKind::Forgotten, id) => drop(forgotten::read_mark(store, id, bytes)?),
        ExtentName::In(ExtentKind::Sessions, id) => drop(sessions::read(store, id, bytes)?),
        ExtentName::In(ExtentKind::Gc, id) => drop(deletion::read(store, id, bytes)?),
        ExtentName::In(ExtentKind::Scrub, _) => {
            store.verify(name, bytes)?;
            if ScrubState::decode(bytes)?.store != store.config.store {
                return wrong("this is the scrub state of another store");
            }
        }
        ExtentName::In(_, id) => {
            let snapshot = snapshot::parse(bytes)?;
            if snapshot.id.0 != id || snapshot.store != store.config.store {
                return wrong("the content of this snapshot object does not match its name");
            }
            if !store.is_locked() {
                checkpoints::refuse(&snapshots::open(store, bytes)?)?;
            }
        }
    }
    Ok(())
}
