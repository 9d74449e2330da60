//! `pinstripe inspect`: describes an output of a split.

use std::path::{Path, PathBuf};

use pinstripe_base::error::Result;
use pinstripe_base::id::hex;
use pinstripe_base::units::{format_count, format_size};
use pinstripe_split::{Manifest, OutputHead, look_at_output};

use super::split::{codec_name, codec_rows};
use crate::args::refuse_option;
use crate::event::Event;
use crate::message::counted;
use crate::run::{Ending, Run};
use crate::table::{self, Side};
use crate::time;

/// Describe an output of 'pinstripe split': the split that it belongs to, its layout and its
/// content
///
/// One output of a split is enough. Only the first pages, the manifest and the index of the output
/// are read.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe inspect /mnt/a/disk.img.split-0
  pinstripe inspect /mnt/a/disk.img.split-0 --json")]
pub struct InspectArgs {
    /// An output of a split
    #[arg(value_name = "OUT", required = true, value_hint = clap::ValueHint::FilePath)]
    outputs: Vec<PathBuf>,
}

impl InspectArgs {
    /// Shows each.
    ///
    /// # Errors
    /// Fails if a file is not an output of a split.
    pub fn run(&self, run: &Run) -> Result<Ending> {
        refuse_option(
            !run.common.store.is_empty(),
            "--store",
            "give outputs of 'pinstripe split'",
        )?;
        for path in run.each_place(&self.outputs)? {
            self.one(run, &path)?;
        }
        Ok(Ending::done(Event::default().with("outputs", self.outputs.len() as u64)))
    }

    fn one(&self, run: &Run, path: &PathBuf) -> Result<()> {
        let output = look_at_output(path, run.remote_outputs().as_deref())?;
        let head = output.head.as_ref().map_err(pinstripe_base::error::Error::duplicate)?;
        let manifest = output.manifest(head.tag()).unwrap_or_else(|error| {
            run.monitor.warning(path, error);
            None
        });
        let (event, rows) = described(path, head, output.bytes, manifest.as_ref());
        run.screen.event(&event)?;
        run.screen.row(&path.display().to_string())?;
        for (name, value) in rows {
            run.screen.row(&format!("  {name:<22}{value}"))?;
        }
        let Some(manifest) = manifest else { return Ok(()) };
        for used in &manifest.uses {
            let event = Event::new("codec").with("codec", codec_name(used));
            run.screen.event(
                &event
                    .with("blocks", used.blocks)
                    .with("raw_bytes", used.raw_bytes)
                    .with("stored_bytes", used.stored_bytes),
            )?;
        }
        for line in table::lines(&HEAD, &codec_rows(&manifest)) {
            run.screen.row(&format!("  {line}"))?;
        }
        Ok(())
    }
}

const HEAD: [(&str, Side); 4] = [
    ("codec", Side::Left),
    ("blocks", Side::Right),
    ("of the source", Side::Right),
    ("stored", Side::Right),
];

/// Describes an output, for scripts and for people.
fn described(
    path: &Path,
    head: &OutputHead,
    bytes: u64,
    manifest: Option<&Manifest>,
) -> (Event, Vec<(&'static str, String)>) {
    let mut event = Event::new("output")
        .with("path", path.display().to_string())
        .with("split", head.split.to_string())
        .with("layout", head.layout.name())
        .with("output", head.output)
        .with("outputs", head.outputs)
        .with("parity", head.parity)
        .with("strip_bytes", head.strip_bytes)
        .with("block_bytes", head.block_bytes)
        .with("codec", head.codec.as_str())
        .with("source", head.source.as_str())
        .with("made_seconds", head.made_seconds)
        .with("complete", manifest.is_some())
        .with("bytes", bytes)
        .with_some("source_bytes", manifest.map(|it| it.source_bytes).or(head.source_bytes));
    let mut rows = vec![
        ("split", head.split.to_string()),
        ("output", format!("{} of {}", head.output, head.outputs)),
        ("layout", head.layout.name().to_owned()),
        ("may be lost", format!("{} of {}", head.parity, counted(head.outputs.into(), "output"))),
        ("block", format_size(head.block_bytes.into())),
        ("codec asked for", head.codec.clone()),
        ("source", head.source.clone()),
        ("made", time::date(head.made_seconds)),
        (
            "complete",
            if manifest.is_some() { "yes" } else { "no: the split was interrupted" }.to_owned(),
        ),
        ("its bytes", format_size(bytes)),
    ];
    if head.strip_bytes > 0 {
        rows.insert(4, ("strip", format_size(head.strip_bytes.into())));
    }
    if let Some(manifest) = manifest {
        rows.push(("bytes of the source", format_count(manifest.source_bytes)));
        rows.push(("BLAKE3 of the source", hex(&manifest.blake3)));
        let batches = manifest.logs.iter().map(|log| log.batches).sum::<u64>();
        rows.push(("batches", format_count(batches)));
        event = event
            .with("blake3", hex(&manifest.blake3))
            .with("batches", batches)
            .with("zero_bytes", manifest.zero_bytes)
            .with("hole_bytes", manifest.hole_bytes);
    }
    (event, rows)
}
