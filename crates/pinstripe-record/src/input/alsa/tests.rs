use std::collections::VecDeque;
use std::sync::atomic::AtomicU64;

use pinstripe_base::monitor::Counter;
use pinstripe_base::sync::Stop;

use super::*;
use crate::alsa::testing::{AlsaConfig, with_config};
use crate::ring::{Arena, Found, Ring, RingConsumer};
use crate::sample::SampleFormat;

#[test]
fn names_of_devices_may_have_commas_and_keys_of_their_own() {
    let spec = |rest: &str| AlsaSpec::parse(&format!("alsa:{rest}"), rest).unwrap();
    let found = spec("hw:CARD=PCH,DEV=0,rate=96000,channels=8,format=s32,name=shared");
    assert_eq!(found.wish.device, "hw:CARD=PCH,DEV=0");
    assert_eq!((found.wish.rate, found.wish.channels), (Some(96_000), Some(8)));
    assert_eq!((found.wish.format, found.name.as_str()), (Some(SampleFormat::S32), "shared"));
    let plain = spec("hw:0,1");
    assert_eq!((plain.wish.device.as_str(), plain.name.as_str()), ("hw:0,1", "hw-0-1"));
    assert_eq!((plain.wish.rate, plain.wish.format), (None, None));
}

/// What a card does next: takes so long, then gives frames or trouble.
enum Step {
    Frames(u64, usize),
    Trouble(u64, CardTrouble),
}

/// A card of one channel of 16 bits whose samples count, by a clock that the steps set.
struct Script {
    now_millis: u64,
    steps: VecDeque<Step>,
    next: i16,
    begun: u64,
    resumes: bool,
}

impl SoundCard for Script {
    fn now(&self) -> Duration {
        Duration::from_millis(self.now_millis)
    }

    fn begin(&mut self) -> Result<(), CardTrouble> {
        self.begun += 1;
        Ok(())
    }

    fn resume(&mut self) -> bool {
        self.resumes
    }

    fn wait(&mut self, _: Duration) -> Result<bool, CardTrouble> {
        match self.steps.pop_front() {
            Some(Step::Trouble(millis, trouble)) => {
                self.now_millis += millis;
                Err(trouble)
            }
            step @ Some(Step::Frames(millis, _)) => {
                self.now_millis += millis;
                self.steps.extend(None::<Step>);
                self.steps.push_front(step.unwrap());
                Ok(true)
            }
            None => Err(CardTrouble::Failed(Error::new(Kind::Io, "unplugged"))),
        }
    }

    fn avail(&mut self) -> Result<u64, CardTrouble> {
        Ok(0)
    }

    fn read(&mut self, bytes: &mut [u8]) -> Result<usize, CardTrouble> {
        let Some(Step::Frames(_, frames)) = self.steps.pop_front() else { return Ok(0) };
        for sample in bytes[..2 * frames].chunks_exact_mut(2) {
            self.next += 1;
            sample.copy_from_slice(&self.next.to_le_bytes());
        }
        Ok(frames)
    }

    fn write(&mut self, _: &[u8]) -> Result<usize, CardTrouble> {
        Ok(0)
    }

    fn drain(&mut self) {}
}

/// What comes into the ring of a card that does these steps, gaps as zeros, and how it ended.
fn captured(steps: Vec<Step>, resumes: bool) -> (Vec<i16>, u64, (u64, u64), Result<()>) {
    let shape = StreamShape { format: SampleFormat::S16, channels: 1, rate: 1000 };
    let arena = Arc::new(Arena::new(1 << 16).unwrap());
    let (ring, producer) = Ring::new(&arena, 0, 1 << 16, 2, 1).unwrap();
    let (halt, held_back) = (Stop::new().unwrap(), AtomicU64::new(0));
    let warn = |_: Error| {};
    let mut feed = InputFeed {
        producers: vec![producer],
        halt: &halt,
        most: Some(Duration::from_secs(10)),
        held_back: &held_back,
        warn: &warn,
    };
    let format = CardFormat::from_format(SampleFormat::S16).unwrap();
    let mut capture = CardCapture {
        most: 10_000,
        shape,
        splitter: Splitter::new(format, 1, 1),
        is_patient: false,
        taken: 0,
        known: (Duration::ZERO, 0),
        heard: Duration::ZERO,
        xruns: 0,
        suspends: 0,
    };
    let mut card = Script { now_millis: 0, steps: steps.into(), next: 0, begun: 0, resumes };
    let ended = capture.run(&mut card, &mut feed);
    drop(feed);
    let mut consumer = RingConsumer::new(ring, 0);
    let mut samples = Vec::new();
    loop {
        match consumer.peek() {
            Found::End => break,
            Found::Gap(bytes) => {
                samples.resize(samples.len() + bytes as usize / 2, 0);
                consumer.take_gap();
            }
            Found::Bytes { bytes, .. } => {
                let run = consumer.bytes(bytes).to_vec();
                samples.extend(run.chunks_exact(2).map(|it| i16::from_le_bytes([it[0], it[1]])));
                consumer.take(run.len() as u64);
            }
        }
    }
    (samples, card.begun, (capture.xruns, capture.suspends), ended)
}

#[test]
fn what_a_card_lost_is_silence_of_that_length_and_it_goes_on() {
    // 100 frames in 100 ms, 150 ms of nothing, 50 frames more.
    let steps =
        vec![Step::Frames(100, 100), Step::Trouble(150, CardTrouble::Xrun), Step::Frames(50, 50)];
    let (samples, begun, counts, ended) = captured(steps, false);
    assert_eq!((begun, counts), (2, (1, 0)));
    let expected: Vec<i16> = (1..=100).chain([0; 150]).chain(101..=150).collect();
    assert_eq!(samples, expected);
    assert_eq!(ended.unwrap_err().what(), "unplugged", "a device that is gone ends it");
}

#[test]
fn a_suspend_is_silence_whether_the_card_resumes_or_begins_anew() {
    for (resumes, times_begun) in [(true, 1), (false, 2)] {
        let steps = vec![
            Step::Frames(10, 10),
            Step::Trouble(2000, CardTrouble::Suspended),
            Step::Frames(5, 5),
        ];
        let (samples, begun, counts, _) = captured(steps, resumes);
        assert_eq!((begun, counts), (times_begun, (0, 1)));
        assert_eq!(samples.len(), 2015);
        assert_eq!((samples[9], samples[10], samples[2009], samples[2010]), (10, 0, 0, 11));
    }
}

#[test]
fn channels_become_streams_in_every_format() {
    for (format, frame, parts) in [
        (SampleFormat::S16, &[1, 2, 3, 4][..], [&[1, 2][..], &[3, 4]]),
        (SampleFormat::U8, &[7, 8], [&[7], &[8]]),
        (SampleFormat::S24, &[1, 2, 3, 4, 5, 6], [&[1, 2, 3], &[4, 5, 6]]),
    ] {
        let mut splitter = Splitter::new(CardFormat::from_format(format).unwrap(), 2, 2);
        assert_eq!(splitter.split(frame), parts, "{format}");
    }
    let wide = CardFormat { bytes: 4, ..CardFormat::from_format(SampleFormat::S24).unwrap() };
    assert_eq!(Splitter::new(wide, 1, 1).split(&[1, 2, 3, 0]), [[1, 2, 3]]);
    let shifted = CardFormat { is_shifted: true, ..wide };
    assert_eq!(Splitter::new(shifted, 1, 1).split(&[0, 1, 2, 3]), [[1, 2, 3]]);
}

const CONTENT: &str = "input::alsa::tests::the_very_samples_of_a_device_are_recorded";

#[test]
fn the_very_samples_of_a_device_are_recorded() {
    with_config(CONTENT, |config: &AlsaConfig| {
        for (format, name, width) in [
            ("s16", "S16_LE", 2),
            ("s24", "S24_3LE", 3),
            ("s32", "S32_LE", 4),
            ("f32", "FLOAT_LE", 4),
        ] {
            let frames = 20_000;
            let samples = config.file_device("filed", name, 2 * width * frames);
            let text = format!("alsa:filed,rate=48000,channels=2,format={format}");
            let monitor = config.record(name, &text, frames as u64);
            assert_eq!(monitor.get(Counter::Losses), 0, "{name}");
            let sides = config.payloads(name);
            let (left, right): (Vec<u8>, Vec<u8>) = (sides[0].clone(), sides[1].clone());
            let joined: Vec<u8> = left
                .chunks(width)
                .zip(right.chunks(width))
                .flat_map(|(left, right)| [left, right].concat())
                .collect();
            assert!(joined == samples, "{name}");
        }
    });
}

const REFUSED: &str = "input::alsa::tests::what_a_device_has_not_is_said";

#[test]
fn what_a_device_has_not_is_said() {
    with_config(REFUSED, |config: &AlsaConfig| {
        let open = |text: &str| super::super::parse_input(text).unwrap().open(false);
        assert_eq!(open("alsa:no-such-device").err().unwrap().kind(), Kind::NotFound);
        // A device of whole numbers only, as most cards are.
        config.write("pcm.fixed { type linear slave { pcm { type null } format S16_LE } }\n");
        let error = open("alsa:fixed,format=f32").err().unwrap();
        assert_eq!(error.kind(), Kind::Usage);
        assert!(error.to_string().contains("f32"), "{error}");
        assert!(open("alsa:null,rate=44100,channels=4,format=s24").is_ok());
    });
}

const TIMED: &str = "input::alsa::tests::a_device_with_a_clock_is_recorded_by_it";

/// Ports of a server as a device of ALSA: what a sound card is elsewhere.
#[test]
#[ignore = "with --all: it starts jackd"]
fn a_device_with_a_clock_is_recorded_by_it() {
    crate::jack::testing::with_server(TIMED, |_| {
        crate::jack::testing::await_server();
        let plugin = std::fs::read_dir("/usr/lib")
            .into_iter()
            .flatten()
            .flatten()
            .any(|it| it.path().join("alsa-lib/libasound_module_pcm_jack.so").exists());
        if !plugin {
            return pinstripe_testing::not_installed(TIMED, "the JACK plug-in of libasound");
        }
        let _generator = crate::jack::generator::Generator::start("gen", 2);
        with_config(TIMED, |config: &AlsaConfig| {
            config.write("pcm.card { type jack capture_ports { 0 gen:out_1 1 gen:out_2 } }\n");
            let text = "alsa:card,rate=48000,channels=2,format=f32";
            let monitor = config.record("timed", text, 48_000);
            assert_eq!(monitor.get(Counter::Losses), 0);
            for payload in config.payloads("timed") {
                let sample = |it: &[u8]| f32::from_le_bytes([it[0], it[1], it[2], it[3]]);
                let samples =
                    payload.chunks_exact(4).map(sample).map(|it| (it * 8_388_608.0) as u32);
                let samples: Vec<u32> = samples.skip_while(|it| *it == 0).collect();
                assert!(samples.len() > 20_000, "{}", samples.len());
                use crate::jack::generator::{MODULUS, STEP};
                assert!(samples.windows(2).all(|pair| pair[1] == (pair[0] + STEP) % MODULUS));
            }
        });
    });
}
