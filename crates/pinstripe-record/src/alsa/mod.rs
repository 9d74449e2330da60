//! Sound cards, and all other devices that ALSA calls PCM devices.
//!
//! A device is opened in nonblocking mode, and waits have a deadline, so that a device that hangs
//! blocks no thread. A failure is returned as a [`CardTrouble`], and the users of the card decide
//! how to react. Cards are used through the trait [`SoundCard`], with which tests simulate
//! failures.

mod library;
#[cfg(test)]
pub mod testing;

use std::ffi::{CString, c_int, c_long, c_uint};
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use pinstripe_base::clock;
use pinstripe_base::error::{Error, Kind, Result};

use crate::sample::SampleFormat;
use library::{
    AlsaLibrary, CAPTURE, INTERLEAVED, NONBLOCK, PLAYBACK, RawHardware, RawPcm, UNPACED,
};

/// The requested period: the interval at which a card has data, or space for data.
const PERIOD_MICROS: c_uint = 5_000;
/// The requested length of the buffer: the time that a card can run without being served by this
/// process.
const BUFFER_MICROS: c_uint = 200_000;
/// A suspended card must resume within this time, otherwise it is restarted.
const RESUME_WITHIN: Duration = Duration::from_secs(5);
const RESUME_EVERY: Duration = Duration::from_millis(50);

/// How a card stores samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CardFormat {
    /// The format.
    pub format: SampleFormat,
    /// Bytes of one sample: 24 bits may be stored in four bytes, in the lower three or, if shifted,
    /// in the upper three.
    pub bytes: usize,
    /// Whether the sample is in the upper bytes, and the lowest byte is zero.
    pub is_shifted: bool,
    /// ALSA's number.
    pub code: c_int,
}

const fn card_format(
    format: SampleFormat,
    (bytes, is_shifted): (usize, bool),
    code: c_int,
) -> CardFormat {
    CardFormat { format, bytes, is_shifted, code }
}

/// The supported formats, the best one of each kind first: S24_3LE, S24_LE, S32_LE, S16_LE,
/// FLOAT_LE and U8 of alsa/pcm.h.
const FORMATS: [CardFormat; 6] = [
    card_format(SampleFormat::S24, (3, false), 32),
    card_format(SampleFormat::S24, (4, false), 6),
    card_format(SampleFormat::S32, (4, false), 10),
    card_format(SampleFormat::S16, (2, false), 2),
    card_format(SampleFormat::F32, (4, false), 14),
    card_format(SampleFormat::U8, (1, false), 1),
];

#[cfg(test)]
impl CardFormat {
    /// Returns the best way to store samples of a format on a card.
    pub fn from_format(format: SampleFormat) -> Option<Self> {
        FORMATS.iter().find(|it| it.format == format).copied()
    }
}

/// 24 bits in the upper part of 32 bits, for cards that support only this.
const S24_IN_S32: CardFormat = card_format(SampleFormat::S24, (4, true), 10);

/// The settings requested from a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CardWish {
    /// The name, as for `arecord -D`.
    pub device: String,
    /// The requested format; `None` for the best format of the device.
    pub format: Option<SampleFormat>,
    /// The requested number of channels; `None` for two if possible.
    pub channels: Option<u16>,
    /// The requested rate in frames per second; `None` for 48,000 if possible.
    pub rate: Option<u32>,
}

/// A failure of a card.
#[derive(Debug)]
pub(crate) enum CardTrouble {
    /// The card was not served in time, and has stopped.
    Xrun,
    /// The machine was suspended.
    Suspended,
    /// The card cannot be used any more.
    Failed(Error),
}

/// A running sound card.
pub(crate) trait SoundCard: Send {
    /// The current time for this card.
    fn now(&self) -> Duration;

    /// Starts the card, or restarts it after a trouble.
    ///
    /// # Errors
    /// Fails if the card cannot be used any more.
    fn begin(&mut self) -> Result<(), CardTrouble>;

    /// Resumes the card after the machine was suspended; returns whether this worked without a
    /// restart of the device.
    fn resume(&mut self) -> bool;

    /// Waits at most this time until frames can be read or written. Returns whether frames can be
    /// read or written.
    ///
    /// # Errors
    /// Any trouble.
    fn wait(&mut self, most: Duration) -> Result<bool, CardTrouble>;

    /// Frames that can be read or written now.
    ///
    /// # Errors
    /// Any trouble.
    fn avail(&mut self) -> Result<u64, CardTrouble>;

    /// Reads the available complete frames; returns their number.
    ///
    /// # Errors
    /// Any trouble.
    fn read(&mut self, bytes: &mut [u8]) -> Result<usize, CardTrouble>;

    /// Writes as many complete frames as there is space for; returns their number.
    ///
    /// # Errors
    /// Any trouble.
    fn write(&mut self, bytes: &[u8]) -> Result<usize, CardTrouble>;

    /// Waits until everything that was written has been played.
    fn drain(&mut self);
}

/// A device of ALSA.
pub(crate) struct AlsaPcm {
    library: &'static AlsaLibrary,
    raw: NonNull<RawPcm>,
    device: String,
    is_capture: bool,
    began: Instant,
    /// The format in which the device stores samples.
    pub format: CardFormat,
    /// The number of channels.
    pub channels: u16,
    /// Frames per second, as the device reports.
    pub rate: u32,
    /// The size of the device's buffer, in frames.
    pub buffer_frames: u64,
    /// Whether the device has no clock, as an ALSA device that is a file or null. It can wait.
    pub is_unpaced: bool,
}

// SAFETY: alsa-lib lets any thread use a device, one at a time, which `&mut self` sees to.
unsafe impl Send for AlsaPcm {}

impl AlsaPcm {
    /// Opens a device to record from it, or to play to it.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] without libasound; [`Kind::NotFound`] and [`Kind::Busy`] for the device;
    /// [`Kind::Usage`] if it does not support the request.
    pub fn open(wish: &CardWish, is_capture: bool) -> Result<Self> {
        let library = AlsaLibrary::get()?;
        let name = CString::new(wish.device.as_str())
            .map_err(|_| Error::new(Kind::Usage, "this is not a valid name of a sound device"))?;
        let mut raw = std::ptr::null_mut();
        let stream = if is_capture { CAPTURE } else { PLAYBACK };
        // SAFETY: the name ends with 0; the handle is written only.
        let code = unsafe { (library.open)(&raw mut raw, name.as_ptr(), stream, NONBLOCK) };
        let raw = match (code, NonNull::new(raw)) {
            (0, Some(raw)) => raw,
            _ => return Err(cannot_open(library, &wish.device, code, is_capture)),
        };
        // SAFETY: the device is open.
        let is_unpaced = UNPACED.contains(&unsafe { (library.kind)(raw.as_ptr()) });
        let mut pcm = AlsaPcm {
            library,
            raw,
            device: wish.device.clone(),
            is_capture,
            began: clock::monotonic(),
            format: FORMATS[0],
            channels: 0,
            rate: 0,
            buffer_frames: 0,
            is_unpaced,
        };
        pcm.configure(wish)?;
        Ok(pcm)
    }

    fn configure(&mut self, wish: &CardWish) -> Result<()> {
        let mut params = std::ptr::null_mut();
        // SAFETY: the pointer is written only.
        let code = unsafe { (self.library.hardware_new)(&raw mut params) };
        self.check(code, "cannot be configured, because memory is lacking")?;
        let done = self.set_hardware(wish, params);
        // SAFETY: allocated above, and freed once.
        unsafe { (self.library.hardware_free)(params) };
        done?;
        if self.is_capture { Ok(()) } else { self.start_when_full() }
    }

    fn set_hardware(&mut self, wish: &CardWish, params: *mut RawHardware) -> Result<()> {
        let (library, pcm) = (self.library, self.raw.as_ptr());
        let (mut channels, mut rate) =
            (wish.channels.map_or(2, c_uint::from), wish.rate.unwrap_or(48_000));
        let (mut period, mut buffer, mut frames) = (PERIOD_MICROS, BUFFER_MICROS, 0);
        let none = std::ptr::null_mut();
        // SAFETY: device and parameters are open; all other pointers are to values that live.
        unsafe {
            self.check((library.hardware_any)(pcm, params), "offers no configuration")?;
            self.check((library.set_access)(pcm, params, INTERLEAVED), "cannot interleave")?;
            // No plug-in is to change the rate unsaid.
            (library.set_resample)(pcm, params, 0);
            self.format = self.best_format(wish.format, params)?;
            self.check(
                (library.set_format)(pcm, params, self.format.code),
                "refuses the sample format",
            )?;
            let code = match wish.channels {
                Some(_) => (library.set_channels)(pcm, params, channels),
                None => (library.set_channels_near)(pcm, params, &raw mut channels),
            };
            self.check(code, &format!("does not support {channels} channels"))?;
            let code = (library.set_rate_near)(pcm, params, &raw mut rate, none);
            self.check(code, "does not support this sample rate")?;
            // As near as it can. The period first: some devices have one only.
            (library.set_period_near)(pcm, params, &raw mut period, none);
            (library.set_buffer_near)(pcm, params, &raw mut buffer, none);
            self.check((library.set_hardware)(pcm, params), "refuses the configuration")?;
            self.check((library.buffer_size)(params, &raw mut frames), "has no buffer")?;
        }
        if let Some(wished) = wish.rate.filter(|it| *it != rate) {
            let what =
                format!("the device '{}' does not support the requested sample rate", self.device);
            return Err(Error::new(Kind::Usage, what).expected(wished, rate).advice(format!(
                "use rate={rate}, or the device plug:'{}', which resamples",
                self.device
            )));
        }
        self.channels = u16::try_from(channels).unwrap_or(u16::MAX);
        (self.rate, self.buffer_frames) = (rate, frames);
        Ok(())
    }

    /// Returns the device's form of the requested format, or the best format of the device if none
    /// is requested.
    fn best_format(
        &self,
        wish: Option<SampleFormat>,
        params: *mut RawHardware,
    ) -> Result<CardFormat> {
        let fitting = FORMATS.iter().chain((!self.is_capture).then_some(&S24_IN_S32));
        let mut fitting = fitting.filter(|it| wish.is_none_or(|wish| wish == it.format));
        let has = |it: &&CardFormat| {
            // SAFETY: device and parameters are open.
            unsafe { (self.library.test_format)(self.raw.as_ptr(), params, it.code) == 0 }
        };
        fitting.find(has).copied().ok_or_else(|| {
            let wished = wish.map_or("any known sample format".to_owned(), |it| it.to_string());
            let what = format!("the device '{}' does not support {wished}", self.device);
            Error::new(Kind::Usage, what).advice(format!(
                "give another format=, or use the device plug:'{}', which converts the format",
                self.device
            ))
        })
    }

    /// Makes playback begin when the buffer is full, not with the first frame.
    fn start_when_full(&self) -> Result<()> {
        let mut params = std::ptr::null_mut();
        // SAFETY: the device is open; the pointer is written, used and freed once.
        unsafe {
            self.check(
                (self.library.software_new)(&raw mut params),
                "cannot be configured, because memory is lacking",
            )?;
            let pcm = self.raw.as_ptr();
            (self.library.software_now)(pcm, params);
            (self.library.set_start)(pcm, params, self.buffer_frames);
            (self.library.set_software)(pcm, params);
            (self.library.software_free)(params);
        }
        Ok(())
    }

    fn check(&self, code: c_int, what: &str) -> Result<()> {
        match code {
            0.. => Ok(()),
            code => {
                let why = self.library.text(code);
                let what = format!("the device '{}' {what}: {why}", self.device);
                Err(Error::new(Kind::Usage, what)
                    .advice("'arecord --dump-hw-params' shows what the device supports"))
            }
        }
    }

    fn trouble(&self, code: c_long) -> CardTrouble {
        match code as c_int {
            code if code == -libc::EPIPE => CardTrouble::Xrun,
            code if code == -libc::ESTRPIPE => CardTrouble::Suspended,
            code => {
                let what = format!("the sound device has failed: {}", self.library.text(code));
                CardTrouble::Failed(Error::new(Kind::Io, what).at(&self.device))
            }
        }
    }

    /// Converts a return code to the number of frames transferred; 0 if none are available yet.
    fn moved(&self, code: c_long) -> Result<usize, CardTrouble> {
        match code {
            0.. => Ok(code as usize),
            code if code == c_long::from(-libc::EAGAIN) => Ok(0),
            code => Err(self.trouble(code)),
        }
    }

    fn frame_bytes(&self) -> usize {
        self.format.bytes * usize::from(self.channels)
    }
}

impl SoundCard for AlsaPcm {
    fn now(&self) -> Duration {
        clock::since(self.began)
    }

    fn begin(&mut self) -> Result<(), CardTrouble> {
        // SAFETY: the device is open.
        let code = unsafe {
            let code = (self.library.prepare)(self.raw.as_ptr());
            let is_started = code < 0 || !self.is_capture;
            if is_started { code } else { (self.library.start)(self.raw.as_ptr()) }
        };
        if code < 0 { Err(self.trouble(code.into())) } else { Ok(()) }
    }

    fn resume(&mut self) -> bool {
        let began = clock::monotonic();
        loop {
            // SAFETY: the device is open.
            let code = unsafe { (self.library.resume)(self.raw.as_ptr()) };
            if code != -libc::EAGAIN || clock::since(began) >= RESUME_WITHIN {
                return code == 0;
            }
            // Nothing reports that a driver has woken its card.
            clock::sleep(RESUME_EVERY);
        }
    }

    fn wait(&mut self, most: Duration) -> Result<bool, CardTrouble> {
        let millis = c_int::try_from(most.as_millis()).unwrap_or(c_int::MAX);
        // SAFETY: the device is open.
        let code = unsafe { (self.library.wait)(self.raw.as_ptr(), millis) };
        self.moved(code.into()).map(|it| it > 0)
    }

    fn avail(&mut self) -> Result<u64, CardTrouble> {
        // SAFETY: the device is open.
        let code = unsafe { (self.library.avail)(self.raw.as_ptr()) };
        self.moved(code).map(|it| it as u64)
    }

    fn read(&mut self, bytes: &mut [u8]) -> Result<usize, CardTrouble> {
        let frames = bytes.len() / self.frame_bytes();
        // SAFETY: the device is open, and the buffer holds `frames` frames of it.
        let code = unsafe {
            (self.library.readi)(self.raw.as_ptr(), bytes.as_mut_ptr().cast(), frames as _)
        };
        self.moved(code)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<usize, CardTrouble> {
        let frames = bytes.len() / self.frame_bytes();
        // SAFETY: the device is open, and the buffer holds `frames` frames of it.
        let code =
            unsafe { (self.library.writei)(self.raw.as_ptr(), bytes.as_ptr().cast(), frames as _) };
        self.moved(code)
    }

    fn drain(&mut self) {
        let longest = Duration::from_secs_f64(self.buffer_frames as f64 / f64::from(self.rate));
        let began = clock::monotonic();
        // SAFETY: the device is open. It does not block, so it is asked until it is done, or should be.
        while unsafe { (self.library.drain)(self.raw.as_ptr()) } == -libc::EAGAIN
            && clock::since(began) < 2 * longest
        {
            clock::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for AlsaPcm {
    fn drop(&mut self) {
        // SAFETY: open, and closed once only.
        unsafe { (self.library.close)(self.raw.as_ptr()) };
    }
}

fn cannot_open(library: &AlsaLibrary, device: &str, code: c_int, is_capture: bool) -> Error {
    let (kind, advice) = match -code {
        libc::ENOENT | libc::ENODEV | libc::ENXIO => {
            let lists = if is_capture { "arecord -L" } else { "aplay -L" };
            (Kind::NotFound, format!("to list the devices, run '{lists}'"))
        }
        libc::EBUSY => {
            (Kind::Busy, "another program uses the sound device: stop that program".to_owned())
        }
        _ => (Kind::Io, "check whether arecord or aplay can use the sound device".to_owned()),
    };
    let what = format!("cannot open the sound device '{device}': {}", library.text(code));
    Error::new(kind, what).advice(advice)
}
