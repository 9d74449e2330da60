//! `pinstripe play`: plays a take to another program or without output.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::units::format_count;
use pinstripe_record::{PlayOutcome, PlayPlan, PlaySink, play};
use serde_json::{Value, json};

use crate::args::{Size, Time, duration, refuse_option, size};
use crate::event::Event;
use crate::exit;
use crate::message::counted;
use crate::run::{Ending, Run};
use crate::signals;

/// Play all streams of a take (a recording of 'pinstripe record') together
///
/// The streams are read through ring buffers and interleaved frame by frame. With --to null, the
/// streams are read at their own rate; with JACK and ALSA, they are read at the rate of the JACK
/// server or the sound card. Data that the disk does not deliver in time is replaced by silence and
/// counted (exit code 3). With --to pcm:PLACE, a file or pipe receives the streams as fast as it
/// accepts them.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe play /mnt/a/take1 --to null                  # is the disk fast enough?
  pinstripe play /mnt/a/take1 --to pcm:- --stream 1 --stream 2 |
    aplay -f S24_3LE -r 96000 -c 2
  pinstripe play /mnt/a/take1 --to jack:                 # ports of the sound card
  pinstripe play /mnt/a/take1 --to 'jack:mixer:in_*'
  pinstripe play /mnt/a/take1 --from 90s --duration 10s --to pcm:excerpt.raw")]
pub struct PlayArgs {
    /// Directory of the take; for a take in several directories, any one of them
    #[arg(value_name = "TAKE", value_hint = clap::ValueHint::DirPath)]
    take: PathBuf,

    /// Where to play the streams: null (nowhere), pcm:PLACE (a file, a FIFO, or - for standard
    /// output), jack:PATTERN (JACK ports that match PATTERN) or alsa:DEVICE
    #[arg(long, value_name = "SINK", default_value = "null")]
    to: String,

    /// Position in the take at which to start, for example 90s
    #[arg(long, value_name = "TIME", value_parser = duration)]
    from: Option<Time>,

    /// Stop playing after this time
    #[arg(long, value_name = "TIME", value_parser = duration)]
    duration: Option<Time>,

    /// Play only the stream with this number (the first stream is 1); may be given more than once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    stream: Vec<u32>,

    /// Size of the ring buffer of each stream, a power of two
    #[arg(long, value_name = "SIZE", value_parser = size, default_value_t = Size(128 << 10))]
    ring: Size,
}

impl PlayArgs {
    /// Plays.
    ///
    /// # Errors
    /// Fails with the errors of [`play`].
    pub fn run(&self, run: &Run) -> Result<Ending> {
        refuse_option(!run.common.store.is_empty(), "--store", "give the directory of a take")?;
        let is_content = self.to == "pcm:-";
        refuse_option(
            is_content && run.common.json,
            "--json",
            "standard output is used for the samples",
        )?;
        let stop = signals::catch()?;
        let plan = PlayPlan {
            from: self.from.map_or(Duration::ZERO, |it| it.0),
            most: self.duration.map(|it| it.0),
            ring_bytes: self.ring.0,
            streams: self.stream.iter().map(|it| *it as usize - 1).collect(),
        };
        let played = play(&self.take, &plan, sink_of(&self.to)?, (stop, &run.monitor));
        let outcome = match played {
            // As of any verb whose content is not wanted any more: nothing is said.
            Err(error) if is_content && is_unread(&error) => {
                return Ok(Ending { code: exit::BROKEN_PIPE, facts: Event::default() });
            }
            played => played?,
        };
        report_underruns(run, &self.take, &outcome);
        if !is_content {
            run.screen.say(&format!(
                "played {} frames of {}; the longest read took {:.1} ms",
                format_count(outcome.frames),
                counted(outcome.streams as u64, "stream"),
                outcome.longest_read.as_secs_f64() * 1e3,
            ));
        }
        Ok(Ending::done(Event::default().with_fields(&facts(&outcome))))
    }
}

/// Whether an error means that the reader of the output closed it.
fn is_unread(error: &Error) -> bool {
    error.cause().is_some_and(|it| it.kind() == io::ErrorKind::BrokenPipe)
}

/// Reports frames that were not delivered in time as a loss.
pub(super) fn report_underruns(run: &Run, take: &Path, outcome: &PlayOutcome) {
    if outcome.missing_frames > 0 {
        let what = format!(
            "{} frames were not read in time; this happened in {}",
            format_count(outcome.missing_frames),
            counted(outcome.underruns, "underrun"),
        );
        let error = Error::new(Kind::Io, what).advice("use larger rings (--ring)");
        run.monitor.loss(take, error);
    }
}

/// The results of playing, for the summary.
pub(super) fn facts(outcome: &PlayOutcome) -> Value {
    json!({
        "streams": outcome.streams,
        "frames": outcome.frames,
        "underruns": outcome.underruns,
        "missing_frames": outcome.missing_frames,
        "xruns": outcome.xruns,
        "longest_read_ms": outcome.longest_read.as_secs_f64() * 1e3,
    })
}

/// The sink that a user named.
///
/// # Errors
/// Fails with [`Kind::Usage`] for an unknown sink; with the errors of the system for standard
/// output.
pub(super) fn sink_of(to: &str) -> Result<PlaySink> {
    let wrong = || {
        Error::new(Kind::Usage, format!("'{to}' is not a playback target"))
            .expected("a target: null, pcm:PLACE, pcm:-, alsa:DEVICE or jack:[CLIENT:]PATTERN", to)
    };
    let (kind, place) = to.split_once(':').unwrap_or((to, ""));
    match (kind, place) {
        ("null", "") => Ok(PlaySink::Null),
        ("alsa", device) if !device.is_empty() => Ok(PlaySink::Alsa(device.to_owned())),
        ("jack", pattern) if to.contains(':') => Ok(PlaySink::Jack(pattern.to_owned())),
        ("pcm", "-") => {
            let stdout = std::io::stdout().as_fd().try_clone_to_owned();
            let stdout =
                stdout.map_err(|error| Error::io("cannot be written", "standard output", error))?;
            Ok(PlaySink::Pipe(File::from(stdout)))
        }
        ("pcm", path) if !path.is_empty() => Ok(PlaySink::Path(path.into())),
        _ => Err(wrong()),
    }
}
