//! FLAC on a disk that fills up: what could not be encoded into a file goes on elsewhere, or is named.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicU64;

use pinstripe_base::monitor::Counter;
use pinstripe_io::device::{Caps, Device, SharedDevice};

use super::tests::{Folders, inputs, lacks_flac, plan, verified};
use super::*;
use crate::take::{DiskFolder, JOURNAL, RecordedFile, TakeFile};

/// A file that grows as long as its disk has room: the write that fills it is done in part, and fails.
struct GrowingFile {
    device: SharedDevice,
    room: Arc<AtomicU64>,
}

impl Device for GrowingFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let growth = (offset + bytes.len() as u64).saturating_sub(self.device.len()?);
        let taken = self.room.fetch_update(Ordering::AcqRel, Ordering::Acquire, |room| {
            Some(room.saturating_sub(growth))
        });
        let missing = growth.saturating_sub(taken.unwrap_or_default()) as usize;
        self.device.write_at(offset, &bytes[..bytes.len().saturating_sub(missing)])?;
        match missing {
            0 => Ok(()),
            _ => Err(Error::new(Kind::NoSpace, "the disk is full")),
        }
    }

    fn discard(&self, range: Range<u64>) -> Result<()> {
        self.device.discard(range)
    }

    fn caps(&self) -> Caps {
        self.device.caps()
    }

    fn place(&self) -> &Path {
        self.device.place()
    }

    pinstripe_io::forward_device!(device: read_at long_by_parts len set_len sync);
}

/// A directory on a disk with room for so many bytes of streams.
struct SmallDisk {
    folder: DiskFolder,
    room: Arc<AtomicU64>,
}

impl SmallDisk {
    fn create(parent: &Path, room: u64) -> Arc<dyn TakeFolder> {
        std::fs::create_dir(parent).unwrap();
        let folder = DiskFolder::create(parent, "t", None).unwrap();
        Arc::new(SmallDisk { folder, room: Arc::new(AtomicU64::new(room)) })
    }
}

impl TakeFolder for SmallDisk {
    fn create(&self, name: &str) -> Result<TakeFile> {
        let file = self.folder.create(name)?;
        if name == JOURNAL {
            return Ok(file);
        }
        let (device, room) = (file.shared(), Arc::clone(&self.room));
        Ok(TakeFile::of_device(Arc::new(GrowingFile { device, room })))
    }

    fn open(&self, name: &str, is_written: bool) -> Result<TakeFile> {
        self.folder.open(name, is_written)
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> Result<()> {
        self.folder.replace(name, bytes)
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

const STREAMS: u64 = 3;
const FRAMES: u64 = 300_000;
/// Noise is stored as it is: some 900 kB for each stream.
const ROOM: u64 = 1_500_000;

struct Recorded {
    dir: tempfile::TempDir,
    outcome: TakeOutcome,
    monitor: Arc<Monitor>,
    folders: Folders,
}

/// A take in directories with so much room.
fn recorded(plan: &TakePlan, rooms: &[u64]) -> Recorded {
    let dir = tempfile::tempdir().unwrap();
    let folder = |(number, room)| SmallDisk::create(&dir.path().join(format!("{number}")), room);
    let folders: Folders = (0..).zip(rooms.iter().copied()).map(folder).collect();
    let (stop, monitor) = (Stop::new().unwrap(), Arc::new(Monitor::default()));
    let made = || Ok(folders.clone());
    let text = format!("test:streams={STREAMS},frames={FRAMES},pace=free,format=s24");
    let outcome = record(plan, inputs(&[&text]), &made, (&stop, &monitor), &mut |_, _| {});
    Recorded { outcome: outcome.unwrap(), dir, monitor, folders }
}

/// The same, with a file that was cut off and has something: where the disk is full before the first
/// commit, as on a busy machine, there is nothing whole to look at.
fn recorded_and_cut(plan: &TakePlan, rooms: &[u64]) -> Recorded {
    for _ in 0..20 {
        let recorded = recorded(plan, rooms);
        recorded.check_heads();
        let mut pieces = recorded.outcome.manifest.pieces.iter();
        if pieces.any(|it| it.cut.is_some() && it.frames > 0) {
            return recorded;
        }
    }
    panic!("no disk was full after a commit");
}

impl Recorded {
    /// Every file tells as many frames as the manifest.
    fn check_heads(&self) -> Vec<PathBuf> {
        let pieces = &self.outcome.manifest.pieces;
        let checked = |piece: &RecordedFile| {
            let path = self.dir.path().join(format!("{}/t/{}", piece.directory, piece.file));
            let bytes = std::fs::read(&path).unwrap();
            let packed = u64::from_be_bytes(bytes[18..26].try_into().unwrap());
            assert_eq!(packed & ((1 << 36) - 1), piece.frames, "{}", piece.file);
            path
        };
        pieces.iter().map(checked).collect()
    }

    fn right_frames(&self) -> u64 {
        let (verified, losses) = verified(&self.folders);
        assert_eq!((losses, verified.wrong_frames, verified.damaged_bytes), (0, 0, 0));
        verified.right_frames
    }
}

fn flac() -> TakePlan {
    TakePlan { kind: FileKind::Flac, ..plan("t") }
}

#[test]
fn on_a_full_disk_files_of_flac_end_whole_with_what_the_manifest_says() {
    if lacks_flac("on_a_full_disk_files_of_flac_end_whole") {
        return;
    }
    let recorded = recorded_and_cut(&flac(), &[ROOM]);
    assert!(recorded.monitor.get(Counter::Losses) >= 1);
    let files = recorded.check_heads();
    match Command::new("flac").arg("-ts").args(files).output() {
        Ok(told) => assert!(told.status.success(), "{told:?}"),
        Err(_) => {
            pinstripe_testing::not_installed("on_a_full_disk_files_of_flac_end_whole", "flac")
        }
    }
    let frames: u64 = recorded.outcome.manifest.pieces.iter().map(|it| it.frames).sum();
    assert_eq!(recorded.right_frames(), frames);
}

#[test]
fn streams_of_flac_go_on_in_another_directory_and_no_frame_is_missing() {
    if lacks_flac("streams_of_flac_go_on_in_another_directory") {
        return;
    }
    // None is full near the end of a stream: of a file that has ended the last blocks would be lost.
    for rooms in [&[ROOM / 2, 1 << 30][..], &[ROOM / 2, ROOM / 8, 1 << 30]] {
        let recorded = recorded_and_cut(&flac(), rooms);
        let monitor = &recorded.monitor;
        let told = (monitor.get(Counter::Losses), monitor.get(Counter::DegradedMembers));
        assert_eq!(told, (0, rooms.len() as u64 - 1));
        recorded.check_heads();
        assert!(recorded.right_frames() >= STREAMS * FRAMES);
        for stream in 0..STREAMS as u32 {
            let pieces = recorded.outcome.manifest.pieces.iter();
            let of_stream: Vec<_> = pieces.filter(|it| it.stream == stream).collect();
            let reached = of_stream.iter().fold(0, |at, it| {
                assert!(it.start_frame <= at, "{of_stream:?}");
                at.max(it.start_frame + it.frames)
            });
            assert_eq!(reached, FRAMES, "{of_stream:?}");
        }
    }
}

#[test]
fn the_copy_of_flac_on_a_full_disk_ends_whole_and_the_other_has_all() {
    if lacks_flac("the_copy_of_flac_on_a_full_disk_ends_whole") {
        return;
    }
    let plan = TakePlan { is_mirrored: true, ..flac() };
    let recorded = recorded_and_cut(&plan, &[ROOM, 1 << 30]);
    assert_eq!(recorded.monitor.get(Counter::Losses), 0);
    recorded.check_heads();
    let frames: u64 = recorded.outcome.manifest.pieces.iter().map(|it| it.frames).sum();
    assert!(frames > STREAMS * FRAMES);
    assert_eq!(recorded.right_frames(), frames);
}

/// The last blocks come when a stream has ended already, and no other directory is asked for them.
#[test]
fn what_an_ended_file_of_flac_could_not_take_is_named() {
    if lacks_flac("what_an_ended_file_of_flac_could_not_take_is_named") {
        return;
    }
    // All but the last blocks of the last stream, whichever that is.
    let whole = recorded(&flac(), &[1 << 30]);
    let length = |it: &RecordedFile| {
        std::fs::metadata(whole.dir.path().join("0/t").join(&it.file)).unwrap().len()
    };
    let all: u64 = whole.outcome.manifest.pieces.iter().map(length).sum();
    let recorded = recorded(&flac(), &[all - 100]);
    assert!(recorded.monitor.get(Counter::Losses) >= 1);
    let frames: u64 = recorded.outcome.manifest.pieces.iter().map(|it| it.frames).sum();
    assert!(frames < STREAMS * FRAMES);
    assert_eq!(recorded.right_frames(), frames);
}
