//! Inputs as a user writes them: `KIND:PLACE,key=value,..`.

use pinstripe_base::error::{Error, Kind, Result};

use super::alsa::AlsaSpec;
use super::jack::JackSpec;
use super::pcm::PcmSpec;
use super::rtp::RtpSpec;
use super::tone::TestSpec;
use super::{AlsaInput, JackInput, PcmInput, RecordInput, RtpInput, TestInput};

/// A requested input.
#[derive(Debug, Clone, PartialEq)]
pub enum InputSpec {
    /// Streams made by a clock.
    Test(TestSpec),
    /// Samples, or any bytes, of another program.
    Pcm(PcmSpec),
    /// Sound from a network.
    Rtp(RtpSpec),
    /// Ports of a JACK server.
    Jack(JackSpec),
    /// A device of ALSA.
    Alsa(AlsaSpec),
}

impl InputSpec {
    /// The source, where that gives each byte to one reader only.
    fn reads_once(&self) -> Option<String> {
        match self {
            InputSpec::Pcm(spec) => spec.reads_once(),
            _ => None,
        }
    }

    /// The input itself. `is_poly`: all of its channels in one stream.
    ///
    /// # Errors
    /// Those of a JACK server, a sound card, a socket or a file: what cannot be opened is refused before
    /// anything is made.
    pub fn open(self, is_poly: bool) -> Result<Box<dyn RecordInput>> {
        Ok(match self {
            InputSpec::Test(spec) => Box::new(TestInput::new(spec, is_poly)),
            InputSpec::Pcm(spec) => Box::new(PcmInput::open(spec, is_poly)?),
            InputSpec::Rtp(spec) => Box::new(RtpInput::open(spec, is_poly)?),
            InputSpec::Alsa(spec) => Box::new(AlsaInput::open(spec, is_poly)?),
            InputSpec::Jack(spec) => Box::new(JackInput::open(spec, is_poly)?),
        })
    }
}

/// Refuses inputs if two of them would read the same source that gives each byte only once: each
/// would get parts of it.
///
/// # Errors
/// [`Kind::Usage`].
pub fn check_apart(inputs: &[InputSpec]) -> Result<()> {
    let sources: Vec<String> = inputs.iter().filter_map(InputSpec::reads_once).collect();
    let shared = sources.iter().enumerate().find(|(at, it)| sources[..*at].contains(it));
    match shared {
        Some((_, source)) => {
            Err(Error::new(Kind::Usage, format!("two inputs would read {source}")).advice(
                "each input would receive only a part of the data: name the source once, with all \
                 its channels",
            ))
        }
        None => Ok(()),
    }
}

/// Reads what a user wrote.
///
/// # Errors
/// [`Kind::Usage`] with what was expected.
pub fn parse_input(text: &str) -> Result<InputSpec> {
    let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
    match kind {
        "test" => TestSpec::parse(text, rest).map(InputSpec::Test),
        "pcm" => PcmSpec::parse(text, rest, false).map(InputSpec::Pcm),
        "rtp" => RtpSpec::parse(text, rest).map(InputSpec::Rtp),
        "alsa" => AlsaSpec::parse(text, rest).map(InputSpec::Alsa),
        "jack" => JackSpec::parse(text, rest).map(InputSpec::Jack),
        "raw" => PcmSpec::parse(text, rest, true).map(InputSpec::Pcm),
        _ => Err(Error::new(Kind::Usage, format!("'{text}' does not name an input"))
            .expected("test:, pcm:, raw:, rtp:, jack: or alsa:", kind)
            .advice(
                "name an input as in test:streams=8,rate=48000,format=s24 or \
                 pcm:FIFO,rate=48000,channels=2,format=s16",
            )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_read_and_bad_ones_refused_with_what_was_expected() {
        for good in [
            "test:",
            "test:streams=256,rate=96000,format=s24",
            "test:streams=2,channels=2,frames=100,pace=free",
            "test:ppm=-50",
            "pcm:/some/fifo,rate=48000,channels=2,format=s16",
            "pcm:-,rate=44100,channels=1,format=S24_3LE",
            "pcm:unix:/run/a.sock,rate=48000,channels=8,format=s32be,name=stage",
            "raw:/some/fifo",
            "raw:tcp:127.0.0.1:5000,rate=1000000",
            "jack:system:capture_*,format=f32",
            "alsa:hw:CARD=PCH,DEV=0,rate=96000,channels=8,format=s24,name=stage",
            "alsa:default",
            "rtp:239.69.1.2:5004,format=L24,rate=48000,channels=8,jitter=20",
        ] {
            assert!(parse_input(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "jack",
            "jack:",
            "alsa:",
            "alsa:,rate=48000",
            "alsa:rate=48000",
            "alsa:default,rate=fast",
            "alsa:default,rate=",
            "test:streams=0",
            "test:streams=x",
            "test:streams=2,rats=1",
            "test:streams=2,streams=3",
            "test:ppm=fast",
            "test:ppm=NaN",
            "test:format=s17",
            "pcm:",
            "pcm:file",
            "pcm:file,rate=48000",
            "pcm:file,rate=48000,channels=0,format=s16",
            "pcm:file,rate=48000,channels=2,format=mp3",
            "pcm:unix:,rate=48000,channels=2,format=s16",
            "raw:",
            "raw:file,channels=2",
            "rtp:somewhere,format=L24,rate=48000,channels=8",
            "rtp:127.0.0.1:5004,format=L20,rate=48000,channels=8",
            "rtp:127.0.0.1:5004,format=L24",
        ] {
            let error = parse_input(bad).unwrap_err();
            assert_eq!(error.kind(), Kind::Usage, "{bad}");
        }
    }
}
