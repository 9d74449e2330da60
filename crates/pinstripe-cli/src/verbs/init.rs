//! `pinstripe init`: creates a store.

use std::path::PathBuf;

use clap::ValueHint;
use pinstripe::init;
use pinstripe_base::clock;
use pinstripe_base::error::{Error, Result};
use pinstripe_base::units::format_size;
use pinstripe_member::label::{Chunker, Encryption, Padding, StoreConfig};
use pinstripe_stripe::{Chunking, Codec, NewSlot};

use super::key;
use crate::args::refuse_option;
use crate::args::{Size, one_line, size};
use crate::credential::{ask_new, key_file_advice, remove_key_file};
use crate::escape;
use crate::event::Event;
use crate::run::opening;
use crate::run::{Ending, Run};

/// Create a store on one or more members (directories or buckets)
///
/// Each member should be on its own disk, because parity protects against the loss of a disk. A
/// directory that becomes a member must be empty, or must not exist. A member may also be an empty
/// prefix in a bucket: s3://BUCKET/PREFIX with --endpoint, or s3+https://HOST/BUCKET/PREFIX.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe init --member /mnt/a/store --member /mnt/b/store --member /mnt/c/store --parity 1
  pinstripe init --member /mnt/usb/store --key-file ~/usb.key
  pinstripe init --member /mnt/public/store --encryption none
  pinstripe init --member s3://backups/host --endpoint https://s3.example.org
  pinstripe init --member d0 --member d1 --member d2 --parity 1 --same-disk --codec zstd:9")]
pub struct InitArgs {
    /// A directory, or s3://BUCKET/PREFIX, that becomes a member; give --member once for each
    /// member
    #[arg(long = "member", value_name = "DIR", required = true, value_hint = ValueHint::DirPath)]
    members: Vec<PathBuf>,

    /// Number of members that may be lost without loss of data: 0, 1 or 2
    ///
    /// In a store of N members with parity P, parity uses the space of P members, and data uses the
    /// space of the other N minus P members.
    #[arg(long, value_name = "P", default_value_t = 0)]
    parity: u8,

    /// Size of a strip (the part of a stripe on one member): a power of two from 4K to 16M
    #[arg(long, value_name = "SIZE", value_parser = size,
          default_value_t = Size(init::STRIP_BYTES_DEFAULT.into()))]
    strip_size: Size,

    /// Average size of a chunk: a power of two from 4K to 16M; or fixed:SIZE for chunks of equal
    /// length
    ///
    /// Chunks are the unit of deduplication; their boundaries depend on the content. With a value
    /// from fixed:4K to fixed:4M, all chunks have the same length, which suits disk images and
    /// databases.
    #[arg(long, value_name = "SIZE", value_parser = chunking,
          default_value = init::CHUNKING_DEFAULT)]
    chunk_size: Chunking,

    /// Compression codec: raw (no compression), zstd, zstd:LEVEL, lz4, snappy or lzo
    ///
    /// The levels of zstd are -5 to 19, except 0; lower levels are faster, and higher levels
    /// compress better.
    #[arg(long, value_name = "NAME[:LEVEL]", value_parser = codec,
          default_value_t = Codec::default(), allow_hyphen_values = true)]
    codec: Codec,

    /// Encryption: aes256-gcm, chacha20-poly1305 or none
    ///
    /// The password or key file is given by --password-file, --password-command, --key-file (which
    /// creates a missing file) or the environment variable PINSTRIPE_PASSWORD. If no password and
    /// no key file is given, 'init' asks for a password at the terminal. Without the password or
    /// key file, the store cannot be read.
    #[arg(long, value_name = "NAME", value_parser = setting::<Encryption>,
          default_value_t = init::ENCRYPTION_DEFAULT)]
    encryption: Encryption,

    /// How chunk boundaries are chosen: keyed or plain
    ///
    /// With keyed, chunk boundaries depend on a secret of the store, so that chunk lengths reveal
    /// less about the content. With plain, the same content has the same chunk boundaries in all
    /// stores.
    #[arg(long, value_name = "NAME", value_parser = setting::<Chunker>,
          default_value_t = Chunker::Keyed)]
    chunker: Chunker,

    /// How the lengths of encrypted records are rounded up: none or padme
    ///
    /// The method padme adds at most 12 % to the length of a record, and usually 3 %. With padme,
    /// records have only few distinct lengths, which reveal less about the content.
    #[arg(long, value_name = "NAME", value_parser = setting::<Padding>,
          default_value_t = Padding::None)]
    padding: Padding,

    /// Memory that is needed to try one password: 64K to 4G
    #[arg(long, value_name = "SIZE", value_parser = key::kdf_memory,
          default_value_t = key::KDF_MEMORY)]
    kdf_memory: Size,

    /// Allow several members of the store on one disk, or at one endpoint
    ///
    /// Members on one disk are lost together, and share the speed of the disk.
    #[arg(long, visible_alias = "same-disk")]
    same_fate: bool,

    #[cfg(feature = "s3")]
    #[command(flatten)]
    new_buckets: crate::bucket_args::NewBucketArgs,
}

impl InitArgs {
    /// Makes the store.
    ///
    /// # Errors
    /// Fails with the errors of [`init::run`].
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let instead = "give the directories of the new store with --member";
        refuse_option(!run.common.store.is_empty(), "--store", instead)?;
        let instead = "a fault applies only to members of an existing store";
        refuse_option(!run.common.faults.is_empty(), "--fault", instead)?;
        #[cfg(feature = "s3")]
        run.new_buckets(self.new_buckets, &self.members)?;
        // Before a key file is made: a place that is refused leaves none.
        let members = run.each_place(&self.members)?;
        let (slot, made) = self.slot(run)?;
        let options = init::InitOptions {
            members: members.clone(),
            parity: self.parity,
            strip_bytes: self.strip_size.0,
            chunking: self.chunk_size,
            codec: self.codec,
            seal: init::Seal {
                encryption: self.encryption,
                chunker: self.chunker,
                padding: self.padding,
                slot,
                store: None,
            },
            same_disk: self.same_fate,
            now_seconds: clock::now().0,
        };
        let config = init::run_with(&options, &run.to_places())
            .inspect_err(|_| remove_key_file(made.as_deref()))?;
        self.say(run, &config);
        opening::made(run, &members);
        if let Some(file) = &made {
            run.screen.say(&key_file_advice(file));
        }
        for (number, place) in members.iter().enumerate() {
            let event = Event::new("member").with("member", number).with_path("place", place);
            run.screen.event(&event)?;
        }
        Ok(Ending::done(facts(&config, self.members.len())))
    }

    /// The slot that opens the store, and the key file that was created for it.
    fn slot(&self, run: &Run) -> Result<(Option<NewSlot>, Option<PathBuf>)> {
        let key = &run.common.key;
        if self.encryption == Encryption::None {
            let instead = "a store without encryption has no password and no key file";
            refuse_option(key.is_given(), "a password or key file", instead)?;
            return Ok((None, None));
        }
        let made = key.make_key_file()?;
        let credential = match key.read(&run.monitor)? {
            Some(credential) => credential,
            None => ask_new(WAYS)?,
        };
        Ok((Some(key::new_slot(credential, None, self.kdf_memory)?), made))
    }

    fn say(&self, run: &Run, config: &StoreConfig) {
        let say = |line: String| run.screen.say(&line);
        say(format!(
            "created store {}: {}",
            config.store.short(),
            described(config, self.members.len())
        ));
        let first = escape::path(&self.members[0]);
        if config.parity == 0 {
            say("the store has no parity: the loss of any member loses data; see --parity in \
                 'pinstripe init --help'"
                .to_owned());
        }
        say(format!("to back up, run 'pinstripe backup PATH --store {first}'"));
    }
}

const WAYS: &str = "give --password-file FILE, --password-command COMMAND, --key-file FILE \
                    (created if missing) or the variable PINSTRIPE_PASSWORD, run this command at a \
                    terminal, or create a store without encryption with --encryption none";

/// A short description of a store with `members` members.
pub fn described(config: &StoreConfig, members: usize) -> String {
    let members = match (members, config.parity) {
        (1, 0) => "1 member".to_owned(),
        (members, 0) => format!("{members} members without parity"),
        (members, parity) => format!("{members} members; any {parity} of them may be lost"),
    };
    format!("{members}; {}", settings(config))
}

/// A short description of how content is cut, compressed and encrypted.
pub fn settings(config: &StoreConfig) -> String {
    let strip = format_size(config.strip_bytes.into());
    let encryption = match config.encryption {
        Encryption::None => "not encrypted".to_owned(),
        cipher => cipher.to_string(),
    };
    let StoreConfig { chunking, codec, .. } = config;
    format!("strip size {strip}, chunk size {chunking}, codec {codec}, {encryption}")
}

/// The facts of a store with `members` members, for the summary event.
pub fn facts(config: &StoreConfig, members: usize) -> Event {
    Event::default()
        .with("store", config.store.to_string())
        .with("data", members.saturating_sub(config.parity.into()))
        .with("parity", config.parity)
        .with("strip_bytes", config.strip_bytes)
        .with("chunking", config.chunking.as_str())
        .with("codec", config.codec.as_str())
        .with("encryption", config.encryption.to_string())
        .with("chunker", config.chunker.to_string())
        .with("padding", config.padding.to_string())
}

fn setting<T: std::str::FromStr<Err = Error>>(text: &str) -> Result<T, String> {
    text.parse().map_err(one_line)
}

fn chunking(text: &str) -> Result<Chunking, String> {
    text.parse().map_err(one_line)
}

fn codec(text: &str) -> Result<Codec, String> {
    text.parse().map_err(one_line)
}
