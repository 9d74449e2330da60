//! A disk that is full from the beginning of a take to its end, but for what was kept.

use std::path::Path;
use std::sync::Mutex;

use pinstripe_base::monitor::Counter;

use super::tests::{inputs, plan, verified};
use super::*;
use crate::take::{DiskFolder, TakeFile, TakeState};

/// A directory in which nothing but what room was kept for is put in place of another file.
struct FullFolder {
    folder: DiskFolder,
    /// The length that room was kept for; none before the first was asked for.
    kept: Mutex<Option<u64>>,
    /// Room is refused above this length.
    most: u64,
}

impl TakeFolder for FullFolder {
    fn create(&self, name: &str) -> Result<TakeFile> {
        self.folder.create(name)
    }

    fn open(&self, name: &str, is_written: bool) -> Result<TakeFile> {
        self.folder.open(name, is_written)
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let is_first = Manifest::load(&self.folder).is_err();
        let kept = self.kept.lock().unwrap().take();
        if !is_first && kept.is_none_or(|kept| kept < bytes.len() as u64) {
            let what = format!("{} bytes, and room for {kept:?}", bytes.len());
            return Err(Error::new(Kind::NoSpace, what));
        }
        self.folder.replace(name, bytes)
    }

    fn keep_room(&self, name: &str, bytes: u64) -> Result<()> {
        if bytes > self.most {
            return Err(Error::new(Kind::NoSpace, "the disk is full"));
        }
        let mut kept = self.kept.lock().unwrap();
        *kept = Some(kept.unwrap_or(0).max(bytes));
        self.folder.keep_room(name, bytes)
    }

    fn read(&self, name: &str, most: u64) -> Result<Vec<u8>> {
        self.folder.read(name, most)
    }

    fn sync_names(&self) -> Result<()> {
        self.folder.sync_names()
    }

    fn free_bytes(&self) -> Option<u64> {
        None
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn refusal(&self) -> Option<String> {
        None
    }
}

/// A take of so many frames of two streams in many files, with marks of the longest kind.
fn take(frames: u64, most: u64) -> (tempfile::TempDir, Result<TakeOutcome>, Arc<Monitor>) {
    let dir = tempfile::tempdir().unwrap();
    let folder = DiskFolder::create(dir.path(), "t", None).unwrap();
    let folder: Arc<dyn TakeFolder> = Arc::new(FullFolder { folder, kept: Mutex::default(), most });
    let engine = EngineSettings { segment_bytes: Some(9_000), ..plan("t").engine };
    let (stop, monitor) = (Stop::new().unwrap(), Arc::new(Monitor::default()));
    let folders = || Ok(vec![Arc::clone(&folder)]);
    let mut mark = |take: &Arc<RunningTake>, _: &TakeStatus| {
        (0..20).for_each(|_| take.mark(&"\u{1}".repeat(300)).unwrap());
    };
    let text = format!("test:streams=2,frames={frames},pace=free,format=s24");
    let inputs = inputs(&[&text]);
    let plan = TakePlan { engine, ..plan("t") };
    let told = record(&plan, inputs, &folders, (&stop, &monitor), &mut mark);
    (dir, told, monitor)
}

#[test]
fn room_is_kept_for_the_manifest_of_the_end() {
    let (dir, told, monitor) = take(600_000, u64::MAX);
    let told = told.unwrap();
    assert_eq!(monitor.get(Counter::Losses), 0);
    assert!(told.manifest.pieces.len() > 300 && !told.manifest.marks.is_empty());
    let saved = Manifest::load(&DiskFolder::open(&dir.path().join("t")).unwrap()).unwrap();
    assert_eq!(
        (saved.state, saved.pieces.len()),
        (TakeState::Complete, told.manifest.pieces.len())
    );
}

#[test]
fn with_too_little_room_for_its_manifest_a_take_ends_while_that_can_still_be_written() {
    // Enough to begin with, and for some hundred files.
    let (dir, told, monitor) = take(50_000_000, 200 << 10);
    let told = told.unwrap();
    assert!(monitor.get(Counter::Losses) >= 1, "its end before the streams' is a loss");
    let frames: u64 = told.manifest.pieces.iter().map(|it| it.frames).sum();
    assert!(frames > 0 && frames < 100_000_000, "{frames}");
    let folder: Arc<dyn TakeFolder> = Arc::new(DiskFolder::open(&dir.path().join("t")).unwrap());
    assert_eq!(Manifest::load(&*folder).unwrap().state, TakeState::Complete);
    let (verified, losses) = verified(&vec![folder]);
    assert_eq!((losses, verified.right_frames, verified.wrong_frames), (0, frames, 0));
    // Not even the beginning.
    let (_dir, told, _) = take(1000, 10 << 10);
    assert_eq!(told.unwrap_err().kind(), Kind::NoSpace);
}
