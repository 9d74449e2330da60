//! The speed and output size of each codec on each kind of data, and the cost of the skip detector.
//!
//! Thread CPU time, best of three passes, every round trip compared. Records are cut at fixed
//! lengths and touched before the clock starts, because in a backup they come from the hash: what
//! is measured is the codec and nothing else.
//!
//! Arguments: `--mib N` (of each corpus, default 32), `--records 64K,256K,1M`,
//! `--codecs zstd:1,lz4`, and any number of `NAME=PATH` corpora (a file, or a directory whose
//! files are joined in path order) instead of the built-in four.

mod corpora;

use std::hint::black_box;

use pinstripe_base::error::Error;
use pinstripe_base::units::{format_size, parse_size};
use pinstripe_stripe::{Codec, Decoder, Encoded, Encoder, Look, looks_incompressible};
use rustix::time::{ClockId, clock_gettime};

use self::corpora::{Corpus, built_in, given};

const PASSES: usize = 3;
const DEFAULT_CODECS: &str = "raw,zstd:-5,zstd:-1,zstd:1,zstd:2,zstd:3,lz4,snappy,lzo";
const HEADER: [&str; 7] =
    ["corpus", "record", "codec", "compress MB/s", "decompress MB/s", "ratio", "stored raw"];

/// Measures and returns the table, its header first.
///
/// # Errors
/// A sentence about the argument, file or codec that is wrong.
pub fn run(args: &[String]) -> Result<Vec<Vec<String>>, String> {
    let plan = Plan::read(args)?;
    let mut rows = vec![HEADER.map(String::from).to_vec()];
    for (name, data) in &plan.corpora {
        for &record_bytes in &plan.record_bytes {
            let mut add = |subject: &str, cells: [String; 4]| {
                let mut row =
                    vec![name.clone(), format_size(record_bytes as u64), subject.to_string()];
                row.extend(cells);
                rows.push(row);
            };
            add("(skip detector)", detector_cells(data, record_bytes));
            for &codec in &plan.codecs {
                let mut subject = Ours::new(codec)?;
                add(&codec.to_string(), measure(&mut subject, data, record_bytes)?);
            }
            #[cfg(feature = "lzo-oracle")]
            add("liblzo2", measure(&mut liblzo2::Liblzo2::new(), data, record_bytes)?);
        }
    }
    Ok(rows)
}

/// The measurements: every codec on every corpus at every record length.
struct Plan {
    corpora: Vec<Corpus>,
    record_bytes: Vec<usize>,
    codecs: Vec<Codec>,
}

impl Plan {
    fn read(args: &[String]) -> Result<Plan, String> {
        let (mut mib, mut records, mut codecs) = (32, "64K,256K,1M", DEFAULT_CODECS);
        let mut paths = Vec::new();
        let mut args = args.iter().map(String::as_str);
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or(format!("{arg} needs a value"));
            match arg {
                "--mib" => mib = value()?.parse().map_err(|_| "--mib needs a number")?,
                "--records" => records = value()?,
                "--codecs" => codecs = value()?,
                _ => paths.push(arg.split_once('=').ok_or(format!("'{arg}' is no NAME=PATH"))?),
            }
        }
        let bytes = mib << 20;
        Ok(Plan {
            corpora: if paths.is_empty() { built_in(bytes) } else { given(&paths, bytes)? },
            record_bytes: records.split(',').map(record_length).collect::<Result<_, _>>()?,
            codecs: codecs
                .split(',')
                .map(|codec| codec.parse().map_err(|e: Error| e.to_string()))
                .collect::<Result<_, _>>()?,
        })
    }
}

fn record_length(text: &str) -> Result<usize, String> {
    match parse_size(text) {
        Ok(0) => Err("a record has at least one byte".into()),
        Ok(bytes) => Ok(bytes as usize),
        Err(why) => Err(why.to_string()),
    }
}

/// Something that encodes records and brings them back.
trait Subject {
    fn encode(&mut self, raw: &[u8], out: &mut Vec<u8>) -> Result<Encoded, String>;
    fn decode(
        &mut self,
        encoded: Encoded,
        stored: &[u8],
        raw_bytes: usize,
        back: &mut Vec<u8>,
    ) -> Result<(), String>;
}

/// The library's encoder and decoder.
struct Ours {
    encoder: Encoder,
    decoder: Decoder,
}

impl Ours {
    fn new(codec: Codec) -> Result<Self, String> {
        let encoder = Encoder::new(codec).map_err(|e| e.to_string())?;
        Ok(Ours { encoder, decoder: Decoder::new() })
    }
}

impl Subject for Ours {
    fn encode(&mut self, raw: &[u8], out: &mut Vec<u8>) -> Result<Encoded, String> {
        self.encoder.encode(raw, out).map_err(|e| e.to_string())
    }

    fn decode(
        &mut self,
        encoded: Encoded,
        stored: &[u8],
        raw_bytes: usize,
        back: &mut Vec<u8>,
    ) -> Result<(), String> {
        let id = encoded.codec_id();
        self.decoder.decode(id, stored, raw_bytes, back).map_err(|e| e.to_string())
    }
}

/// The last four cells of a row.
fn measure(
    subject: &mut impl Subject,
    data: &[u8],
    record_bytes: usize,
) -> Result<[String; 4], String> {
    let (mut out, mut back) = (Vec::new(), Vec::new());
    let (mut best_encode, mut best_decode) = (f64::MAX, f64::MAX);
    let (mut stored_bytes, mut raw_records) = (0, 0);
    for _ in 0..PASSES {
        let (mut encode_seconds, mut decode_seconds) = (0.0, 0.0);
        (stored_bytes, raw_records) = (0, 0);
        for raw in data.chunks(record_bytes) {
            touch(raw);
            let start = cpu_seconds();
            let encoded = subject.encode(raw, &mut out)?;
            encode_seconds += cpu_seconds() - start;
            let stored = encoded.stored(raw, &out);
            stored_bytes += stored.len();
            raw_records += usize::from(encoded == Encoded::Raw);
            let start = cpu_seconds();
            subject.decode(encoded, stored, raw.len(), &mut back)?;
            decode_seconds += cpu_seconds() - start;
            if back != raw {
                return Err("a record came back with other bytes".into());
            }
        }
        best_encode = best_encode.min(encode_seconds);
        best_decode = best_decode.min(decode_seconds);
    }
    Ok([
        rate(data.len(), best_encode),
        rate(data.len(), best_decode),
        format!("{:.2}", data.len() as f64 / stored_bytes as f64),
        raw_records.to_string(),
    ])
}

/// The skip detector alone: its rate, and how many records it would have stored raw.
fn detector_cells(data: &[u8], record_bytes: usize) -> [String; 4] {
    let (mut seconds, mut skipped) = (f64::MAX, 0);
    for _ in 0..PASSES {
        skipped = 0;
        let mut pass_seconds = 0.0;
        for raw in data.chunks(record_bytes) {
            touch(raw);
            let start = cpu_seconds();
            let skip = black_box(looks_incompressible(raw, Look::Thorough));
            pass_seconds += cpu_seconds() - start;
            skipped += usize::from(skip);
        }
        seconds = seconds.min(pass_seconds);
    }
    [rate(data.len(), seconds), String::new(), String::new(), skipped.to_string()]
}

/// Brings a record into the cache.
fn touch(raw: &[u8]) {
    black_box(raw.iter().fold(0u8, |sum, byte| sum ^ byte));
}

fn rate(bytes: usize, seconds: f64) -> String {
    format!("{:.0}", bytes as f64 / seconds.max(1e-9) / 1e6)
}

/// CPU time of this thread: what others do on the machine does not count.
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The C library to compare our LZO with, if it is installed and requested.
#[cfg(feature = "lzo-oracle")]
mod liblzo2 {
    use std::ffi::{c_int, c_ulong, c_void};

    use pinstripe_stripe::{Codec, Encoded, lzo_max_stored_bytes};

    #[link(name = "lzo2")]
    unsafe extern "C" {
        fn lzo1x_1_compress(
            from: *const u8,
            from_bytes: c_ulong,
            to: *mut u8,
            to_bytes: *mut c_ulong,
            memory: *mut c_void,
        ) -> c_int;
        fn lzo1x_decompress_safe(
            from: *const u8,
            from_bytes: c_ulong,
            to: *mut u8,
            to_bytes: *mut c_ulong,
            memory: *mut c_void,
        ) -> c_int;
    }

    pub struct Liblzo2 {
        memory: Vec<u64>,
        scratch: Vec<u8>,
    }

    impl Liblzo2 {
        pub fn new() -> Self {
            // LZO1X_1_MEM_COMPRESS is 16384 pointers.
            Liblzo2 { memory: vec![0; 16_384], scratch: Vec::new() }
        }
    }

    impl super::Subject for Liblzo2 {
        fn encode(&mut self, raw: &[u8], out: &mut Vec<u8>) -> Result<Encoded, String> {
            let room = lzo_max_stored_bytes(raw.len());
            if self.scratch.len() < room {
                self.scratch.resize(room, 0);
            }
            let mut bytes: c_ulong = 0;
            // SAFETY: both buffers are as long as liblzo2 asks for, and live through the call.
            let code = unsafe {
                lzo1x_1_compress(
                    raw.as_ptr(),
                    raw.len() as c_ulong,
                    self.scratch.as_mut_ptr(),
                    &mut bytes,
                    self.memory.as_mut_ptr().cast(),
                )
            };
            out.clear();
            out.extend_from_slice(&self.scratch[..bytes as usize]);
            if code == 0 { Ok(Encoded::Packed(Codec::Lzo.id())) } else { Err("liblzo2".into()) }
        }

        fn decode(
            &mut self,
            _: Encoded,
            stored: &[u8],
            raw_bytes: usize,
            back: &mut Vec<u8>,
        ) -> Result<(), String> {
            back.resize(raw_bytes, 0);
            let mut bytes = raw_bytes as c_ulong;
            // SAFETY: both lengths are those of their buffers; the decoder needs no memory.
            let code = unsafe {
                lzo1x_decompress_safe(
                    stored.as_ptr(),
                    stored.len() as c_ulong,
                    back.as_mut_ptr(),
                    &mut bytes,
                    std::ptr::null_mut(),
                )
            };
            if code == 0 { Ok(()) } else { Err("liblzo2".into()) }
        }
    }
}
