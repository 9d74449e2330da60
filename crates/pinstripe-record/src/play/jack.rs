//! Plays to a JACK server, by a client with a port for each channel.

use std::time::Duration;

use pinstripe_base::clock;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::Monitor;
use pinstripe_base::sync::Stop;

use super::PlayOutcome;
use crate::input::is_port_match;
use crate::jack::{CONNECT_WITHIN, JackClient, JackPort, Playback, PlaybackCounts};
use crate::limits::CHANNELS_MAX;
use crate::ring::PacedConsumer;
use crate::sample::{SampleFormat, StreamShape};
use crate::start::CommonStart;

/// The requested name of the client.
const CLIENT: &str = "pinstripe-play";
/// The interval at which the server is polled; the server's threads must not make a system call to
/// wake this thread.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// The time between the decision to begin and the first sample, in which every client learns of the
/// decision.
const LEAD: Duration = Duration::from_millis(200);
/// The most characters of a stream's name in the name of a port.
const NAME_CHARS: usize = 60;

/// A client whose ports exist but are not connected.
pub(super) struct JackSink {
    client: JackClient,
    ports: Vec<JackPort>,
    pattern: String,
    rate: u32,
}

impl JackSink {
    /// Opens a client with a port for each channel of each stream.
    ///
    /// # Errors
    /// The errors of [`JackClient::open`]; [`Kind::Usage`] if the server has another rate or the
    /// streams contain no samples; [`Kind::NotFound`] if no port matches.
    pub fn open<'n>(
        pattern: String,
        shape: StreamShape,
        names: impl ExactSizeIterator<Item = &'n str>,
    ) -> Result<Self> {
        if shape.format == SampleFormat::Raw {
            return Err(Error::new(Kind::Usage, "raw bytes cannot be played as sound")
                .advice("select audio streams with --stream"));
        }
        let count = names.len() * usize::from(shape.channels);
        if count > usize::from(CHANNELS_MAX) {
            return Err(Error::new(
                Kind::Refused,
                format!("too many ports would be needed: {count}"),
            )
            .expected(format!("at most {CHANNELS_MAX} ports"), count)
            .advice("select fewer streams with --stream"));
        }
        let client = JackClient::open(CLIENT)?;
        if client.rate() != shape.rate {
            return Err(Error::new(
                Kind::Usage,
                "the JACK server and the take have different sample rates",
            )
            .expected(shape.rate, client.rate())
            .advice("pinstripe does not resample: start the server with the rate of the take"));
        }
        let sink = JackSink { ports: Vec::new(), rate: shape.rate, pattern, client };
        if !sink.pattern.is_empty() && sink.places().is_empty() {
            let what = format!("no input port of the JACK server matches '{}'", sink.pattern);
            return Err(Error::new(Kind::NotFound, what).advice("'jack_lsp' lists the ports"));
        }
        let mut ports = Vec::new();
        for name in names {
            let plain: String = name.chars().map(plain).take(NAME_CHARS).collect();
            for channel in 1..=shape.channels {
                let number = ports.len() + 1;
                let name = match shape.channels {
                    1 => format!("{number:02}-{plain}"),
                    _ => format!("{number:02}-{plain}-{channel}"),
                };
                ports.push(sink.client.output_port(&name)?);
            }
        }
        Ok(JackSink { ports, ..sink })
    }

    /// The full names of the ports to which the client plays.
    fn places(&self) -> Vec<String> {
        let own = format!("{}:", self.client.name());
        let mut places = self.client.sinks(self.pattern.is_empty());
        places.retain(|it| !it.starts_with(&own));
        if !self.pattern.is_empty() {
            places.retain(|it| is_port_match(&self.pattern, it));
        }
        places
    }

    /// Connects the client's ports to the destination ports, in order; returns the number of
    /// connections.
    fn connect(&self, monitor: &Monitor) -> usize {
        let places = self.places();
        let pairs = self.ports.iter().zip(&places);
        let connected = pairs.filter(|(port, place)| self.client.connect_to(**port, place)).count();
        if connected < self.ports.len() {
            let what = format!("only {connected} of {} ports are connected", self.ports.len());
            let advice =
                "connect the other ports with jack_connect, or choose ports with --to jack:PATTERN";
            monitor.warning(CLIENT, Error::new(Kind::NotFound, what).advice(advice));
        }
        connected
    }

    /// Waits until the server has made `wanted` connections, because the latencies depend on them.
    fn await_connections(&self, wanted: usize, stop: &Stop) {
        let began = clock::monotonic();
        let made = || self.ports.iter().filter(|port| self.client.is_connected(**port)).count();
        while made() < wanted && clock::since(began) < CONNECT_WITHIN && !stop.wait(LOOK_EVERY) {}
    }

    /// Plays until the streams end, or until `stop` is set.
    pub fn run(
        &self,
        streams: Vec<PacedConsumer>,
        shape: StreamShape,
        (start, stop, monitor): (Option<&CommonStart>, &Stop, &Monitor),
    ) -> Result<PlayOutcome> {
        let playback = Playback::start(&self.client, &self.ports, shape, streams)?;
        let connected = self.connect(monitor);
        if let Some(start) = start {
            self.await_connections(connected, stop);
            if !start.wait_for_all(stop) {
                return Ok(PlayOutcome::default());
            }
        }
        self.begin(&playback, start);
        let ended = loop {
            let now = playback.so_far();
            if let Some(ended) = self.end(&now) {
                break ended;
            }
            if stop.wait(LOOK_EVERY) {
                break Ok(());
            }
        };
        let last = playback.so_far();
        drop(playback);
        ended?;
        if last.xruns > 0 {
            let what = format!("the JACK server missed its deadline {} times", last.xruns);
            let advice = "a block whose deadline was missed may have been played incorrectly, even \
                          if no frame is missing";
            monitor.warning(CLIENT, Error::new(Kind::Io, what).advice(advice));
        }
        Ok(PlayOutcome {
            frames: last.frames,
            underruns: last.underruns,
            missing_frames: last.missing_frames,
            xruns: last.xruns,
            ..PlayOutcome::default()
        })
    }

    /// Decides when the first frame is played, and announces to the recording when that frame is
    /// heard.
    fn begin(&self, playback: &Playback<'_>, start: Option<&CommonStart>) {
        if start.is_some() {
            // Every client answers before this returns: before the moment is chosen.
            self.client.update_latencies();
        }
        let lead = (LEAD.as_secs_f64() * f64::from(self.rate)) as u32;
        let lead = lead.max(2 * self.client.block_frames());
        let first = self.client.now().wrapping_add(lead);
        playback.begin(first);
        if let Some(start) = start {
            let latencies = self.ports.iter().map(|port| self.client.latency(*port, false));
            let latency = latencies.max().unwrap_or(0);
            let seconds = f64::from(lead + latency) / f64::from(self.rate);
            let at = clock::monotonic() + Duration::from_secs_f64(seconds);
            start.begin(at, Some(first.wrapping_add(latency)));
        }
    }

    /// Returns the reason for the end of playback; `None` if it has not ended.
    fn end(&self, now: &PlaybackCounts) -> Option<Result<()>> {
        if now.is_complete {
            return Some(Ok(()));
        }
        if now.is_gone {
            return Some(Err(Error::new(Kind::Io, "the JACK server ended")));
        }
        (now.new_rate > 0).then(|| {
            let what =
                format!("the JACK server changed its rate to {} frames per second", now.new_rate);
            Err(Error::new(Kind::Io, what).expected(self.rate, now.new_rate))
        })
    }
}

/// Replaces characters that a port name must not contain: a colon would end the name of the client.
fn plain(it: char) -> char {
    if it.is_alphanumeric() || "-_.+ ".contains(it) { it } else { '_' }
}
