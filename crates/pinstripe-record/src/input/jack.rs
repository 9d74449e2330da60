//! Records ports of a JACK server, or of PipeWire.
//!
//! Each matching port is a stream. A server cannot wait: frames that do not fit in a ring are lost
//! and counted there. Frames that the server's clock passed without a callback are missing, and are
//! replaced by silence of the same length.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pinstripe_base::clock;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::units::{counted, format_count};

use super::fields::pairs;
use super::{InputFeed, RecordInput};
use crate::jack::{CONNECT_WITHIN, Capture, Captured, JackClient, JackPort};
use crate::limits::{CHANNELS_MAX, NAME_BYTES, STREAMS_MAX};
use crate::sample::{SampleFormat, StreamShape};
use crate::start::CommonStart;
use crate::take::RecordedStream;

/// The interval at which the server is polled; the server's threads must not make a system call to
/// wake this thread.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The interval at which the connection of unconnected ports is retried.
const CONNECT_EVERY: Duration = Duration::from_secs(1);

/// Requested ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JackSpec {
    text: String,
    pattern: String,
    format: SampleFormat,
}

impl JackSpec {
    /// Reads `[CLIENT:]PATTERN[,format=s24|s16|f32]`.
    ///
    /// # Errors
    /// [`Kind::Usage`].
    pub(super) fn parse(text: &str, rest: &str) -> Result<Self> {
        let (pattern, options) = match rest.find(",format=") {
            Some(at) => (&rest[..at], &rest[at + 1..]),
            None => (rest, ""),
        };
        if pattern.is_empty() {
            return Err(Error::new(Kind::Usage, format!("'{text}' contains no pattern for ports"))
                .expected("a pattern, for example jack:system:capture_* or jack:*", "nothing"));
        }
        let mut format = SampleFormat::S24;
        for (_, value) in pairs(text, options, &["format"])? {
            format = value.parse()?;
        }
        if !matches!(format, SampleFormat::S16 | SampleFormat::S24 | SampleFormat::F32) {
            return Err(Error::new(Kind::Usage, "this is not a sample format for JACK")
                .expected("the sample format s24, s16 or f32", format));
        }
        Ok(JackSpec { text: text.to_owned(), pattern: pattern.to_owned(), format })
    }
}

/// Ports of a server, and a client with one port for each of them.
pub(crate) struct JackInput {
    spec: JackSpec,
    client: Arc<JackClient>,
    shape: StreamShape,
    /// The full names of the recorded ports, each with the client's port for it.
    ports: Vec<(String, JackPort)>,
    /// The capture, until the take begins.
    capture: Option<Capture>,
    is_poly: bool,
    /// The common start of this recording and the player.
    start: Option<Arc<CommonStart>>,
}

impl JackInput {
    /// Opens a client, and creates and connects a port for each matching port. A server makes one
    /// connection in each block, and the take does not begin before all are made. If `is_poly`, all
    /// ports are in one stream.
    ///
    /// # Errors
    /// The errors of [`JackClient::open`]; [`Kind::NotFound`] if no port matches, [`Kind::Refused`]
    /// for too many ports.
    pub(super) fn open(spec: JackSpec, is_poly: bool) -> Result<Self> {
        let client = Arc::new(JackClient::open("pinstripe")?);
        let own = format!("{}:", client.name());
        let sources = client.sources();
        let is_wanted = |name: &&String| !name.starts_with(&own) && is_match(&spec.pattern, name);
        let wanted: Vec<&String> = sources.iter().filter(is_wanted).collect();
        if wanted.is_empty() {
            let error = Error::new(
                Kind::NotFound,
                format!("no output port of the JACK server matches '{}'", spec.pattern),
            );
            let known = sources.iter().take(8).map(|it| printable(it)).collect::<Vec<_>>();
            return Err(error.advice(match known.len() {
                0 => "the JACK server has no output port".to_owned(),
                _ => format!("the output ports of the JACK server are {}", known.join(", ")),
            }));
        }
        let most = if is_poly { usize::from(CHANNELS_MAX) } else { STREAMS_MAX };
        if wanted.len() > most {
            return Err(Error::new(
                Kind::Refused,
                format!("too many ports match the pattern: {}", wanted.len()),
            )
            .expected(format!("at most {most} ports"), wanted.len()));
        }
        let port = |(number, name): (usize, &&String)| {
            Ok(((*name).clone(), client.input_port(&format!("in_{}", number + 1))?))
        };
        let ports = wanted.iter().enumerate().map(port).collect::<Result<Vec<_>>>()?;
        let channels = if is_poly { ports.len() as u16 } else { 1 };
        let shape = StreamShape { format: spec.format, channels, rate: client.rate() };
        let own: Vec<JackPort> = ports.iter().map(|(_, port)| *port).collect();
        let capture = Some(Capture::open(&client, &own, shape.rate)?);
        // A port that does not connect is retried and reported while the take runs.
        for (name, port) in &ports {
            client.connect(name, *port);
        }
        Ok(JackInput { spec, client, shape, ports, capture, is_poly, start: None })
    }

    /// Connects the ports that are not connected yet. If another take is being played, the ports
    /// may include those of the player, which deliver no samples before all inputs are ready; this
    /// then waits until the server has made the connections, because the latencies depend on them.
    fn await_ports(&self, feed: &InputFeed<'_>) {
        let began = clock::monotonic();
        loop {
            let is_missing = |(_, port): &&(String, JackPort)| !self.client.is_connected(*port);
            let missing: Vec<_> = self.ports.iter().filter(is_missing).collect();
            for (name, port) in &missing {
                self.client.connect(name, *port);
            }
            let is_over = self.start.is_none() || clock::since(began) >= CONNECT_WITHIN;
            if missing.is_empty() || is_over || feed.halt.wait(LOOK_EVERY) {
                return;
            }
        }
    }

    /// Reports once for each port that it has disappeared, and once that it has returned. If
    /// `is_due`, retries to connect unconnected ports.
    fn look(
        &self,
        (gone, is_due): (&mut [Option<Instant>], bool),
        capture: &Capture,
        feed: &InputFeed<'_>,
    ) {
        for (number, ((name, port), since)) in self.ports.iter().zip(gone).enumerate() {
            let is_there =
                self.client.is_connected(*port) || (is_due && self.client.connect(name, *port));
            capture.set_gone(number, !is_there);
            match (is_there, *since) {
                (true, Some(at)) => {
                    let seconds = clock::since(at).as_secs_f64();
                    let what = format!(
                        "the port '{}' was missing for {seconds:.1} s and is back",
                        printable(name)
                    );
                    (feed.warn)(Error::new(Kind::Changed, what));
                    *since = None;
                }
                (false, None) => {
                    let what = format!("the port '{}' is missing", printable(name));
                    (feed.warn)(Error::new(Kind::NotFound, what).advice(
                        "the stream of the missing port is recorded as silence until the port \
                         returns",
                    ));
                    *since = Some(clock::monotonic());
                }
                _ => {}
            }
        }
    }

    /// Reports to the player that the ports are connected. From then on the latency of the ports is
    /// known.
    fn be_ready(&self, capture: &Capture) {
        let Some(start) = &self.start else { return };
        self.client.update_latencies();
        let latencies = self.ports.iter().map(|(_, port)| self.client.latency(*port, true));
        capture.set_latency(latencies.max().unwrap_or(0));
        start.be_ready();
    }
}

/// Returns the reason for the end of a capture that began at this rate; `None` if it has not ended.
fn end_of(now: &Captured, rate: u32) -> Option<Result<()>> {
    if now.is_complete {
        return Some(Ok(()));
    }
    if now.is_gone {
        return Some(Err(Error::new(Kind::Io, "the JACK server ended")
            .advice("the samples that were received until then are recorded")));
    }
    (now.new_rate > 0).then(|| {
        let what =
            format!("the JACK server changed its rate to {} frames per second", now.new_rate);
        Err(Error::new(Kind::Io, what).expected(rate, now.new_rate).advice(
            "the data that was received before the change is recorded; start another take at the \
             new rate",
        ))
    })
}

impl RecordInput for JackInput {
    fn streams(&self) -> Vec<RecordedStream> {
        let stream = |name: &str| RecordedStream {
            name: name.chars().take(NAME_BYTES / 4).collect(),
            shape: self.shape,
            source: self.spec.text.clone(),
            test: None,
        };
        match self.is_poly {
            true => vec![stream("jack")],
            false => self.ports.iter().map(|(name, _)| stream(&file_name(name))).collect(),
        }
    }

    fn is_patient(&self) -> bool {
        false
    }

    fn begin_with(&mut self, start: &Arc<CommonStart>) -> bool {
        start.join();
        self.start = Some(Arc::clone(start));
        true
    }

    fn run(&mut self, feed: &mut InputFeed<'_>) -> Result<()> {
        let most = feed.most_frames(self.shape.rate);
        let producers = std::mem::take(&mut feed.producers);
        let Some(mut capture) = self.capture.take() else {
            return Err(Error::new(
                Kind::Usage,
                "an input of the recorder can be started only once",
            ));
        };
        let mut gone = vec![None; self.ports.len()];
        self.await_ports(feed);
        // Before the first block is taken: a port that is not connected now is missing from the
        // beginning.
        self.look((&mut gone, true), &capture, feed);
        capture.begin(self.shape, most, (producers, self.start.clone()));
        self.be_ready(&capture);
        let mut tried = clock::monotonic();
        let ended = loop {
            let now = capture.so_far();
            if let Some(ended) = end_of(&now, self.shape.rate) {
                break ended;
            }
            let is_due = clock::since(tried) >= CONNECT_EVERY;
            self.look((&mut gone, is_due), &capture, feed);
            if is_due {
                tried = clock::monotonic();
            }
            if feed.halt.wait(LOOK_EVERY) {
                break Ok(());
            }
        };
        let last = capture.so_far();
        drop(capture);
        if last.xruns > 0 {
            let times = counted(last.xruns, "time", "times");
            let what = format!("the JACK server missed its deadline {times}");
            (feed.warn)(Error::new(Kind::Io, what).advice(
                "samples of a block whose deadline was missed may be wrong, even if no frame is \
                 missing",
            ));
        }
        ended.and_then(|()| whole(&last))
    }
}

/// Frames in which one port was missing are not a gap of the stream, because its other ports have
/// samples.
fn whole(last: &Captured) -> Result<()> {
    match last.partial_frames {
        0 => Ok(()),
        frames => {
            let what = format!(
                "{} frames contain silence in the channels of ports that were missing",
                format_count(frames)
            );
            Err(Error::new(Kind::Io, what))
        }
    }
}

/// Whether a pattern with `*` and `?` matches the full name of a port, `CLIENT:PORT`. A pattern
/// without a colon matches ports of any client.
pub(crate) fn is_match(pattern: &str, name: &str) -> bool {
    let port = name.split_once(':').map_or(name, |(_, port)| port);
    let of = if pattern.contains(':') { name } else { port };
    let (pattern, of): (Vec<char>, Vec<char>) = (pattern.chars().collect(), of.chars().collect());
    // Whether the pattern so far fits the first `n` characters.
    let mut fits = vec![false; of.len() + 1];
    fits[0] = true;
    for sign in pattern {
        let mut next = vec![false; of.len() + 1];
        next[0] = fits[0] && sign == '*';
        for at in 1..=of.len() {
            next[at] = match sign {
                '*' => fits[at] || next[at - 1],
                '?' => fits[at - 1],
                sign => fits[at - 1] && of[at - 1] == sign,
            };
        }
        fits = next;
    }
    fits[of.len()]
}

/// Converts the name of a port to the name of a stream, which is part of a file name.
fn file_name(name: &str) -> String {
    let is_plain = |sign: char| sign.is_alphanumeric() || matches!(sign, '_' | '-' | '.');
    name.chars().map(|sign| if is_plain(sign) { sign } else { '-' }).collect()
}

fn printable(name: &str) -> String {
    name.chars().filter(|sign| !sign.is_control()).take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_of_full_names_or_of_ports() {
        for (pattern, name, wanted) in [
            ("system:capture_*", "system:capture_12", true),
            ("system:capture_*", "other:capture_12", false),
            ("capture_?", "system:capture_1", true),
            ("capture_?", "system:capture_12", false),
            ("*", "a:b:c", true),
            ("b:c", "a:b:c", false),
            ("*:out", "a b:out", true),
            ("**t*", "x:out", true),
            ("", "x:", true),
        ] {
            assert_eq!(is_match(pattern, name), wanted, "{pattern} {name}");
        }
        assert_eq!(file_name("gen 1:out/1"), "gen-1-out-1");
    }

    #[test]
    fn what_was_asked_for_is_read() {
        let spec = |rest: &str| JackSpec::parse(&format!("jack:{rest}"), rest);
        assert_eq!(spec("a,b:*,format=f32").unwrap().pattern, "a,b:*");
        assert_eq!(spec("a:*,format=f32").unwrap().format, SampleFormat::F32);
        assert_eq!(spec("*").unwrap().format, SampleFormat::S24);
        for bad in ["", ",format=s24", "*,format=s32", "*,format=mp3", "*,format="] {
            assert_eq!(spec(bad).unwrap_err().kind(), Kind::Usage, "{bad}");
        }
    }

    #[test]
    fn a_server_that_changes_its_rate_ends_the_take_with_both_rates_named() {
        let at = |now: Captured| end_of(&now, 48_000);
        assert!(at(Captured { frames: 9, xruns: 1, ..Captured::default() }).is_none());
        let told = at(Captured { new_rate: 44_100, ..Captured::default() }).unwrap().unwrap_err();
        let text = told.to_string();
        assert!(text.contains("44100") && text.contains("48000"), "{text}");
        let complete = Captured { is_complete: true, new_rate: 44_100, ..Captured::default() };
        assert!(at(complete).unwrap().is_ok(), "all that was asked for was there before");
        assert!(at(Captured { is_gone: true, ..Captured::default() }).unwrap().is_err());
    }
}
