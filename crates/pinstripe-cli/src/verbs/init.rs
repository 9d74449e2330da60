//! `pinstripe init`: make a store.

use std::path::PathBuf;

use clap::ValueHint;
use pinstripe::chunk::Chunking;
use pinstripe::clock;
use pinstripe::codec::Codec;
use pinstripe::error::Result;
use pinstripe::format::label::StoreConfig;
use pinstripe::ops::init;
use pinstripe::units::format_size;

use super::refuse_option;
use crate::args::{Size, one_line, size};
use crate::escape;
use crate::event::Event;
use crate::run::{Ending, Run};

/// Make a store over one or more member directories
///
/// Each member should lie on its own disk: what parity protects against is the loss of a disk.
/// The directories must be missing or empty.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe init --member /mnt/a/store --member /mnt/b/store --member /mnt/c/store --parity 1
  pinstripe init --member /mnt/usb/store
  pinstripe init --member d0 --member d1 --member d2 --parity 1 --same-disk --codec zstd:9")]
pub struct Args {
    /// A directory that becomes a member; once for each member
    #[arg(long = "member", value_name = "DIR", required = true, value_hint = ValueHint::DirPath)]
    members: Vec<PathBuf>,

    /// How many members may be lost: 0, 1 or 2
    ///
    /// Of N members, N minus P hold data; the space of the other P goes into parity.
    #[arg(long, value_name = "P", default_value_t = 0)]
    parity: u8,

    /// Bytes of a stripe on one member: a power of two, 4K to 16M
    #[arg(long, value_name = "SIZE", value_parser = size,
          default_value_t = Size(init::STRIP_BYTES_DEFAULT.into()))]
    strip_size: Size,

    /// Average bytes of a chunk: a power of two, 4K to 16M, or fixed:SIZE
    ///
    /// Chunks are what deduplication works on; they are cut where the content says so. With
    /// fixed:4K to fixed:4M all have one length, which suits disk images and databases.
    #[arg(long, value_name = "SIZE", value_parser = chunking,
          default_value = init::CHUNKING_DEFAULT)]
    chunk_size: Chunking,

    /// How to compress: raw, zstd, zstd:LEVEL, lz4, snappy or lzo
    ///
    /// Levels of zstd are -5 to 19 except 0; lower is faster, higher is smaller.
    #[arg(long, value_name = "NAME[:LEVEL]", value_parser = codec,
          default_value_t = Codec::default(), allow_hyphen_values = true)]
    codec: Codec,

    /// Allow members on one disk
    ///
    /// Such members are lost together, and each waits while the disk serves the others.
    #[arg(long)]
    same_disk: bool,
}

impl Args {
    /// Makes the store.
    ///
    /// # Errors
    /// Those of [`init::run`].
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let instead = "name the directories of the new store with --member";
        refuse_option(run.common.store.is_some(), "--store", instead)?;
        let instead = "it works on the members of a store that exists";
        refuse_option(!run.common.faults.is_empty(), "--fault", instead)?;
        let config = init::run(&init::Options {
            members: self.members.clone(),
            parity: self.parity,
            strip_bytes: self.strip_size.0,
            chunking: self.chunk_size,
            codec: self.codec,
            same_disk: self.same_disk,
            now_seconds: clock::now().0,
        })?;
        self.say(run, &config);
        for (number, place) in self.members.iter().enumerate() {
            let event = Event::new("member").with("member", number).with_path("place", place);
            run.screen.event(&event)?;
        }
        Ok(Ending::done(facts(&config, self.members.len())))
    }

    fn say(&self, run: &Run, config: &StoreConfig) {
        let say = |line: String| run.screen.say(&line);
        say(format!("made store {}: {}", config.store.short(), described(config, self.members.len())));
        let first = escape::path(&self.members[0]);
        if config.parity == 0 {
            say("no parity: the loss of any member loses data; see --parity in \
                 'pinstripe init --help'"
                .to_owned());
        }
        say(format!("next: pinstripe backup PATH --store {first}"));
    }
}

/// A store over so many members in a few words.
pub fn described(config: &StoreConfig, members: usize) -> String {
    let members = match (members, config.parity) {
        (1, 0) => "1 member".to_owned(),
        (members, 0) => format!("{members} members without parity"),
        (members, parity) => format!("{members} members, any {parity} of them may be lost"),
    };
    let strip = format_size(config.strip_bytes.into());
    format!("{members}; strips of {strip}, chunks of {}, {}", config.chunking, config.codec)
}

/// A store over so many members as the summary event has it.
pub fn facts(config: &StoreConfig, members: usize) -> Event {
    Event::default()
        .with("store", config.store.to_string())
        .with("data", members.saturating_sub(config.parity.into()))
        .with("parity", config.parity)
        .with("strip_bytes", config.strip_bytes)
        .with("chunking", config.chunking.as_str())
        .with("codec", config.codec.as_str())
}

fn chunking(text: &str) -> Result<Chunking, String> {
    text.parse().map_err(one_line)
}

fn codec(text: &str) -> Result<Codec, String> {
    text.parse().map_err(one_line)
}
