//! A source shown as a file: what goes wrong in the source reaches the reader and the server.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use pinstripe::error::{Error, Kind, Result};
use pinstripe::export::{Export, Options};
use pinstripe::source::bulk::{Bulk, Extent, Identity};

use crate::support::skipped;

const BYTES: u64 = 8 << 20;

/// Sevens, and an error behind the half; or a source that does not know its length.
struct Broken {
    length: Option<u64>,
}

impl Bulk for Broken {
    fn length(&self) -> Option<u64> {
        self.length
    }

    fn place(&self) -> &Path {
        Path::new("broken")
    }

    fn identity(&self) -> Option<Identity> {
        None
    }

    fn extent(&self, _: u64) -> Result<Extent> {
        Ok(Extent { end: BYTES, is_hole: false })
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        if offset + buffer.len() as u64 > BYTES / 2 {
            return Err(Error::new(Kind::Changed, "broke off").at(self.place()));
        }
        buffer.fill(7);
        Ok(buffer.len())
    }

    fn expect(&self, _: Range<u64>) {}
}

fn options() -> Options {
    Options { name: "sevens".to_owned(), threads: 2, is_direct: true }
}

#[test]
fn an_error_of_the_source_reaches_its_reader_and_whoever_serves_it() {
    let test = "an_error_of_the_source_reaches_its_reader_and_whoever_serves_it";
    let here = tempfile::tempdir().unwrap();
    let source = Box::new(Broken { length: Some(BYTES) });
    let export = match Export::mount(source, here.path(), &options()) {
        Ok(export) => export,
        Err(error) => return skipped(test, &format!("mounting: {error}")),
    };
    let file = File::open(export.file()).unwrap();
    let stop = &AtomicBool::new(false);
    let told = std::thread::scope(|scope| {
        let served = scope.spawn(|| export.serve(stop));
        let mut read = [0; 4096];
        let before = file.read_at(&mut read, 4096);
        let behind = file.read_at(&mut [0; 4096], BYTES - 4096);
        drop(file);
        stop.store(true, Ordering::Relaxed);
        assert_eq!(before.unwrap(), 4096);
        assert_eq!(read, [7; 4096]);
        assert_eq!(behind.unwrap_err().raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()));
        served.join().unwrap()
    });
    let error = told.unwrap_err();
    assert_eq!((error.kind(), error.what()), (Kind::Changed, "broke off"));
    assert_eq!(std::fs::read_dir(here.path()).unwrap().count(), 0);
}

#[test]
fn a_source_of_unknown_length_cannot_be_shown() {
    let here = tempfile::tempdir().unwrap();
    let source = Box::new(Broken { length: None });
    let error = Export::mount(source, here.path(), &options()).map(drop).unwrap_err();
    assert_eq!(error.kind(), Kind::Unsupported);
}
