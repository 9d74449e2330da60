//! Writes and reads files as the C library does: through a buffer of 4 KiB, which larger pieces
//! bypass (fwrite(3), fread(3)).

use std::fs::{File, OpenOptions};
use std::io::{BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pinstripe_base::error::{Error, Result};

use crate::io::{Done, Job};
use crate::run::Live;

/// The buffer size of glibc: the file's st_blksize, which is 4 KiB on nearly all file systems.
const BUFFER_BYTES: usize = 4096;

/// The target of a stream: a file, or a part of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// The file or device.
    pub path: PathBuf,
    /// The start.
    pub start: u64,
}

impl Span {
    /// All of a file, or a device from its first byte.
    pub fn whole(path: PathBuf) -> Self {
        Span { path, start: 0 }
    }
}

/// Creates files and writes `span_bytes` of each sequentially, one piece of each file in turn.
///
/// # Errors
/// Errors as the system reports them; an interrupt.
pub fn write(job: &Job, spans: &[Span], span_bytes: u64, live: &Live) -> Result<Done> {
    let mut piece = vec![0; job.pattern.block_bytes];
    job.content.fill(&mut piece, job.seed);
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    let mut streams = Vec::new();
    for span in spans {
        streams.push((span, BufWriter::with_capacity(BUFFER_BYTES, open(span, &options)?)));
    }
    let mut course = Course::begin(job, live);
    let failed = |span: &Span, error| Error::io("cannot write", &span.path, error);
    'over: for _ in 0..span_bytes / piece.len() as u64 {
        for (span, stream) in &mut streams {
            if course.is_over()? {
                break 'over;
            }
            job.content.mark(&mut piece, course.done.requests, job.seed);
            let began = Instant::now();
            stream.write_all(&piece).map_err(|error| failed(span, error))?;
            course.done.writes.record(began.elapsed());
            course.done.written_bytes += course.moved(piece.len());
        }
    }
    let mut files = Vec::new();
    for (span, stream) in streams {
        let file = stream.into_inner().map_err(|error| failed(span, error.into_error()))?;
        files.push((span, file));
    }
    let mut done = course.end();
    if job.syncing.at_end {
        let began = Instant::now();
        for (span, file) in files {
            sync(&span.path, &file, &mut done)?;
        }
        done.sync_s = began.elapsed().as_secs_f64();
    }
    Ok(done)
}

fn open(span: &Span, options: &OpenOptions) -> Result<File> {
    let failed = |error| Error::io("cannot open", &span.path, error);
    let mut file = options.open(&span.path).map_err(failed)?;
    file.seek(SeekFrom::Start(span.start)).map_err(failed)?;
    Ok(file)
}

fn sync(path: &Path, file: &File, done: &mut Done) -> Result<()> {
    let began = Instant::now();
    file.sync_data()
        .map_err(|error| Error::io("cannot make the written bytes durable", path, error))?;
    done.syncs.record(began.elapsed());
    Ok(())
}

/// Reads `span_bytes` of each file sequentially, one piece of each file in turn.
///
/// # Errors
/// Errors as the system reports them; an interrupt.
pub fn read(job: &Job, spans: &[Span], span_bytes: u64, live: &Live) -> Result<Done> {
    let mut piece = vec![0; job.pattern.block_bytes];
    let mut streams = Vec::new();
    for span in spans {
        let file = open(span, OpenOptions::new().read(true))?;
        streams.push((span, BufReader::with_capacity(BUFFER_BYTES, file)));
    }
    let mut course = Course::begin(job, live);
    'over: for _ in 0..span_bytes / piece.len() as u64 {
        for (span, stream) in &mut streams {
            if course.is_over()? {
                break 'over;
            }
            let began = Instant::now();
            let read = stream.read_exact(&mut piece);
            read.map_err(|error| Error::io("cannot read", &span.path, error))?;
            course.done.reads.record(began.elapsed());
            course.done.read_bytes += course.moved(piece.len());
        }
    }
    Ok(course.end())
}

/// A stream in progress.
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
