//! What members that lie write: attacks on a store, each on the lying members only.

use std::fs;
use std::path::Path;

use pinstripe::index;
use pinstripe_base::id::{CondemnationId, SessionId, SetId, SnapshotId};
use pinstripe_member::forgotten::Mark;
use pinstripe_member::gc::{DeletionStep, GcObject, Lists};
use pinstripe_member::key_ring::{KeyRing, KeySlot};
use pinstripe_member::keys::Keys;
use pinstripe_member::label::{Format, Label};
use pinstripe_member::removed_slot::RemovedSlot;
use pinstripe_member::scrub::ScrubState;
use pinstripe_member::session::{Process, Session, Work};
use pinstripe_member::snapshot::SnapshotContent;
use pinstripe_member::stripe_set::{FOOTER_BYTES, Footer, Trailer};
use pinstripe_member::{ExtentKind, ExtentName, snapshot};
use pinstripe_stripe::{Credential, NewSlot, RootKey, Voucher};

use super::World;
use crate::suites::SuiteSite;
use crate::support::{new_slot, read_files};

/// An object as a hostile member may have it: without a MAC, or with that of other keys.
fn forged(name: ExtentName, framed: &[u8], has_mac: bool) -> Vec<u8> {
    let stranger = Keys::generate_sealing(pinstripe_base::id::StoreId([9; 16])).unwrap();
    if has_mac { Voucher::new(&stranger).vouch(name, framed) } else { framed.to_vec() }
}

fn in_gc(object: &GcObject) -> ExtentName {
    ExtentName::In(ExtentKind::Gc, object.name())
}

/// Everything that there is, condemned.
fn everything<S: SuiteSite>(world: &World<S>) -> Lists {
    let store = world.store();
    let mut packs: Vec<SetId> =
        index::sets_in(&store, ExtentKind::Packs).unwrap().into_keys().collect();
    packs.sort();
    let mut snapshots: Vec<_> = world.saved.iter().map(|(it, _)| (it.id, 1)).collect();
    snapshots.sort();
    Lists { packs, snapshots, abandoned: Vec::new() }
}

fn step<S: SuiteSite>(world: &World<S>, step: DeletionStep) -> GcObject {
    GcObject {
        store: world.config().store,
        condemnation: CondemnationId([6; 16]),
        by: SessionId([5; 16]),
        step,
    }
}

/// A process of this machine that surely runs no more.
fn dead_process() -> Process {
    let own = pinstripe_member::own_process();
    Process { started_ticks: own.started_ticks + 1, ..own }
}

/// The attacks of lying members. Each writes to the members of `World::evil` only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attack {
    /// Marks that forget every snapshot.
    Marks,
    /// One tombstone for everything.
    Tombstone,
    /// A condemnation with all its steps, as a collector that died would have left it.
    DeadCollector,
    /// An answer in the name of every writer.
    Acks,
    /// A table of members that names the liars only.
    Table,
    /// A label with other settings.
    Settings,
    /// A ring of a later generation, with a slot for it.
    Ring,
    /// A ring of this generation, and the honest slot's removal.
    RemovedSlot,
    /// Sessions of other processes that move extents and collect.
    Sessions,
    /// Scrub states that claim that all was verified in a far future.
    ScrubStates,
    /// A checkpoint in the place of the snapshot that it would have become.
    Checkpoint,
    /// Snapshots under other names, which also replace the names in their unsealed bytes.
    RenamedSnapshots,
    /// A snapshot that is not sealed, in a store that seals.
    PlainSnapshot,
    /// Everything as it was earlier: marks, labels, keys, index runs, snapshots.
    Rollback,
    /// Only the small objects as they were earlier.
    OldObjects,
    /// Objects under the names of others, in other kinds.
    Shuffle,
    /// A few bytes of each kind.
    Junk,
    /// Trailers under whose checksums every sound strip looks damaged.
    Trailers,
}

pub(super) const ATTACKS: [Attack; 18] = [
    Attack::Marks,
    Attack::Tombstone,
    Attack::DeadCollector,
    Attack::Acks,
    Attack::Table,
    Attack::Settings,
    Attack::Ring,
    Attack::RemovedSlot,
    Attack::Sessions,
    Attack::ScrubStates,
    Attack::Checkpoint,
    Attack::RenamedSnapshots,
    Attack::PlainSnapshot,
    Attack::Rollback,
    Attack::OldObjects,
    Attack::Shuffle,
    Attack::Junk,
    Attack::Trailers,
];

impl Attack {
    pub(super) fn strike<S: SuiteSite>(self, world: &World<S>, has_mac: bool) {
        let store = world.config().store;
        let plant = |name, framed: &[u8]| world.plant(name, &forged(name, framed, has_mac));
        match self {
            Attack::Marks => {
                for (snapshot, _) in &world.saved {
                    let mark = Mark { store, snapshot: snapshot.id, generation: 1 };
                    plant(ExtentName::In(ExtentKind::Forgotten, mark.name()), &mark.encode());
                }
            }
            Attack::Tombstone => {
                let object = step(world, DeletionStep::Tombstone(everything(world)));
                plant(in_gc(&object), &object.encode());
            }
            Attack::DeadCollector => {
                let lists = everything(world);
                for made in [DeletionStep::Condemned(lists.clone()), DeletionStep::Reaping(lists)] {
                    let object = step(world, made);
                    plant(in_gc(&object), &object.encode());
                }
            }
            Attack::Acks => {
                let sessions = world.store().names(ExtentKind::Sessions, REACH).unwrap();
                for session in sessions.into_iter().map(SessionId).chain([SessionId([5; 16])]) {
                    let object = step(world, DeletionStep::Ack { session, packs: Vec::new() });
                    plant(in_gc(&object), &object.encode());
                }
            }
            Attack::Table | Attack::Settings => world.relabel(self, has_mac),
            Attack::Ring => world.plant_ring(1_000, has_mac),
            Attack::RemovedSlot => world.plant_removals(has_mac),
            Attack::Sessions => {
                for (number, work) in [Work::Rebalance, Work::Collect].into_iter().enumerate() {
                    let session = Session {
                        store,
                        id: SessionId([number as u8 + 1; 16]),
                        work,
                        commit: [3; 16],
                        parents: Vec::new(),
                        process: dead_process(),
                    };
                    let name = ExtentName::In(ExtentKind::Sessions, session.id.0);
                    plant(name, &session.encode());
                }
            }
            Attack::ScrubStates => {
                let mut state = ScrubState::new(store);
                state.generation = u64::MAX - 1;
                plant(ExtentName::In(ExtentKind::Scrub, [2; 16]), &state.encode());
            }
            Attack::Checkpoint => world.plant_checkpoint(),
            Attack::RenamedSnapshots => {
                for (number, (saved, _)) in world.saved.iter().enumerate() {
                    let from = world.site.members[world.honest()]
                        .join(ExtentName::snapshot(saved.id).path());
                    let to = ExtentName::snapshot(SnapshotId([number as u8 + 1; 16]));
                    let bytes = fs::read(from).unwrap();
                    world.plant(to, &bytes);
                    // Then only the seal knows the name.
                    if let SnapshotContent::Sealed(seal, blob) =
                        snapshot::parse(&bytes).unwrap().content
                    {
                        let id = SnapshotId([number as u8 + 101; 16]);
                        let renamed = snapshot::frame_sealed((store, id), false, seal, blob);
                        world.plant(ExtentName::snapshot(id), &renamed);
                    }
                }
            }
            Attack::PlainSnapshot if world.is_sealed() => {
                let mut plain = world.saved[0].0.clone();
                plain.id = SnapshotId([0x79; 16]);
                world.plant(ExtentName::snapshot(plain.id), &plain.encode());
            }
            // Nothing tells it from a true one there.
            Attack::PlainSnapshot => {}
            Attack::Rollback => world.put_back(|_| true),
            Attack::OldObjects => {
                world.put_back(|path| !path.components().any(|part| part.as_os_str() == "packs"))
            }
            Attack::Shuffle => world.shuffle(),
            Attack::Trailers => world.forge_trailers(),
            Attack::Junk => {
                for (number, kind) in ExtentKind::ALL.into_iter().enumerate() {
                    world.plant(ExtentName::In(kind, [0xf0 + number as u8; 16]), b"junk!");
                }
            }
        }
    }
}

pub(super) const REACH: pinstripe::Quorum = pinstripe::Quorum::Backup;

impl<S: SuiteSite> World<S> {
    /// Labels that say something else than the honest ones.
    pub(super) fn relabel(&self, attack: Attack, has_mac: bool) {
        for evil in &self.evil {
            let path = self.site.members[*evil].join(ExtentName::Label.path());
            // An earlier attack may have left no label to change.
            let Ok(mut label) = Label::decode(&fs::read(&path).unwrap()) else { continue };
            if attack == Attack::Table {
                label.table.generation = 1 << 60;
                label.table.rows.retain(|row| self.evil.contains(&usize::from(row.number)));
                label.table.next = u16::MAX;
            } else {
                label.format = Format::V1;
                label.config.parity = 0;
                label.config.chunking = "fixed:4K".into();
            }
            fs::write(path, forged(ExtentName::Label, &label.encode(), has_mac)).unwrap();
        }
    }

    /// A ring that opens with a root key of the liar's own, and a slot that names it.
    fn plant_ring(&self, generation: u32, has_mac: bool) {
        let config = self.config();
        if !self.site.sealed {
            return;
        }
        let (root, keys) =
            (RootKey::generate().unwrap(), Keys::generate_sealing(config.store).unwrap());
        let mut ring = root.seal(&keys, &config, Format::V2).unwrap();
        ring.generation = generation;
        ring.chain = Some(vec![[7; 32]; generation as usize]);
        // Without a credential of the store nothing can be wrapped that an honest one would open.
        let stranger = NewSlot { credential: Credential::generate().unwrap(), ..new_slot() };
        let slot = stranger.wrap(&root, &ring).unwrap();
        let name = ExtentName::In(ExtentKind::Keys, slot.id);
        self.plant(name, &forged(name, &slot.encode(), has_mac));
        let name = ExtentName::In(ExtentKind::Keys, KeyRing::name(config.store, generation));
        self.plant(name, &forged(name, &ring.encode(), has_mac));
    }

    /// Objects that say that the slots were removed, and other bytes in the place of the ring.
    fn plant_removals(&self, has_mac: bool) {
        if !self.site.sealed {
            return;
        }
        let store = self.config().store;
        let mut image = Default::default();
        read_files(&self.site.members[self.honest()].join("keys"), &mut image);
        for bytes in image.values() {
            let Ok(slot) = KeySlot::decode(bytes) else { continue };
            let removed =
                RemovedSlot { store, generation: slot.generation, number: 0, slot: slot.id };
            let name = ExtentName::In(ExtentKind::Keys, removed.own_name());
            self.plant(name, &forged(name, &removed.encode(), has_mac));
        }
        self.plant_ring(0, has_mac);
    }

    /// What an interrupted backup had done, under the name of the snapshot that it was to make: a
    /// checkpoint of this format, and one as version 1 had it.
    fn plant_checkpoint(&self) {
        let store = self.store();
        let mut partial = self.saved[0].0.clone();
        partial.id = SnapshotId([0x77; 16]);
        partial.counts.push((pinstripe::checkpoints::MARK.to_owned(), 1));
        let sealer = store.sealer().unwrap();
        let name = ExtentName::snapshot(partial.id);
        self.plant(name, &sealer.checkpoint(&partial).unwrap());
        partial.id = SnapshotId([0x78; 16]);
        let name = ExtentName::snapshot(partial.id);
        self.plant(name, &sealer.snapshot(&partial).unwrap());
        assert!(snapshot::parse(&sealer.snapshot(&partial).unwrap()).is_ok());
    }

    /// Files of the liars as they were earlier.
    fn put_back(&self, is_chosen: impl Fn(&Path) -> bool) {
        for evil in &self.evil {
            for (path, bytes) in &self.earlier.0 {
                if path.starts_with(&self.site.members[*evil]) && is_chosen(path) {
                    fs::create_dir_all(path.parent().unwrap()).unwrap();
                    fs::write(path, bytes).unwrap();
                }
            }
        }
    }

    /// Trailers that are whole, with other checksums of all strips.
    pub(super) fn forge_trailers(&self) {
        for evil in &self.evil {
            let mut files = Default::default();
            read_files(&self.site.members[*evil].join("packs"), &mut files);
            for (path, mut bytes) in files {
                let Some(footer_at) = bytes.len().checked_sub(FOOTER_BYTES) else { continue };
                let Ok(footer) = Footer::decode(&bytes[footer_at..]) else { continue };
                let trailer_at = footer_at - footer.trailer_bytes as usize;
                let mut trailer = Trailer::decode(&bytes[trailer_at..footer_at], &footer).unwrap();
                trailer.checksums.iter_mut().for_each(|sum| sum[0] ^= 1);
                bytes.truncate(trailer_at);
                bytes.extend_from_slice(&trailer.encode());
                fs::write(path, bytes).unwrap();
            }
        }
    }

    /// Every small object under the name of the next one, across kinds.
    fn shuffle(&self) {
        for evil in &self.evil {
            let mut files = Default::default();
            read_files(&self.site.members[*evil], &mut files);
            let is_small = |path: &Path| {
                !path
                    .components()
                    .any(|part| ["packs", "index"].iter().any(|it| part.as_os_str() == *it))
            };
            let names: Vec<_> = files.keys().filter(|path| is_small(path)).cloned().collect();
            for (at, name) in names.iter().enumerate() {
                fs::write(name, &files[&names[(at + 1) % names.len()]]).unwrap();
            }
        }
    }
}
