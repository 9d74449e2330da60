//! Files written and read as the C library does it: through a buffer of 4 KiB, which larger pieces pass
//! by (fwrite(3), fread(3)).

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pinstripe::error::{Error, Result};

use crate::io::{Done, Job};
use crate::run::Live;

/// What glibc takes: st_blksize of the file, which is 4 KiB for nearly all.
const BUFFER_BYTES: usize = 4096;

/// Makes files and writes them from the first byte to the last.
///
/// # Errors
/// As the system says; an interrupt.
pub fn write(job: &Job, paths: &[PathBuf], file_bytes: u64, live: &Live) -> Result<Done> {
    let mut piece = vec![0; job.pattern.block_bytes];
    job.content.fill(&mut piece, job.seed);
    let mut course = Course::begin(job, live);
    let mut files = Vec::new();
    for path in paths {
        let failed = |error| Error::io("cannot write", path, error);
        let file = File::create(path).map_err(failed)?;
        let mut stream = BufWriter::with_capacity(BUFFER_BYTES, file);
        for _ in 0..file_bytes / piece.len() as u64 {
            if course.is_over()? {
                break;
            }
            job.content.mark(&mut piece, course.done.requests, job.seed);
            let began = Instant::now();
            stream.write_all(&piece).map_err(failed)?;
            course.done.writes.record(began.elapsed());
            course.done.written_bytes += course.moved(piece.len());
        }
        let file = stream.into_inner().map_err(|error| failed(error.into_error()))?;
        files.push((path, file));
    }
    let mut done = course.end();
    if job.syncing.at_end {
        let began = Instant::now();
        for (path, file) in files {
            sync(path, &file, &mut done)?;
        }
        done.sync_s = began.elapsed().as_secs_f64();
    }
    Ok(done)
}

fn sync(path: &Path, file: &File, done: &mut Done) -> Result<()> {
    let began = Instant::now();
    file.sync_data()
        .map_err(|error| Error::io("cannot make the written bytes durable", path, error))?;
    done.syncs.record(began.elapsed());
    Ok(())
}

/// Reads files from the first byte to the last.
///
/// # Errors
/// As the system says; an interrupt.
pub fn read(job: &Job, paths: &[PathBuf], file_bytes: u64, live: &Live) -> Result<Done> {
    let mut piece = vec![0; job.pattern.block_bytes];
    let mut course = Course::begin(job, live);
    for path in paths {
        let failed = |error| Error::io("cannot read", path, error);
        let file = File::open(path).map_err(failed)?;
        let mut stream = BufReader::with_capacity(BUFFER_BYTES, file);
        for _ in 0..file_bytes / piece.len() as u64 {
            if course.is_over()? {
                break;
            }
            let began = Instant::now();
            stream.read_exact(&mut piece).map_err(failed)?;
            course.done.reads.record(began.elapsed());
            course.done.read_bytes += course.moved(piece.len());
        }
    }
    Ok(course.end())
}

/// A stream under way.
struct Course<'a> {
    began: Instant,
    time: Option<Duration>,
    live: &'a Live,
    done: Done,
}

impl<'a> Course<'a> {
    fn begin(job: &Job, live: &'a Live) -> Self {
        Course { began: Instant::now(), time: job.time, live, done: Done::default() }
    }

    fn is_over(&self) -> Result<bool> {
        self.live.check()?;
        Ok(self.time.is_some_and(|time| self.began.elapsed() >= time))
    }

    fn moved(&mut self, bytes: usize) -> u64 {
        self.done.requests += 1;
        self.live.moved(bytes as u64);
        bytes as u64
    }

    fn end(self) -> Done {
        Done { seconds: self.began.elapsed().as_secs_f64(), ..self.done }
    }
}
