//! The speed of each cipher at sealing and opening records, by two libraries: the table of decision
//! 0008.
//!
//! Thread CPU time on one core, best of several passes, every opened record compared. The last rows
//! are whole records as a backup makes them: sealed, with both checksums.

use std::hint::black_box;

use aes_gcm::aead::{AeadInOut, KeyInit};
use aws_lc_rs::aead::{AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use pinstripe_base::id::{ChunkId, StoreId};
use pinstripe_base::units::format_size;
use pinstripe_lab::{Align, Cell, Table};
use pinstripe_member::keys::Keys;
use pinstripe_member::label::{Encryption, Padding};
use pinstripe_member::record::{ChunkRow, RecordKind};
use pinstripe_stripe::{Opener, Sealer};
use rustix::time::{ClockId, clock_gettime};

use super::pairs;
use crate::Result;

/// The purpose of the case, and its arguments.
pub const ABOUT: &str =
    "ciphers by two libraries, and whole records: --mib N (per pass, default 64)";

const LENGTHS: [usize; 3] = [4 << 10, 64 << 10, 512 << 10];
const PASSES: usize = 5;
const AAD: [u8; 24] = [7; 24];

/// Seals and opens a buffer in place.
trait Subject {
    fn seal(&mut self, buffer: &mut Vec<u8>) -> Result<()>;
    fn open(&mut self, buffer: &mut Vec<u8>) -> Result<()>;
}

struct AwsLc(LessSafeKey, u64);

struct RustCrypto<C>(C, u64);

/// A whole record, sealed and summed.
struct Records(Sealer, Opener);

fn nonce(counter: &mut u64) -> [u8; 12] {
    *counter += 1;
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&counter.to_le_bytes());
    nonce
}

fn refused<E>(_: E) -> String {
    "the cipher refuses".to_owned()
}

impl Subject for AwsLc {
    fn seal(&mut self, buffer: &mut Vec<u8>) -> Result<()> {
        let nonce = Nonce::assume_unique_for_key(nonce(&mut self.1));
        self.0.seal_in_place_append_tag(nonce, Aad::from(AAD), buffer).map_err(refused)
    }

    fn open(&mut self, buffer: &mut Vec<u8>) -> Result<()> {
        let mut last = [0; 12];
        last[4..].copy_from_slice(&self.1.to_le_bytes());
        let nonce = Nonce::assume_unique_for_key(last);
        let plain = self.0.open_in_place(nonce, Aad::from(AAD), buffer).map_err(refused)?.len();
        buffer.truncate(plain);
        Ok(())
    }
}

impl<C: AeadInOut> Subject for RustCrypto<C> {
    fn seal(&mut self, buffer: &mut Vec<u8>) -> Result<()> {
        let nonce = nonce(&mut self.1);
        let nonce = nonce.as_slice().try_into().map_err(refused)?;
        self.0.encrypt_in_place(nonce, &AAD, buffer).map_err(refused)
    }

    fn open(&mut self, buffer: &mut Vec<u8>) -> Result<()> {
        let mut last = [0; 12];
        last[4..].copy_from_slice(&self.1.to_le_bytes());
        let nonce = last.as_slice().try_into().map_err(refused)?;
        self.0.decrypt_in_place(nonce, &AAD, buffer).map_err(refused)
    }
}

impl Subject for Records {
    fn seal(&mut self, buffer: &mut Vec<u8>) -> Result<()> {
        let rows = vec![ChunkRow { id: ChunkId([9; 32]), raw_bytes: buffer.len() as u32 }];
        let content = std::mem::take(buffer);
        self.0.begin(buffer, &rows);
        buffer.extend_from_slice(&content);
        let bytes = content.len() as u32;
        self.0.close(buffer, RecordKind::Data, 0, rows, bytes).map_err(|e| e.to_string())?;
        Ok(())
    }

    fn open(&mut self, buffer: &mut Vec<u8>) -> Result<()> {
        let opened = self.1.record(buffer).map_err(|error| error.to_string())?;
        buffer.truncate(opened.stored.end);
        buffer.drain(..opened.stored.start);
        Ok(())
    }
}

/// Measures and returns the table.
pub fn run(args: &[String]) -> Result<Vec<Table>> {
    let found = pairs(args, &["--mib"])?;
    let mib: usize = match found.first() {
        Some((_, text)) => text.parse().map_err(|_| format!("'{text}' is no number of MiB"))?,
        None => 64,
    };
    let note = "MB of content per second of one core, best of five passes; every record is opened \
                again and compared. \"record\" has head, table and checksums, and one copy of the content.";
    let columns = [
        ("cipher", Align::Left),
        ("by", Align::Left),
        ("bytes", Align::Right),
        ("seal MB/s", Align::Right),
        ("open MB/s", Align::Right),
    ];
    let mut table = Table::new("Seals", note, &columns);
    for length in LENGTHS {
        for (cipher, by, mut subject) in subjects()? {
            let (seal, open) = measure(&mut *subject, length, (mib << 20) / length)?;
            table.row([
                cipher.into(),
                by.into(),
                format_size(length as u64).into(),
                Cell::Number(seal, 0),
                Cell::Number(open, 0),
            ]);
        }
    }
    Ok(vec![table])
}

type Named = (String, &'static str, Box<dyn Subject>);

fn subjects() -> Result<Vec<Named>> {
    let key = [3; 32];
    let aws = |algorithm| -> Result<Box<dyn Subject>> {
        let key = UnboundKey::new(algorithm, &key).map_err(refused)?;
        Ok(Box::new(AwsLc(LessSafeKey::new(key), 0)))
    };
    let aes = aes_gcm::Aes256Gcm::new_from_slice(&key).map_err(refused)?;
    let chacha = chacha20poly1305::ChaCha20Poly1305::new_from_slice(&key).map_err(refused)?;
    let keys = Keys::generate_sealing(StoreId([1; 16])).map_err(|error| error.to_string())?;
    let records = |encryption| -> Result<Box<dyn Subject>> {
        let sealer = Sealer::new(encryption, Padding::None, &keys).map_err(|e| e.to_string())?;
        Ok(Box::new(Records(sealer, Opener::new(&keys))))
    };
    let [gcm, poly] = [Encryption::Aes256Gcm, Encryption::ChaCha20Poly1305];
    Ok(vec![
        (gcm.to_string(), "aws-lc-rs", aws(&AES_256_GCM)?),
        (gcm.to_string(), "RustCrypto", Box::new(RustCrypto(aes, 0))),
        (poly.to_string(), "aws-lc-rs", aws(&CHACHA20_POLY1305)?),
        (poly.to_string(), "RustCrypto", Box::new(RustCrypto(chacha, 0))),
        (gcm.to_string(), "record", records(gcm)?),
        (poly.to_string(), "record", records(poly)?),
        (
            Encryption::None.to_string(),
            "record",
            Box::new(Records(Sealer::none(), Opener::clear())),
        ),
    ])
}

fn measure(subject: &mut dyn Subject, length: usize, count: usize) -> Result<(f64, f64)> {
    let content: Vec<u8> = (0..length).map(|at| ((at * 31) >> 3) as u8).collect();
    let mut best = (0.0_f64, 0.0_f64);
    let mut buffer = Vec::with_capacity(length + 1024);
    for _ in 0..PASSES {
        let (mut sealing, mut opening) = (0.0, 0.0);
        for _ in 0..count.max(1) {
            buffer.clear();
            buffer.extend_from_slice(&content);
            let began = cpu_seconds();
            subject.seal(black_box(&mut buffer))?;
            let sealed = cpu_seconds();
            if buffer.len() < length {
                return Err("what was sealed is shorter than the content".to_owned());
            }
            let before = cpu_seconds();
            subject.open(black_box(&mut buffer))?;
            let opened = cpu_seconds();
            if buffer != content {
                return Err("what was opened is not what was sealed".to_owned());
            }
            sealing += sealed - began;
            opening += opened - before;
        }
        let megabytes = (length * count.max(1)) as f64 / 1e6;
        best = (best.0.max(megabytes / sealing), best.1.max(megabytes / opening));
    }
    Ok(best)
}

fn cpu_seconds() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cipher_has_a_row_per_length() {
        let table = run(&["--mib".to_owned(), "0".to_owned()]).unwrap().remove(0).to_json();
        let rows = table["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 7 * LENGTHS.len());
        assert!(rows.iter().all(|row| row["seal MB/s"].as_f64().unwrap() > 0.0));
        assert!(run(&["--mib".to_owned(), "x".to_owned()]).is_err());
    }
}
