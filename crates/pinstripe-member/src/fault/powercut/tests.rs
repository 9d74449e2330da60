use std::collections::BTreeSet;

use tempfile::TempDir;

use super::*;
use crate::{DirectoryMember, ExtentKind, ExtentName, Member, Replace};
use pinstripe_base::error::{Kind, Result};

fn pack(number: u8) -> ExtentName {
    ExtentName::In(ExtentKind::Packs, [number; 16])
}

fn content(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at as u8).wrapping_mul(31).wrapping_add(seed) | 1).collect()
}

/// The values that a reader may find under a name: any of these, `None` for nothing. At first
/// nothing.
type Allowed = Vec<Option<Vec<u8>>>;

/// A short life of a member, with the promises after each call.
struct Life {
    member: DirectoryMember,
    promised: BTreeMap<ExtentName, Allowed>,
}

impl Life {
    fn allowed(&mut self, name: ExtentName) -> &mut Allowed {
        self.promised.entry(name).or_insert_with(|| vec![None])
    }

    fn write(&mut self, name: ExtentName, replace: Replace, bytes: &[u8]) -> Result<()> {
        // From here on it may be there, whole; once sealed it must be.
        self.allowed(name).push(Some(bytes.to_vec()));
        let mut writer = self.member.create(name, replace)?;
        for part in bytes.chunks(100) {
            writer.append(part)?;
        }
        writer.seal()?;
        *self.allowed(name) = vec![Some(bytes.to_vec())];
        Ok(())
    }

    fn delete(&mut self, name: ExtentName) -> Result<()> {
        self.allowed(name).push(None);
        self.member.delete(name)
    }

    fn sync(&mut self, deleted: &[ExtentName]) -> Result<()> {
        self.member.sync()?;
        for name in deleted {
            *self.allowed(*name) = vec![None];
        }
        Ok(())
    }

    fn live(&mut self) -> Result<()> {
        let snapshot = ExtentName::In(ExtentKind::Snapshots, [1; 16]);
        self.write(pack(1), Replace::Never, &content(1, 350))?;
        let mut dropped = self.member.create(pack(9), Replace::Never)?;
        dropped.append(b"never sealed")?;
        drop(dropped);
        // A second extent in the directory that the first made.
        let mut beside = [1; 16];
        beside[15] = 2;
        self.write(ExtentName::In(ExtentKind::Packs, beside), Replace::Never, &content(2, 200))?;
        self.write(snapshot, Replace::Never, &content(3, 50))?;
        let late = self.member.put(snapshot, b"late").unwrap_err();
        if late.kind() != Kind::Exists {
            return Err(late);
        }
        self.write(pack(1), Replace::Allowed, &content(4, 250))?;
        self.write(pack(2), Replace::Never, &content(5, 0))?;
        self.delete(pack(2))?;
        self.delete(snapshot)?;
        self.sync(&[pack(2), snapshot])?;
        self.write(snapshot, Replace::Never, &content(6, 60))?;
        self.delete(pack(1))
    }

    fn check(&self, reopened: &DirectoryMember, case: &str) {
        let mut listed = BTreeSet::new();
        for kind in ExtentKind::ALL {
            listed.extend(reopened.list(kind).unwrap().iter().map(|it| ExtentName::In(kind, it.0)));
        }
        for (name, allowed) in &self.promised {
            let found = listed.remove(name).then(|| {
                let mut bytes = vec![0; reopened.len(*name).unwrap() as usize];
                reopened.read_at(*name, 0, &mut bytes).unwrap();
                bytes
            });
            assert!(allowed.contains(&found), "{case}: {name} is {found:?}");
        }
        assert!(listed.is_empty(), "{case}: never sealed: {listed:?}");
    }
}

/// Steps that all happen, without waiting for the disk.
fn always_on() -> Arc<PowerCut> {
    Arc::new(PowerCut::new(u64::MAX))
}

fn new_member(dir: &TempDir) -> DirectoryMember {
    DirectoryMember::create_in_with(dir.path(), Some(always_on())).unwrap()
}

/// Lives until step `stop`; says how many steps were made.
fn live_until(stop: u64, seed: u64) -> u64 {
    let dir = tempfile::tempdir().unwrap();
    let power = Arc::new(PowerCut::new(stop));
    let member = new_member(&dir).with_steps(power.clone());
    let mut life = Life { member, promised: BTreeMap::new() };
    let lived = life.live();
    assert_eq!(lived.is_err(), power.is_off());
    power.after_power_cut(seed).unwrap();
    let case = format!("cut at step {stop}, seed {seed}");
    let reopened = DirectoryMember::open(dir.path()).unwrap().with_steps(always_on());
    life.check(&reopened, &case);
    // And it is usable as ever.
    reopened.sweep_tmp().unwrap();
    assert_eq!(fs::read_dir(dir.path().join("tmp")).unwrap().count(), 0, "{case}");
    reopened.put(pack(7), b"after").unwrap();
    assert_eq!(reopened.len(pack(7)).unwrap(), 5, "{case}");
    power.steps_done()
}

#[test]
fn whatever_was_sealed_survives_a_cut_at_every_step() {
    let steps = live_until(u64::MAX, 0);
    assert!(steps > 50, "{steps}");
    for stop in 0..steps {
        for seed in 8 * stop..8 * stop + 8 {
            assert_eq!(live_until(stop, seed), stop);
        }
    }
}

#[test]
fn an_unfinished_init_can_be_repeated() {
    let attempt = |stop, seed| {
        let dir = tempfile::tempdir().unwrap();
        let power = Arc::new(PowerCut::new(stop));
        let made = DirectoryMember::create_in_with(dir.path(), Some(power.clone()));
        assert_eq!(made.is_err(), power.is_off());
        power.after_power_cut(seed).unwrap();
        if made.is_ok() {
            // The directories of the kinds, `tmp`, and the two parts of the reserve.
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), ExtentKind::ALL.len() + 3);
        }
        new_member(&dir).put(ExtentName::Label, b"x").unwrap();
        power.steps_done()
    };
    for stop in 0..attempt(u64::MAX, 0) {
        for seed in 0..8 {
            attempt(stop, seed);
        }
    }
}

/// A hand-made protocol, step by step, on real files.
struct Bench {
    dir: TempDir,
    power: PowerCut,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("room")).unwrap();
        Bench { dir, power: PowerCut::new(u64::MAX) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.path(name);
        self.power.take(&DiskStep::Create(&path), &mut || File::create(&path).map(drop)).unwrap();
        let step = DiskStep::Write { path: &path, offset: 0, len: bytes.len() };
        self.power.take(&step, &mut || fs::write(&path, bytes)).unwrap();
    }

    fn sync_file(&self, name: &str) {
        self.power.take(&DiskStep::SyncFile(&self.path(name)), &mut || unreachable!()).unwrap();
    }

    fn sync_directory(&self, name: &str) {
        self.power
            .take(&DiskStep::SyncDirectory(&self.path(name)), &mut || unreachable!())
            .unwrap();
    }

    fn rename(&self, from: &str, to: &str) {
        let (from, to) = (self.path(from), self.path(to));
        let step = DiskStep::Rename { from: &from, to: &to };
        self.power.take(&step, &mut || fs::rename(&from, &to)).unwrap();
    }

    fn make_directory(&self, name: &str) {
        let path = self.path(name);
        self.power.take(&DiskStep::MakeDirectory(&path), &mut || fs::create_dir(&path)).unwrap();
    }
}

/// Every outcome of a protocol over many seeds: what `name` holds afterwards.
fn outcomes(name: &str, protocol: &dyn Fn(&Bench)) -> BTreeSet<Option<Vec<u8>>> {
    let one = |seed| {
        let bench = Bench::new();
        protocol(&bench);
        bench.power.after_power_cut(seed).unwrap();
        fs::read(bench.path(name)).ok()
    };
    (0..60).map(one).collect()
}

#[test]
fn a_right_protocol_has_one_outcome() {
    let found = outcomes("room/a", &|bench| {
        bench.write("t", b"bytes");
        bench.sync_file("t");
        bench.rename("t", "room/a");
        bench.sync_directory("room");
    });
    assert_eq!(found, BTreeSet::from([Some(b"bytes".to_vec())]));
}

#[test]
fn without_the_sync_of_the_file_bytes_are_lost_or_zero() {
    let found = outcomes("room/a", &|bench| {
        bench.write("t", b"bytes");
        bench.rename("t", "room/a");
        bench.sync_directory("room");
    });
    for expected in [&b""[..], b"by", b"by\0\0\0", b"bytes"] {
        assert!(found.contains(&Some(expected.to_vec())), "{expected:?} in {found:?}");
    }
    assert!(!found.contains(&None), "the name was durable");
}

#[test]
fn without_the_sync_of_the_directory_names_are_lost_or_old() {
    let found = outcomes("room/a", &|bench| {
        fs::write(bench.path("room/a"), b"old").unwrap();
        bench.write("t", b"new");
        bench.sync_file("t");
        bench.rename("t", "room/a");
    });
    assert_eq!(found, BTreeSet::from([Some(b"old".to_vec()), Some(b"new".to_vec())]));
    let found = outcomes("room/a", &|bench| {
        bench.write("t", b"new");
        bench.sync_file("t");
        bench.rename("t", "room/a");
    });
    assert_eq!(found, BTreeSet::from([None, Some(b"new".to_vec())]));
}

#[test]
fn without_the_sync_of_the_parent_a_whole_directory_is_lost() {
    let found = outcomes("room/ab/a", &|bench| {
        bench.make_directory("room/ab");
        bench.write("room/ab/a", b"bytes");
        bench.sync_file("room/ab/a");
        bench.sync_directory("room/ab");
    });
    assert_eq!(found, BTreeSet::from([None, Some(b"bytes".to_vec())]));
}

#[test]
fn a_deletion_that_was_not_synced_may_come_back_with_its_bytes() {
    let found = outcomes("room/a", &|bench| {
        fs::write(bench.path("room/a"), b"old").unwrap();
        let path = bench.path("room/a");
        bench.power.take(&DiskStep::Unlink(&path), &mut || fs::remove_file(&path)).unwrap();
    });
    assert_eq!(found, BTreeSet::from([None, Some(b"old".to_vec())]));
}

#[test]
fn a_step_that_fails_by_itself_changes_no_books() {
    let found = outcomes("room/a", &|bench| {
        fs::write(bench.path("room/a"), b"old").unwrap();
        bench.write("t", b"new");
        let (from, to) = (bench.path("t"), bench.path("room/a"));
        let refuse = &mut || Err(io::ErrorKind::AlreadyExists.into());
        bench.power.take(&DiskStep::Rename { from: &from, to: &to }, refuse).unwrap_err();
    });
    assert_eq!(found, BTreeSet::from([Some(b"old".to_vec())]));
}

#[test]
fn the_seed_alone_decides() {
    let state = |seed| {
        let bench = Bench::new();
        for name in ["room/a", "room/b", "room/c", "room/d"] {
            // Temp names are random, as they are in a member.
            let temp =
                format!("{:x}", pinstripe_base::id::random().map(u32::from_le_bytes).unwrap());
            bench.write(&temp, &[7; 500]);
            bench.rename(&temp, name);
        }
        bench.power.after_power_cut(seed).unwrap();
        ["room/a", "room/b", "room/c", "room/d"].map(|name| fs::read(bench.path(name)).ok())
    };
    for seed in 0..10 {
        assert_eq!(state(seed), state(seed));
    }
    assert_ne!(state(0), state(1));
}

#[test]
fn members_share_the_power() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let power = Arc::new(PowerCut::new(9));
    let members = dirs
        .each_ref()
        .map(|dir| DirectoryMember::create_in(dir.path()).unwrap().with_steps(power.clone()));
    let key = ExtentName::In(ExtentKind::Keys, [1; 16]);
    members[0].put(key, b"12345").unwrap();
    assert_eq!((power.steps_done(), power.is_off()), (5, false));
    let error = members[1].put(key, b"12345").unwrap_err();
    assert_eq!(error.kind(), Kind::Io);
    assert!(error.to_string().contains("the power is off"), "{error}");
    assert!(power.is_off());
    // Reads go on; changes do not.
    assert_eq!(members[0].len(key).unwrap(), 5);
    assert!(members[0].delete(key).is_err());
    assert!(members[0].sync().is_ok(), "there was nothing to sync");
}
