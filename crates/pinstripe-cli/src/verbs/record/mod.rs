//! `pinstripe record`: records many streams at once to plain disks.

mod control;
mod osc;
mod overdub;
mod rings;
mod screen;
mod senders;
mod tell;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pinstripe_base::clock;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::sync::Stop;
use pinstripe_base::units::parse_size;
use pinstripe_record::{
    DiskFolder, EngineSettings, FileKind, InputSpec, LevelReader, LocalTime, OverdubOutcome,
    PlayOutcome, RecordInput, RunningTake, StreamShape, TakeFolder, TakeOutcome, TakePlan,
    TakeStatus, WriteChoice, WritePolicy, check_apart, check_armed, durability_warning,
    is_plain_name, memory_of, overdub, parse_input, record,
};

use crate::args::{Size, Time, duration, one_line, parsed, refuse_option, size};
use crate::run::progress::is_wanted;
use crate::run::{Ending, Run};
use crate::signals;
use crate::time;
use crate::verbs::play;

pub use control::CONTROL;
use control::{ControlSocket, CtlArgs};
use osc::OscRemote;
use overdub::OverdubArgs;
use screen::TakeScreen;
use senders::Sender;

/// The default minimum size of a write, where a ring has room for two.
const CHUNK_BYTES: u64 = 32 << 10;
/// The interval of commits.
const COMMIT_EVERY: Duration = Duration::from_secs(1);

/// Record many streams at the same time to ordinary disks, and report which data is durable
///
/// Each stream passes through a ring buffer in memory into its own file. The recording begins
/// immediately, unless --measure is given, which measures the disk before the recording to choose
/// the size of the ring buffers. Every second, the recorder makes the written data durable, then
/// adds the data to the journal, and then updates the headers of the files. The durable lag is the
/// age of the oldest sample that a power failure would lose. Frames that do not fit into a ring
/// buffer are replaced by silence of the same length, counted and marked; the exit code is then 3.
///
/// After a crash, the files can be played up to the length in their headers; 'pinstripe recover'
/// completes the files.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_long_help = "\
INPUT is one of
  test:[streams=N][,rate=HZ][,format=s24][,channels=N][,frames=N][,pace=clock|free][,ppm=N]
                             streams with content that 'pinstripe verify' can check
  pcm:PLACE,rate=HZ,channels=N,format=FORMAT[,name=NAME]
                             samples from a file, a FIFO, - (standard input), unix:PATH or
                             tcp:HOST:PORT. FORMAT is u8, s16, s24, s32 or f32 (le or be may be
                             appended), s24_32le, or a name of ALSA, for example S24_3LE
  rtp:ADDRESS:PORT,format=L24|L16,rate=HZ,channels=N[,pt=N][,jitter=MS][,name=NAME]
  rtp:FILE.sdp[,jitter=MS]   RTP sound from a network, as AES67 devices, ffmpeg and GStreamer send
                             it; packets may arrive out of order within the jitter (60 ms)
  jack:[CLIENT:]PATTERN[,format=s24|s16|f32]
                             ports of a JACK server or of PipeWire that match PATTERN; * and ? are
                             wildcards
  alsa:DEVICE[,rate=HZ][,channels=N][,format=s24][,name=NAME]
                             a device that 'arecord -L' lists
  raw:PLACE[,rate=BYTES][,name=NAME]
                             any bytes; rate is the expected number of bytes per second

Examples:
  pinstripe record take1 --to /mnt/a --duration 1m \\
    test:streams=64,rate=96000,format=s24
  arecord -f S24_3LE -r 48000 -c 8 -t raw |
    pinstripe record gig --to /mnt/a pcm:-,rate=48000,channels=8,format=s24
  pinstripe record stage --to /mnt/a --ring 128K \\
    rtp:239.69.1.2:5004,format=L24,rate=48000,channels=8
  mkfifo mix && pinstripe record gig --to /mnt/a --to /mnt/b --mirror \\
    --ring 128K pcm:mix,rate=48000,channels=2,format=s16
  pinstripe record gig --to /mnt/a --ring 128K 'jack:system:capture_*'
  pinstripe record voice --to /mnt/a --play /mnt/a/gig 'jack:system:capture_1'
  pinstripe record radio --to /mnt/a --ring 256K --writes direct \\
    raw:tcp:10.0.0.7:1234,rate=4000000
  pinstripe record gig --to /mnt/a --ring 128K --pre-roll 10s \\
    'jack:system:capture_*'             # starts with:
  pinstripe record ctl start /mnt/a/gig
  pinstripe record ctl mark /mnt/a/gig 'second movement'
  pinstripe recover /mnt/a/gig          # after a crash
  pinstripe verify /mnt/a/gig")]
pub struct RecordArgs {
    /// Query or control a running recorder.
    #[command(subcommand)]
    command: Option<RecordCommand>,

    /// Name of the take (the recording): a directory of this name is created in each directory of
    /// --to
    #[arg(value_name = "TAKE", required = true)]
    take: Option<String>,

    /// Input to record, in a form that 'pinstripe record --help' lists; may be given more than once
    #[arg(value_name = "INPUT", required = true, value_parser = input)]
    inputs: Vec<InputSpec>,

    /// Directory to record to; if --to is given several times, the streams are distributed over the
    /// directories
    ///
    /// If a directory fails or becomes full, its streams continue in another directory.
    #[arg(long, value_name = "DIR", required = true, value_hint = clap::ValueHint::DirPath)]
    to: Vec<PathBuf>,

    /// Write every stream to two of the directories
    #[arg(long)]
    mirror: bool,

    /// Size of the ring buffer of each stream: a power of two from 8K to 64M [default: derived from
    /// earlier takes on the same disk, or 4 seconds of data]
    ///
    /// Without --ring, the recorder derives the size from the last takes with at least as many
    /// streams on the same disk, or from the last measurement of the disk. On a disk without
    /// earlier takes, a ring buffer has space for 4 seconds of data, and all ring buffers together
    /// use at most a quarter of --memory.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    ring: Option<Size>,

    /// Measure the disk before the take, for TIME (20 s if no TIME is given), and choose the size
    /// of the ring buffers by the result
    #[arg(long, value_name = "TIME", value_parser = duration, num_args = 0..=1,
          require_equals = true, default_missing_value = "20s", conflicts_with = "ring")]
    measure: Option<Time>,

    /// Minimum size of a write: 4K to 1M, but at most half of a ring buffer [default: 32K, or half
    /// of the ring buffer if that is less]
    ///
    /// Smaller writes leave more of the ring buffer free for stalls of the disk.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    chunk: Option<Size>,

    /// How data is written: buffered (one thread, through the page cache), direct (several threads,
    /// bypassing the page cache) or auto
    ///
    /// With auto, the recorder uses direct only if the page cache has no room for the streams, for
    /// example on a machine with little memory. The recorder reports whether it uses buffered or
    /// direct, and the reason.
    #[arg(long, value_name = "WAY", value_parser = parsed::<WriteChoice>, default_value = "auto")]
    writes: WriteChoice,

    /// Stop the recording after this time, for example 90s or 2h
    #[arg(long, value_name = "TIME", value_parser = duration)]
    duration: Option<Time>,

    /// Open the inputs and show their levels, but start recording only on command
    ///
    /// 'pinstripe record ctl start', or the key r on the screen, starts an armed take. Streams can
    /// be armed (selected for recording) and disarmed before and during the take. A take that is
    /// never started leaves no files.
    #[arg(long)]
    armed: bool,

    /// Also record the input that arrived during this time before the start command, for example
    /// 10s; implies --armed
    ///
    /// Until the start command, the latest input of this duration is kept in a file on disk. The
    /// maximum of --pre-roll is 10 min.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pre_roll: Option<Time>,

    /// Accept remote control by OSC messages (UDP) at this port or address, for example 3819 or
    /// 0.0.0.0:3819
    ///
    /// The recorder understands the OSC messages of Ardour and Reaper, and answers each message
    /// with the status of the take. If only a port is given, the recorder accepts packets only from
    /// this machine; --osc-from allows other senders.
    #[arg(long, value_name = "ADDRESS", value_parser = senders::listening)]
    osc: Option<SocketAddr>,

    /// Also accept OSC messages from this address or network, for example 192.168.1.7 or
    /// 10.0.0.0/24; may be given more than once
    ///
    /// OSC has no password: any host that can send packets from an accepted address can start and
    /// stop takes.
    #[arg(long, value_name = "NETWORK", requires = "osc")]
    osc_from: Vec<Sender>,

    /// Format of the files: wav, bw64, caf, flac or raw
    ///
    /// Before a wav file exceeds 4 GiB, it is converted to RF64 in place; a bw64 file is converted
    /// to BW64, which fewer programs can read. A flac file is encoded during the recording, which
    /// needs libFLAC.
    #[arg(long, value_name = "KIND", value_parser = parsed::<FileKind>, default_value = "wav")]
    format: FileKind,

    /// Write one file for all channels of an input, instead of one file for each channel
    #[arg(long)]
    poly: bool,

    /// Begin a new file after this time or size, for example 30min or 4G
    #[arg(long, value_name = "TIME|SIZE", value_parser = segment)]
    segment: Option<FileBoundary>,

    /// Name of the scene, which is written to the headers of the files
    #[arg(long, value_name = "NAME", default_value = "")]
    scene: String,

    /// Name of the tape, which is written to the headers of the files
    #[arg(long, value_name = "NAME", default_value = "")]
    tape: String,

    #[command(flatten)]
    beside: OverdubArgs,

    /// Show one status line instead of a full screen on the terminal
    #[arg(long)]
    no_screen: bool,

    /// Do not request real-time priority
    #[arg(long)]
    no_realtime: bool,
}

#[derive(clap::Subcommand)]
enum RecordCommand {
    /// Query or control a running recorder
    Ctl(CtlArgs),
}

/// The condition that begins a new file.
#[derive(Debug, Clone, Copy, PartialEq)]
enum FileBoundary {
    Time(Duration),
    Bytes(u64),
}

fn input(text: &str) -> std::result::Result<InputSpec, String> {
    parse_input(text).map_err(one_line)
}

/// Reads a time such as `30min`, `90s` or `2h`, or a size with a capital letter such as `4G`.
fn segment(text: &str) -> std::result::Result<FileBoundary, String> {
    let wrong =
        || "write a time, for example 30min, 90s or 2h, or a size, for example 4G".to_owned();
    if text.ends_with(['K', 'M', 'G', 'T']) {
        let bytes = parse_size(text).map_err(one_line)?;
        return if bytes >= 1 << 16 { Ok(FileBoundary::Bytes(bytes)) } else { Err(wrong()) };
    }
    let time = duration(text).map_err(|_| wrong())?;
    Ok(FileBoundary::Time(time.0))
}

/// The present time: as local time, and in seconds since 1970.
fn started_now() -> (LocalTime, i64) {
    let (now, nanos) = clock::now();
    (LocalTime { seconds: now + i64::from(time::offset_seconds(now)), nanos }, now)
}

/// The ending of a take, with the results of the take that was played during the recording.
fn ending(
    run: &Run,
    take: &str,
    recorded: &TakeOutcome,
    played: Option<&PlayOutcome>,
) -> Result<Ending> {
    let Some(played) = played else { return tell::end(run, recorded) };
    play::report_underruns(run, take.as_ref(), played);
    let mut ending = tell::end(run, recorded)?;
    ending.facts = ending.facts.with("played", play::facts(played));
    Ok(ending)
}

/// Open inputs, and the shapes of all of their streams.
type OpenInputs = (Vec<Box<dyn RecordInput>>, Vec<StreamShape>);

impl RecordArgs {
    /// Records.
    ///
    /// # Errors
    /// Fails with the errors of [`record`].
    pub fn run(&self, run: &Run) -> Result<Ending> {
        refuse_option(
            !run.common.store.is_empty(),
            "--store",
            "give the directories for the take with --to",
        )?;
        if let Some(RecordCommand::Ctl(ctl)) = &self.command {
            return ctl.run(run);
        }
        let mut plan = self.checked_plan()?;
        let play = self.beside.open(&self.inputs, &run.monitor)?;
        let (inputs, shapes) = self.open_inputs()?;
        let copies = 1 + u64::from(self.mirror);
        let rate = copies * shapes.iter().map(StreamShape::byte_rate).sum::<u64>();
        let (writes, why) = self.writes.policy(rate);
        plan.engine.writes = writes;
        self.warn_of_disks(run);
        signals::ignore_doubles();
        let stop = signals::catch()?;
        self.size_rings(run, &mut plan, &shapes, stop)?;
        // Not before the measurement, which takes its time.
        (plan.started, plan.started_seconds) = started_now();
        let faults = run.common.device_faults()?;
        let faults = (!faults.faults.is_empty()).then_some(faults);
        let folders = || {
            let make = |dir: &PathBuf| {
                let made = DiskFolder::create(dir, &plan.take, faults.clone())?;
                Ok(Arc::new(made.with_writes(writes)) as Arc<dyn TakeFolder>)
            };
            self.to.iter().map(make).collect()
        };
        let (mut control, mut has_begun, mut screen, mut remote) = (Vec::new(), false, None, None);
        let is_drawn = is_wanted(&run.common) && !run.screen.is_json();
        let mut line = tell::Line::new(run, is_drawn && self.no_screen);
        let mut watch = |take: &Arc<RunningTake>, status: &TakeStatus| {
            if !std::mem::replace(&mut has_begun, true) {
                control = self.controls(run, take, &plan.take);
                remote = self.remote(run, take);
                let osc = remote.as_ref().map(|it: &OscRemote| it.address);
                tell::begin(run, &plan, status, (&why, osc));
                if run.screen.is_json() {
                    // Levels are taken from the first look on: the first event is to have them.
                    take.levels(LevelReader::Log);
                }
                if is_drawn && !self.no_screen {
                    match TakeScreen::start(run, take) {
                        Ok(started) => screen = Some(started),
                        Err(error) => run.monitor.warning(&self.to[0], error),
                    }
                }
            } else {
                line.show(run, take, status);
            }
        };
        let told = (stop, &run.monitor);
        let outcome = match play {
            None => record(&plan, inputs, &folders, told, &mut watch).map(|it| (it, None)),
            Some(play) => overdub(&plan, inputs, &folders, told, &mut watch, play)
                .map(|OverdubOutcome { recorded, played }| (recorded, Some(played))),
        };
        drop((control, remote));
        drop(screen);
        drop(line);
        let (recorded, played) = outcome?;
        rings::learn(run, &self.to, &shapes, &plan, &recorded);
        ending(run, &plan.take, &recorded, played.as_ref())
    }

    /// Chooses the sizes of rings and chunks, after a measurement if one was requested.
    fn size_rings(
        &self,
        run: &Run,
        plan: &mut TakePlan,
        shapes: &[StreamShape],
        stop: &Stop,
    ) -> Result<()> {
        if let Some(length) = self.measure {
            rings::measure(run, &self.to, shapes, plan, length.0, stop)?;
        }
        plan.ring_bytes = rings::choose(run, self.ring, &self.to, shapes, plan)?;
        plan.engine.chunk_bytes = self.chunk_of(plan.ring_bytes);
        match stop.is_set() {
            false => Ok(()),
            true => {
                let what = "the recorder was stopped before the take began";
                Err(Error::new(Kind::Interrupted, what))
            }
        }
    }

    /// The plan; everything that can be refused without opening or measuring anything was refused
    /// before.
    fn checked_plan(&self) -> Result<TakePlan> {
        self.check_osc()?;
        check_armed(self.armed(), self.format, self.beside.is_wanted())?;
        let plan = self.plan()?;
        self.check_directories()?;
        check_apart(&self.inputs)?;
        self.to.iter().try_for_each(|it| DiskFolder::check_new(it, &plan.take))?;
        Ok(plan)
    }

    /// Refuses a directory that is named twice: both copies would be on one disk, or two streams in
    /// the same files.
    fn check_directories(&self) -> Result<()> {
        let mut known = Vec::new();
        for to in &self.to {
            // A missing directory is refused later, with its own message.
            let Ok(real) = to.canonicalize() else { continue };
            if known.contains(&real) {
                return Err(
                    Error::new(Kind::Usage, "this directory is given twice with --to").at(to)
                );
            }
            known.push(real);
        }
        Ok(())
    }

    /// Opens the inputs, with the shapes of their streams. Refuses more streams than there is
    /// memory for their ring buffers.
    fn open_inputs(&self) -> Result<OpenInputs> {
        let inputs = self.inputs.iter().map(|it| it.clone().open(self.poly));
        let inputs = inputs.collect::<Result<Vec<Box<dyn RecordInput>>>>()?;
        let shapes: Vec<StreamShape> =
            inputs.iter().flat_map(|it| it.streams()).map(|it| it.shape).collect();
        let least = (2 * self.chunk_of(u64::MAX)).next_power_of_two();
        memory_of(shapes.len(), self.ring.map_or(least, |it| it.0))?;
        Ok((inputs, shapes))
    }

    /// The least number of bytes of a write, for rings of this size.
    fn chunk_of(&self, ring_bytes: u64) -> u64 {
        self.chunk.map_or(CHUNK_BYTES.min(ring_bytes / 2), |it| it.0)
    }

    /// Opens a control socket in each directory of a take, so that control continues if the first
    /// directory fails. A socket that cannot be opened does not end the take.
    fn controls(&self, run: &Run, take: &Arc<RunningTake>, name: &str) -> Vec<ControlSocket> {
        let start = |to: &PathBuf| {
            let started = ControlSocket::start(take, to, name);
            started.map_err(|error| run.monitor.warning(to, error)).ok()
        };
        self.to.iter().filter_map(start).collect()
    }

    /// Listens for OSC, if requested. A failure of OSC does not end the take.
    fn remote(&self, run: &Run, take: &Arc<RunningTake>) -> Option<OscRemote> {
        let address = self.osc?;
        OscRemote::start(take, address, &self.osc_from)
            .map_err(|error| run.monitor.warning(address.to_string(), error))
            .ok()
    }

    /// Refuses an address that other hosts can reach if no other sender is allowed.
    fn check_osc(&self) -> Result<()> {
        match self.osc {
            Some(address) if !address.ip().is_loopback() && self.osc_from.is_empty() => {
                Err(Error::new(
                    Kind::Usage,
                    "the recorder accepts OSC messages from other machines only if their addresses \
                     are given with --osc-from",
                )
                .expected("--osc-from", address)
                .advice(
                    "give the addresses that are permitted to send messages, for example \
                     --osc-from 192.168.1.0/24",
                ))
            }
            _ => Ok(()),
        }
    }

    fn warn_of_disks(&self, run: &Run) {
        for to in &self.to {
            durability_warning(to).into_iter().for_each(|it| run.monitor.warning(to, it));
        }
    }

    /// The length of the pre-roll if the take is armed first.
    fn armed(&self) -> Option<Duration> {
        match self.pre_roll {
            Some(time) => Some(time.0),
            None => self.armed.then_some(Duration::ZERO),
        }
    }

    fn plan(&self) -> Result<TakePlan> {
        let take = self.take.clone().unwrap_or_default();
        if !is_plain_name(&take) || take == "ctl" {
            return Err(Error::new(Kind::Usage, format!("'{take}' cannot be the name of a take"))
                .advice("choose a valid name of a directory, without a slash"));
        }
        if self.mirror && self.to.len() < 2 {
            return Err(Error::new(Kind::Usage, "a mirror needs two directories")
                .advice("give --to twice, with directories on different disks"));
        }
        let (started, started_seconds) = started_now();
        Ok(TakePlan {
            take,
            kind: self.format,
            scene: self.scene.clone(),
            tape: self.tape.clone(),
            started,
            started_seconds,
            ring_bytes: 0,
            engine: EngineSettings {
                chunk_bytes: self.chunk_of(u64::MAX),
                commit_every: COMMIT_EVERY,
                is_realtime: !self.no_realtime,
                writes: WritePolicy::Buffered,
                segment_seconds: match self.segment {
                    Some(FileBoundary::Time(time)) => Some(time.as_secs_f64()),
                    _ => None,
                },
                segment_bytes: match self.segment {
                    Some(FileBoundary::Bytes(bytes)) => Some(bytes),
                    _ => None,
                },
            },
            is_mirrored: self.mirror,
            most: self.duration.map(|it| it.0),
            armed: self.armed(),
            beside: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_a_time_or_a_size() {
        assert_eq!(segment("30min"), Ok(FileBoundary::Time(Duration::from_secs(1800))));
        assert_eq!(segment("2h"), Ok(FileBoundary::Time(Duration::from_secs(7200))));
        assert_eq!(segment("4G"), Ok(FileBoundary::Bytes(4 << 30)));
        for bad in ["", "4", "1K", "min", "-1s", "4g "] {
            assert!(segment(bad).is_err(), "{bad}");
        }
    }
}
