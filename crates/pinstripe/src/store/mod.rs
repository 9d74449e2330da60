//! A store: members that belong together, the packs, index and snapshots on them.
//!
//! Opened through any one member: its label says where the others were last seen, and what is
//! found there is believed only when its own label agrees. A member that is not found is absent,
//! not an error; each verb decides whether it can go on without.
//!
//! Never here: threads (pipeline/), decisions of a verb (ops/).

pub mod index;
pub mod packs;
pub mod snapshots;
pub mod tree;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Error, Kind, Result};
use crate::fault::{FaultMember, Plan};
use crate::format::envelope::OBJECT_MAX_BYTES;
use crate::format::keys::Keys;
use crate::format::label::{Label, StoreConfig};
use crate::member::directory::DirectoryMember;
use crate::member::{ExtentName, Member, Replace, Room, SharedMember};

/// One member's seat in the store: taken or absent.
pub struct Seat {
    /// Where it is, or where it was last seen.
    pub place: PathBuf,
    /// The member, if it is there.
    pub member: Option<SharedMember>,
    /// Why it is absent.
    pub absence: Option<Error>,
}

/// An open store.
pub struct Store {
    /// What all members agree on.
    pub config: StoreConfig,
    /// The secrets.
    pub keys: Keys,
    /// One seat per member, by member number.
    pub seats: Vec<Seat>,
    /// Members that were found in another place than their neighbours' labels say.
    pub moved: Vec<(usize, PathBuf)>,
}

/// The name of the keys object: there is one per store.
pub fn keys_name(config: &StoreConfig) -> ExtentName {
    ExtentName::In(Room::Keys, config.store.0)
}

impl Store {
    /// Opens the store of which `any` is a member. `faults` are laid over the members they name.
    ///
    /// # Errors
    /// [`Kind::NotFound`] when `any` is no member, [`Kind::TooManyLosses`] when more members are
    /// absent than parity replaces, [`Kind::Unsupported`] when a newer version wrote it.
    pub fn open(any: &Path, faults: &Plan) -> Result<Store> {
        let any = std::fs::canonicalize(any).map_err(|error| {
            Error::io("there is no store here", any, error).advice(
                "name a member directory of a store, or make one: pinstripe init --member DIR",
            )
        })?;
        let (first, label) = read_member(&any)?;
        let mut seats: Vec<Seat> = (label.places.iter())
            .map(|place| Seat { place: path(place), member: None, absence: None })
            .collect();
        let mut moved = Vec::new();
        let own = usize::from(label.member);
        let own_old = std::mem::replace(&mut seats[own].place, any.clone());
        seats[own].member = Some(Arc::new(first));
        if own_old != any {
            moved.push((own, own_old.clone()));
        }
        for number in 0..seats.len() {
            let last_seen = path(&label.places[number]);
            let mut absence = None;
            for candidate in candidates(&last_seen, &own_old, &any) {
                match seat_at(&candidate, &label.config) {
                    Ok((member, found)) => {
                        let seat = &mut seats[usize::from(found.member)];
                        if seat.member.is_none() {
                            if usize::from(found.member) != number || candidate != last_seen {
                                moved.push((usize::from(found.member), last_seen.clone()));
                            }
                            *seat = Seat {
                                place: candidate,
                                member: Some(Arc::new(member)),
                                absence: None,
                            };
                        }
                        break;
                    }
                    Err(error) if error.kind() == Kind::Unsupported => return Err(error),
                    Err(error) => absence = absence.or(Some(error)),
                }
            }
            if seats[number].member.is_none() {
                seats[number].absence = absence;
            }
        }
        lay_faults(&mut seats, faults);
        let store =
            Store { keys: read_keys(&seats, &label.config)?, config: label.config, seats, moved };
        store.require_quorum()?;
        Ok(store)
    }

    fn require_quorum(&self) -> Result<()> {
        let absent: Vec<_> = self.absent().collect();
        if absent.len() <= usize::from(self.config.parity) {
            return Ok(());
        }
        let places: Vec<_> =
            absent.iter().map(|&n| format!("{} ({})", n, self.seats[n].place.display())).collect();
        Err(Error::new(
            Kind::TooManyLosses,
            format!("members {} are absent", places.join(", ")),
        )
        .expected(format!("at most {} absent", self.config.parity), absent.len())
        .advice("attach them where they were, or name with --store a member that knows their new places"))
    }

    /// The members by number, `None` where absent.
    pub fn members(&self) -> Vec<Option<SharedMember>> {
        self.seats.iter().map(|seat| seat.member.clone()).collect()
    }

    /// Numbers of the absent members.
    pub fn absent(&self) -> impl Iterator<Item = usize> + '_ {
        self.seats.iter().enumerate().filter(|(_, seat)| seat.member.is_none()).map(|(n, _)| n)
    }

    /// The members that are there, with their numbers.
    pub fn present(&self) -> impl Iterator<Item = (usize, &SharedMember)> + '_ {
        self.seats.iter().enumerate().filter_map(|(n, seat)| Some((n, seat.member.as_ref()?)))
    }

    /// Writes the label of every present member on which it is missing, damaged or names places
    /// that are no more; returns how many.
    ///
    /// # Errors
    /// When a member cannot be written.
    pub fn write_labels(&self) -> Result<u64> {
        let place = |seat: &Seat| seat.place.as_os_str().as_bytes().to_vec();
        let places: Vec<_> = self.seats.iter().map(place).collect();
        let mut written = 0;
        for (number, member) in self.present() {
            let (config, places) = (self.config.clone(), places.clone());
            let label = Label { config, member: number as u8, places }.encode();
            if read_small(&**member, ExtentName::Label).ok() != Some(label.clone()) {
                replace_small(&**member, ExtentName::Label, &label)?;
                written += 1;
            }
        }
        Ok(written)
    }

    /// Reads a small object whole from whichever member has it sound; `decode` judges.
    ///
    /// # Errors
    /// The last member's error when none has it.
    pub fn read_object<T>(
        &self,
        name: ExtentName,
        decode: impl Fn(&[u8]) -> Result<T>,
    ) -> Result<T> {
        let mut last = Error::new(Kind::NotFound, format!("no member has {name}"));
        for (_, member) in self.present() {
            match read_small(&**member, name).and_then(|bytes| {
                decode(&bytes).map_err(|error| error.at(member.place().join(name.path())))
            }) {
                Ok(value) => return Ok(value),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

/// Reads a small object from one member.
///
/// # Errors
/// Those of the member; [`Kind::Corrupt`] when it is longer than a small object can be.
pub fn read_small(member: &dyn Member, name: ExtentName) -> Result<Vec<u8>> {
    let bytes = member.len(name)?;
    if bytes > OBJECT_MAX_BYTES {
        return Err(Error::corrupt(
            "too long for a small object",
            member.place().join(name.path()),
        )
        .expected(format!("at most {OBJECT_MAX_BYTES} bytes"), bytes));
    }
    let mut whole = vec![0; bytes as usize];
    member.read_at(name, 0, &mut whole)?;
    Ok(whole)
}

/// Puts a small object in the place of a damaged or outdated one; the old one stays until the new
/// one is durable.
///
/// # Errors
/// Those of the member.
pub fn replace_small(member: &dyn Member, name: ExtentName, bytes: &[u8]) -> Result<()> {
    let mut writer = member.create(name, Replace::Allowed)?;
    writer.append(bytes)?;
    writer.seal()
}

/// Opens a directory as a member and reads its label.
///
/// # Errors
/// [`Kind::NotFound`] when it is no member.
pub fn read_member(place: &Path) -> Result<(DirectoryMember, Label)> {
    let member = DirectoryMember::open(place)?;
    let label_place = place.join(ExtentName::Label.path());
    let bytes = read_small(&member, ExtentName::Label).map_err(|error| match error.kind() {
        Kind::NotFound => Error::new(Kind::NotFound, "this directory is no member of a store")
            .at(place)
            .advice("name a member directory, or make a store: pinstripe init --member DIR"),
        _ => error,
    })?;
    let label = Label::decode(&bytes).map_err(|error| {
        error.at(&label_place).advice("open the store through another member, then run repair")
    })?;
    Ok((member, label))
}

fn seat_at(place: &Path, config: &StoreConfig) -> Result<(DirectoryMember, Label)> {
    let (member, label) = read_member(place)?;
    if label.config.store != config.store {
        return Err(Error::new(Kind::WrongMember, "this member belongs to another store")
            .at(place)
            .expected(config.store, label.config.store));
    }
    if label.config != *config {
        return Err(Error::corrupt("this label describes the store in another way", place)
            .advice("open the store through another member"));
    }
    Ok((member, label))
}

/// Where a member may be: where it was last seen, and where it would be if all members had moved
/// together as the one at hand did (`own_old` -> `own_new`).
fn candidates(last_seen: &Path, own_old: &Path, own_new: &Path) -> Vec<PathBuf> {
    let mut all = vec![last_seen.to_path_buf()];
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

/// Lays the faults that a plan has for each member over it; members without any stay bare.
fn lay_faults(seats: &mut [Seat], faults: &Plan) {
    for (number, seat) in seats.iter_mut().enumerate() {
        let plan = faults.for_member(number as u32);
        if !plan.faults.is_empty() {
            let wrap = |inner| Arc::new(FaultMember::new(inner, plan)) as SharedMember;
            seat.member = seat.member.take().map(wrap);
        }
    }
}

fn read_keys(seats: &[Seat], config: &StoreConfig) -> Result<Keys> {
    let mut last = None;
    for member in seats.iter().filter_map(|seat| seat.member.as_deref()) {
        let name = keys_name(config);
        let place = member.place().join(name.path());
        match read_small(member, name)
            .and_then(|bytes| Keys::decode(&bytes).map_err(|e| e.at(&place)))
        {
            Ok(keys) if keys.store == config.store => return Ok(keys),
            Ok(_) => last = Some(Error::corrupt("these keys belong to another store", place)),
            Err(error) => last = Some(error),
        }
    }
    Err(last.expect("a store that opens has at least one member"))
}

fn path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_of_another_geometry_takes_no_seat() {
        let around = tempfile::tempdir().unwrap();
        let places = ["m0", "m1"].map(|name| around.path().join(name));
        let config = crate::ops::init::run(&crate::ops::init::Options {
            members: places.to_vec(),
            parity: 1,
            strip_bytes: 4096,
            chunking: "64K".parse().unwrap(),
            codec: "raw".parse().unwrap(),
            same_disk: true,
            now_seconds: 0,
        })
        .unwrap();
        let config = StoreConfig { data: 7, ..config };
        let label = Label { config, member: 6, places: vec![b"/nowhere".to_vec(); 8] };
        std::fs::write(places[1].join(ExtentName::Label.path()), label.encode()).unwrap();
        let store = Store::open(&places[0], &Plan::default()).unwrap();
        assert_eq!(store.absent().collect::<Vec<_>>(), [1]);
        assert!(Store::open(&places[1], &Plan::default()).is_err());
    }

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
