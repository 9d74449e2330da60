//! `init`: makes a store over member directories.
//!
//! The directories are made first, then the keys, then the labels. A directory without a label is not a
//! member, so an interrupted init leaves directories that the next one refuses as not empty, but
//! never part of a store.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::store::{Store, keys_name};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::{StoreId, random};
use pinstripe_base::units::{KIB, MIB};
use pinstripe_io::disk::{Disk, physical_disk};
use pinstripe_io::paths;
use pinstripe_member::key_ring::KeyRing;
use pinstripe_member::keys::Keys;
use pinstripe_member::label::{
    Chunker, Encryption, Format, Label, MEMBERS_MAX, MemberRow, MemberState, MemberTable, Padding,
    StoreConfig,
};
use pinstripe_member::stripe_set::Geometry;
use pinstripe_member::{ExtentKind, ExtentName, NewMember, Places, SharedMember, is_remote, real};
use pinstripe_stripe::{Chunking, Codec, NewSlot, RootKey, Voucher};

/// Default for `--strip-size` (decision 0006).
pub const STRIP_BYTES_DEFAULT: u32 = 256 * KIB as u32;
/// Default for `--chunk-size`, in the form in which users write it.
pub const CHUNKING_DEFAULT: &str = "256K";
/// Default for `--encryption` (decision 0008).
pub const ENCRYPTION_DEFAULT: Encryption = Encryption::Aes256Gcm;
/// The largest number of parity strips that `init` offers; the format allows more.
pub(crate) const PARITY_OFFERED: u8 = 2;

/// Options of a new store.
pub struct InitOptions {
    /// One directory per member: it must be missing or empty.
    pub members: Vec<PathBuf>,
    /// The number of members that may be lost.
    pub parity: u8,
    /// Bytes of each member in a row.
    pub strip_bytes: u64,
    /// How content is cut into chunks.
    pub chunking: Chunking,
    /// How records are compressed.
    pub codec: Codec,
    /// How content is encrypted.
    pub seal: Seal,
    /// Allow members on the same disk, or at the same endpoint.
    pub same_disk: bool,
    /// Seconds since 1970.
    pub now_seconds: i64,
}

#[cfg(test)]
impl InitOptions {
    /// Options for a store with small strips for unit tests, without compression and encryption.
    pub(crate) fn plain(members: Vec<PathBuf>, parity: u8) -> Self {
        InitOptions {
            members,
            parity,
            strip_bytes: 4096,
            chunking: "64K".parse().unwrap(),
            codec: "raw".parse().unwrap(),
            seal: Seal::none(),
            same_disk: true,
            now_seconds: 0,
        }
    }
}

/// Whether and how a new store is encrypted.
pub struct Seal {
    /// The encryption of records and snapshots.
    pub encryption: Encryption,
    /// Where the gear table that cuts content comes from.
    pub chunker: Chunker,
    /// The padding of encrypted records.
    pub padding: Padding,
    /// The first key slot; required with encryption, refused without.
    pub slot: Option<NewSlot>,
    /// The id of the new store if a key file was named after it already; otherwise the id is
    /// random.
    pub store: Option<StoreId>,
}

impl Seal {
    /// Seals nothing.
    pub fn none() -> Self {
        let encryption = Encryption::None;
        let (chunker, padding) = (Chunker::Keyed, Padding::None);
        Seal { encryption, chunker, padding, slot: None, store: None }
    }

    /// Encryption with the default cipher, opened by this slot.
    pub fn with(slot: NewSlot) -> Self {
        Seal { encryption: ENCRYPTION_DEFAULT, slot: Some(slot), ..Self::none() }
    }
}

/// Makes the store.
///
/// # Errors
/// Fails with [`Kind::Usage`] for impossible settings, or with [`Kind::Refused`] for members on one
/// disk or directories that are not empty.
pub fn run(options: &InitOptions) -> Result<StoreConfig> {
    run_with(options, &Places::default())
}

/// Like [`run`], with members wherever `places` can make them.
///
/// # Errors
/// Fails with the errors of [`run`].
pub fn run_with(options: &InitOptions, to: &Places) -> Result<StoreConfig> {
    let members = options.members.len();
    let parity = usize::from(options.parity);
    if options.parity > PARITY_OFFERED {
        return Err(Error::new(
            Kind::Usage,
            "this version does not support this value of --parity",
        )
        .expected(format!("a value from 0 to {PARITY_OFFERED}"), options.parity));
    }
    if members <= parity || members > MEMBERS_MAX {
        return Err(Error::new(
            Kind::Usage,
            "a store with this parity cannot have this number of members",
        )
        .expected(format!("{} to {MEMBERS_MAX} members", parity + 1), members)
        .advice("give one --member DIR for each member"));
    }
    let strip_bytes = u32::try_from(options.strip_bytes)
        .ok()
        .filter(|bytes| {
            bytes.is_power_of_two() && (4 * KIB..=16 * MIB).contains(&u64::from(*bytes))
        })
        .ok_or_else(|| {
            Error::new(Kind::Usage, "a strip cannot have this size")
                .expected("a power of two from 4K to 16M", options.strip_bytes)
        })?;
    Geometry::new((members - parity) as u8, options.parity, strip_bytes)?;
    let places =
        options.members.iter().map(|member| absolute(member)).collect::<Result<Vec<_>>>()?;
    refuse_twins(&places)?;
    if !options.same_disk {
        refuse_one_fate(to, &places)?;
    }
    let config = StoreConfig {
        store: options.seal.store.map_or_else(|| random().map(StoreId), Ok)?,
        parity: options.parity,
        strip_bytes,
        chunking: options.chunking.to_string(),
        codec: options.codec.to_string(),
        created_seconds: options.now_seconds,
        encryption: options.seal.encryption,
        chunker: options.seal.chunker,
        padding: options.seal.padding,
    };
    let (keys, voucher) = key_objects(&config, options.seal.slot.as_ref())?;
    make(&config, (to, &places), &keys, voucher.as_ref())?;
    Ok(config)
}

/// Names and bytes of the objects in the stored keys of a new store.
type KeyObjects = Vec<(ExtentName, Vec<u8>)>;

/// Returns the objects of a new store's stored keys, and the voucher for its labels.
fn key_objects(
    config: &StoreConfig,
    slot: Option<&NewSlot>,
) -> Result<(KeyObjects, Option<Voucher>)> {
    let odd = |what: &str| Err(Error::new(Kind::Usage, what));
    match (config.encryption, slot) {
        (Encryption::None, Some(_)) => {
            odd("an unencrypted store cannot have a password or key file")
        }
        (Encryption::None, None) if config.padding != Padding::None => {
            odd("padding is possible only with encryption")
        }
        (Encryption::None, None) => {
            Ok((vec![(keys_name(config), Keys::generate(config.store)?.encode())], None))
        }
        (_, None) => odd("an encrypted store needs a password or a key file"),
        (_, Some(new)) => {
            let root = RootKey::generate()?;
            let keys = Keys::generate_sealing(config.store)?;
            let voucher = Voucher::new(&keys);
            let ring = root.seal(&keys, config, Format::default())?;
            let slot = new.wrap(&root, &ring)?;
            let name = |id| ExtentName::In(ExtentKind::Keys, id);
            let ring_name = name(KeyRing::name(config.store, ring.generation));
            let objects = [(name(slot.id), slot.encode()), (ring_name, ring.encode())];
            let vouched = objects.map(|(name, bytes)| (name, voucher.vouch(name, &bytes)));
            Ok((vouched.into(), Some(voucher)))
        }
    }
}

fn make(
    config: &StoreConfig,
    (to, places): (&Places, &[PathBuf]),
    keys: &[(ExtentName, Vec<u8>)],
    voucher: Option<&Voucher>,
) -> Result<()> {
    let made = places.iter().map(|place| to.create(place)).collect::<Result<Vec<_>>>()?;
    for NewMember { member, .. } in &made {
        keys.iter().try_for_each(|(name, bytes)| member.put(*name, bytes))?;
    }
    let row = |(number, (place, made)): (usize, (&PathBuf, &NewMember))| {
        let place = place.as_os_str().as_bytes().to_vec();
        let (state, facts) = (MemberState::Active, made.facts);
        Ok(MemberRow { number: number as u16, id: random()?, state, place, facts })
    };
    let rows = places.iter().zip(&made).enumerate().map(row).collect::<Result<Vec<_>>>()?;
    let table = MemberTable { generation: 1, next: rows.len() as u16, rows };
    for (number, NewMember { member, .. }) in made.iter().enumerate() {
        let (config, table) = (config.clone(), table.clone());
        let label = Label { format: Format::default(), config, member: number as u16, table };
        let label = label.encode();
        let label = voucher.map_or(label.clone(), |it| it.vouch(ExtentName::Label, &label));
        member.put(ExtentName::Label, &label)?;
        member.sync()?;
    }
    Ok(())
}

pub(super) fn absolute(place: &Path) -> Result<PathBuf> {
    real(place)
        .or_else(|_| std::path::absolute(place))
        .map_err(|error| Error::io("cannot make this path absolute", place, error))
}

pub(super) fn refuse_twins(places: &[PathBuf]) -> Result<()> {
    for (at, place) in places.iter().enumerate() {
        for other in &places[..at] {
            if place.starts_with(other) || other.starts_with(place) {
                return Err(Error::new(Kind::Usage, "this member is inside another member")
                    .at(place)
                    .advice(format!("the other member is {}", other.display())));
            }
        }
    }
    Ok(())
}

/// Members on one disk, or at one endpoint, fail together and slow each other down, so parity would
/// not protect anything.
pub(super) fn refuse_one_fate(to: &Places, places: &[PathBuf]) -> Result<()> {
    let fates = places.iter().map(|place| fate(to, place)).collect::<Result<Vec<_>>>()?;
    for (at, fate) in fates.iter().enumerate() {
        let twin = fate.as_ref().and_then(|fate| {
            fates[..at].iter().position(|other| other.as_ref() == Some(fate)).map(|n| (fate, n))
        });
        let Some((fate, other)) = twin else { continue };
        let other = places[other].display();
        let (what, advice) = match fate {
            FailureDomain::Disk(disk) => (
                format!("this member is on the same disk ({}) as {other}", disk.name()),
                "if that disk is lost, both members are lost, and both members share the \
                 throughput of the disk; give a directory on another disk, or accept this with \
                 --same-disk",
            ),
            FailureDomain::Endpoint(name) => (
                format!("this member is at the same endpoint ({name}) as {other}"),
                "if that endpoint or account is lost, both members are lost; give a bucket of \
                 another provider, or accept this with --same-fate",
            ),
        };
        return Err(Error::new(Kind::Refused, what).at(&places[at]).advice(advice));
    }
    Ok(())
}

/// A common cause of failure of several members.
#[derive(PartialEq)]
enum FailureDomain {
    Disk(Disk),
    Endpoint(String),
}

fn fate(to: &Places, place: &Path) -> Result<Option<FailureDomain>> {
    if is_remote(place) {
        return to.fate(place).map(|fate| Some(FailureDomain::Endpoint(fate)));
    }
    Ok(physical_disk(existing(place)).map(FailureDomain::Disk))
}

/// Returns the place itself, or the closest existing directory above it.
fn existing(place: &Path) -> &Path {
    place.ancestors().find(|place| paths::exists(place)).unwrap_or(Path::new("/"))
}

/// Refuses a directory on the disk of a present member, except the member that it replaces.
pub(super) fn refuse_disk(store: &Store, place: &Path, leaves: Option<usize>) -> Result<()> {
    let place = absolute(place)?;
    let stays = |(number, _): &(usize, &SharedMember)| {
        Some(*number) != leaves && store.member_slots[*number].place != place
    };
    for (number, _) in store.present().filter(stays) {
        let both = [store.member_slots[number].place.clone(), place.clone()];
        refuse_one_fate(&store.places(), &both)?;
    }
    Ok(())
}
