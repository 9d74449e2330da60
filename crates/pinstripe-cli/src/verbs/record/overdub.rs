//! Plays a take while another one is recorded.

use std::path::PathBuf;
use std::time::Duration;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::Monitor;
use pinstripe_record::{InputSpec, PlayPlan, PreparedPlay};

use crate::args::{Time, duration};
use crate::verbs::play::sink_of;

/// The size of the ring buffer of each played stream, in bytes.
const RING_BYTES: u64 = 128 << 10;

/// Options of a take that is played during the recording.
#[derive(clap::Args)]
pub struct OverdubArgs {
    /// Play this earlier take during the recording, aligned with the new take to the exact sample
    ///
    /// The first frame of the new take corresponds to the first frame that is played. With JACK,
    /// the two takes are aligned by the clock of the JACK server and the latencies that the server
    /// reports; with pcm, they are aligned by counting frames.
    #[arg(long, value_name = "TAKE", value_hint = clap::ValueHint::DirPath)]
    play: Option<PathBuf>,

    /// Where to play the take of --play: a value of 'pinstripe play --to' [default: 'jack:' if a
    /// JACK input is recorded]
    #[arg(long, value_name = "SINK", requires = "play")]
    play_to: Option<String>,

    /// Position in the take of --play at which to start, for example 90s
    #[arg(long, value_name = "TIME", value_parser = duration, requires = "play")]
    play_from: Option<Time>,
}

impl OverdubArgs {
    /// Whether a take is to be played during the recording.
    pub fn is_wanted(&self) -> bool {
        self.play.is_some()
    }

    /// Opens the take to be played, and its sink. The take must be opened before the inputs,
    /// because an input may match the ports of the sink.
    ///
    /// # Errors
    /// Fails with the errors of [`PreparedPlay::open`]; with [`Kind::Usage`] if no destination is
    /// given.
    pub fn open(&self, inputs: &[InputSpec], monitor: &Monitor) -> Result<Option<PreparedPlay>> {
        let Some(path) = &self.play else { return Ok(None) };
        let is_jack = inputs.iter().any(|it| matches!(it, InputSpec::Jack(_)));
        let to = match (&self.play_to, is_jack) {
            (Some(to), _) => to.as_str(),
            (None, true) => "jack:",
            (None, false) => {
                return Err(Error::new(Kind::Usage, "no playback target was given").advice(
                    "give a playback target with --play-to, for example --play-to jack: or \
                     --play-to alsa:default",
                ));
            }
        };
        if to == "pcm:-" {
            return Err(Error::new(
                Kind::Usage,
                "standard output is used for the messages of the recorder",
            )
            .advice("play to a FIFO with --play-to pcm:FIFO"));
        }
        let plan = PlayPlan {
            from: self.play_from.map_or(Duration::ZERO, |it| it.0),
            most: None,
            ring_bytes: RING_BYTES,
            streams: Vec::new(),
        };
        PreparedPlay::open(path, &plan, sink_of(to)?, monitor).map(Some)
    }
}
