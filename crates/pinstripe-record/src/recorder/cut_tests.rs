//! Power cuts and faults in mid-take: nothing that was vouched for is lost.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;

use pinstripe_base::monitor::Counter;
use pinstripe_io::device::{Device, MemoryDevice};
use pinstripe_io::fault::{CutDevice, Power};

use super::tests::{Folders, inputs, lacks_flac, on_disk, plan, verified};
use super::*;
use crate::recover::recover_in;
use crate::take::{DiskFolder, TakeFile};

/// A directory in memory, whose power can be cut.
pub(crate) struct CutFolder {
    power: Arc<Power>,
    files: Mutex<BTreeMap<String, Arc<CutDevice<MemoryDevice>>>>,
    small: Mutex<BTreeMap<String, Vec<u8>>>,
}

impl CutFolder {
    pub fn new(power: Arc<Power>) -> Self {
        CutFolder { power, files: Mutex::default(), small: Mutex::default() }
    }

    /// What a disk could have after the cut, in a directory that works.
    pub(crate) fn after_cut(&self, seed: u64) -> CutFolder {
        let after = CutFolder::new(Arc::new(Power::new(u64::MAX)));
        for (number, (name, file)) in (seed..).zip(self.files.lock().unwrap().iter()) {
            file.after_power_cut(number).unwrap();
            let memory = MemoryDevice::new(name.as_str());
            memory.write_at(0, &file.inner().to_vec()).unwrap();
            let file = Arc::new(CutDevice::new(memory, Arc::clone(&after.power)));
            after.files.lock().unwrap().insert(name.clone(), file);
        }
        *after.small.lock().unwrap() = self.small.lock().unwrap().clone();
        after
    }
}

impl TakeFolder for CutFolder {
    fn create(&self, name: &str) -> Result<TakeFile> {
        let memory = MemoryDevice::new(name);
        let file = Arc::new(CutDevice::new(memory, Arc::clone(&self.power)));
        self.files.lock().unwrap().insert(name.to_owned(), Arc::clone(&file));
        Ok(TakeFile::of_device(file))
    }

    fn open(&self, name: &str, _: bool) -> Result<TakeFile> {
        let files = self.files.lock().unwrap();
        let file = files.get(name).ok_or_else(|| Error::new(Kind::NotFound, "is not there"))?;
        Ok(TakeFile::of_device(Arc::clone(file) as _))
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> Result<()> {
        if self.power.is_off() {
            return Err(Error::new(Kind::Io, "the power is off"));
        }
        self.small.lock().unwrap().insert(name.to_owned(), bytes.to_vec());
        Ok(())
    }

    fn read(&self, name: &str, _: u64) -> Result<Vec<u8>> {
        let small = self.small.lock().unwrap();
        small.get(name).cloned().ok_or_else(|| Error::new(Kind::NotFound, "is not there"))
    }

    fn sync_names(&self) -> Result<()> {
        if self.power.is_off() { Err(Error::new(Kind::Io, "the power is off")) } else { Ok(()) }
    }

    fn free_bytes(&self) -> Option<u64> {
        None
    }

    fn path(&self) -> &Path {
        Path::new("memory")
    }

    fn refusal(&self) -> Option<String> {
        None
    }
}

#[test]
fn after_a_power_cut_all_that_was_vouched_for_is_there_and_right() {
    after_a_power_cut(FileKind::Wav);
}

#[test]
fn after_a_power_cut_flac_has_all_that_was_vouched_for() {
    if !lacks_flac("after_a_power_cut_flac_has_all_that_was_vouched_for") {
        after_a_power_cut(FileKind::Flac);
    }
}

fn after_a_power_cut(kind: FileKind) {
    let (mut kept, mut vouched) = (0, 0);
    for seed in pinstripe_testing::chosen_seeds("PINSTRIPE_RECORD_SEEDS", 0..40) {
        let power = Arc::new(Power::new(30 + 13 * seed));
        let folder = Arc::new(CutFolder::new(power));
        let folders: Folders = vec![Arc::clone(&folder) as _];
        let (stop, monitor) = (Stop::new().unwrap(), Arc::new(Monitor::default()));
        let made = || Ok(folders.clone());
        let plan = TakePlan {
            engine: EngineSettings { commit_every: Duration::from_millis(2), ..plan("t").engine },
            kind,
            ..plan("t")
        };
        let text = "test:streams=3,frames=100000,pace=free,format=s16";
        let told = record(&plan, inputs(&[text]), &made, (&stop, &monitor), &mut |_, _| {});
        let after: Folders = vec![Arc::new(folder.after_cut(100 * seed))];
        let Ok(manifest) = Manifest::load(&*after[0]) else { continue };
        check_headers(&*after[0], &manifest);
        let monitor = Monitor::default();
        let Ok(outcome) = recover_in(&after, manifest, &monitor) else { continue };
        assert_eq!(monitor.get(Counter::Losses), 0, "seed {seed}");
        let (verified, losses) = verified(&after);
        assert_eq!((losses, verified.wrong_frames), (0, 0), "seed {seed}");
        // What the durable lag had counted as durable when the power went is all there.
        for shown in told.iter().flat_map(|it| &it.manifest.pieces) {
            let kept = outcome.manifest.pieces.iter().find(|it| it.piece == shown.piece);
            let kept = kept.map_or(0, |it| it.frames);
            assert!(kept >= shown.frames, "seed {seed}: {kept} of {}", shown.frames);
            vouched += shown.frames;
        }
        let frames: u64 = outcome.manifest.pieces.iter().map(|it| it.frames).sum();
        assert!(verified.right_frames >= frames && frames + 3 >= verified.right_frames);
        kept += frames;
        check_headers(&*after[0], &outcome.manifest);
    }
    assert!(kept > 0 && vouched > 0, "some of these came late enough to keep something");
}

/// A header never promises more than the journal.
fn check_headers(folder: &dyn TakeFolder, manifest: &Manifest) {
    let Ok(journal) = folder.open(crate::take::JOURNAL, false) else { return };
    let Ok(content) = crate::recover::read_journal(&journal, manifest) else { return };
    for found in content.pieces.values() {
        let Ok(file) = folder.open(&found.piece.file, false) else { continue };
        let mut head = [0; 4096];
        if file.device().read_at(0, &mut head).is_err() {
            continue;
        }
        if &head[..4] == b"fLaC" {
            let packed = u64::from_be_bytes(head[18..26].try_into().unwrap());
            let promised = (packed & ((1 << 36) - 1)) * 2;
            assert!(promised <= found.bytes, "{}: {promised}", found.piece.file);
        }
        if &head[..4] != b"RIFF" {
            continue;
        }
        let promised = u32::from_le_bytes(head[4092..].try_into().unwrap());
        assert!(u64::from(promised) <= found.bytes, "{}: {promised}", found.piece.file);
    }
}

#[test]
fn a_fault_at_any_call_leaves_a_take_that_verifies() {
    a_fault_at_any_call(FileKind::Wav);
}

#[test]
fn a_fault_at_any_call_leaves_flac_that_verifies() {
    if !lacks_flac("a_fault_at_any_call_leaves_flac_that_verifies") {
        a_fault_at_any_call(FileKind::Flac);
    }
}

fn a_fault_at_any_call(kind: FileKind) {
    for after in [0, 1, 3, 10, 40] {
        for effect in ["op=write,error=EIO", "op=sync,error=EIO", "op=set_len,error=EIO"] {
            let dir = tempfile::tempdir().unwrap();
            let text = format!("{effect},after={after}");
            let folders = on_disk(&[dir.path()], "t", Some(&text));
            let (stop, monitor) = (Stop::new().unwrap(), Arc::new(Monitor::default()));
            let made = || Ok(folders.clone());
            let input = inputs(&["test:streams=3,frames=90000,pace=free,format=s24"]);
            let plan = TakePlan { kind, ..plan("t") };
            let begun = record(&plan, input, &made, (&stop, &monitor), &mut |_, _| {});
            if begun.is_err() {
                continue;
            }
            drop(begun);
            let path = dir.path().join("t");
            let sound: Folders = vec![Arc::new(DiskFolder::open(&path).unwrap())];
            drop(folders);
            let (verified, losses) = verified(&sound);
            assert_eq!((losses, verified.wrong_frames), (0, 0), "{text}");
        }
    }
}
