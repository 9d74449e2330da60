//! `pinstripe recover`: repairs a take whose recording was interrupted.

use std::io;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use pinstripe_base::error::Result;
use pinstripe_base::units::format_count;
use pinstripe_record::{Manifest, recover};

use crate::args::refuse_option;
use crate::escape;
use crate::event::Event;
use crate::message::counted;
use crate::run::{Ending, Run};
use crate::time;
use crate::verbs::record::CONTROL;

/// A stream is reported if it is shorter than the longest one by at least this number of seconds.
const MOMENT_SECONDS: f64 = 0.01;

/// Complete the files of a take (a recording) after a crash of the recorder
///
/// Each file is set to the length that the journal of the take covers, and its header is set to the
/// same length. A recovered file contains all data that was durable before the crash. A complete
/// take is not changed; a take that is being recorded is refused.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe recover /mnt/a/take1
  pinstripe recover /mnt/a/take1 --json && pinstripe verify /mnt/a/take1")]
pub struct RecoverArgs {
    /// Directory of the take; for a take in several directories, any one of them
    #[arg(value_name = "TAKE", value_hint = clap::ValueHint::DirPath)]
    take: PathBuf,
}

impl RecoverArgs {
    /// Recovers.
    ///
    /// # Errors
    /// Fails with the errors of [`recover`].
    pub fn run(&self, run: &Run) -> Result<Ending> {
        refuse_option(!run.common.store.is_empty(), "--store", "give the directory of a take")?;
        let outcome = recover(&self.take, &run.monitor)?;
        // A recorder that was killed leaves its sockets, at which no process answers any more.
        let directories = outcome.manifest.directories.iter().chain([&self.take]);
        directories.map(|it| it.join(CONTROL)).for_each(|it| remove_unanswered(&it));
        for file in &outcome.files {
            let event = Event::new("recovered").with_path("path", &file.path);
            let event = event.with("stream", file.stream.as_str()).with("frames", file.frames);
            run.screen.event(&event)?;
            let name = file.path.display();
            run.screen
                .row(&format!("{name}: {} frames are complete", format_count(file.frames)))?;
        }
        if !outcome.removed.is_empty() {
            run.screen.say(&format!(
                "removed {} that had been created in advance and contained no durable data",
                counted(outcome.removed.len() as u64, "file"),
            ));
        }
        run.screen.say(&match (outcome.was_complete, outcome.never_began) {
            (true, _) => "the take was already complete, so nothing was changed".to_owned(),
            (_, true) => {
                "the take was armed but never began, so nothing had been recorded; only the \
                 manifest and the journal of the take remain"
                    .to_owned()
            }
            _ => format!(
                "completed {} with all durable data, which extends to {} after the beginning of \
                 the take",
                counted(outcome.files.len() as u64, "file"),
                time::span(outcome.longest),
            ),
        });
        let shorter = if outcome.was_complete { Vec::new() } else { shorter(&outcome.manifest) };
        if !shorter.is_empty() {
            let named =
                shorter.iter().map(|(name, by)| format!("{} {by:.2} s", escape::text(name)));
            run.screen.say(&format!(
                "{} had less durable data than the longest stream: {}",
                counted(shorter.len() as u64, "stream"),
                named.collect::<Vec<_>>().join(", "),
            ));
        }
        let shorter: serde_json::Map<_, _> =
            shorter.into_iter().map(|(name, by)| (name.to_owned(), by.into())).collect();
        let facts = Event::default()
            .with("shorter_by_seconds", shorter)
            .with("take", outcome.manifest.take.as_str())
            .with("files", outcome.files.len())
            .with("removed_files", outcome.removed.len())
            .with("was_complete", outcome.was_complete)
            .with("never_began", outcome.never_began)
            .with("vouched_seconds", outcome.longest.as_secs_f64());
        Ok(Ending::done(facts))
    }
}

/// Removes a socket if no process answers at it. The directories come from the manifest, which is
/// not trusted, so only such sockets are removed.
fn remove_unanswered(path: &Path) {
    let refused = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    let is_socket = path.symlink_metadata().is_ok_and(|it| it.file_type().is_socket());
    if is_socket && UnixStream::connect(path).is_err_and(|error| refused(&error)) {
        // Without it all is as well.
        let _ = std::fs::remove_file(path);
    }
}

/// The streams that end before the longest one, with the difference in seconds.
fn shorter(manifest: &Manifest) -> Vec<(&str, f64)> {
    let mut ends = vec![0.0_f64; manifest.streams.len()];
    for piece in &manifest.pieces {
        let number = piece.stream as usize;
        let Some(stream) = manifest.streams.get(number) else { continue };
        let end = piece.start_frame.saturating_add(piece.frames);
        ends[number] = ends[number].max(end as f64 / f64::from(stream.shape.rate.max(1)));
    }
    let longest = ends.iter().copied().fold(0.0, f64::max);
    let all = manifest.streams.iter().zip(ends).map(|(it, end)| (&*it.name, longest - end));
    all.filter(|(_, by)| *by >= MOMENT_SECONDS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_of_which_less_was_durable_are_named_with_the_difference() {
        let piece = |piece: u32, stream: u32, start: u64, frames: u64| {
            format!(
                r#"{{"piece":{piece},"stream":{stream},"copy":0,"directory":0,"file":"f{piece}",
                "start_frame":{start},"frames":{frames},"payload_at":4096}}"#
            )
        };
        let stream = |name: &str, rate: u32| {
            format!(
                r#"{{"name":"{name}","shape":{{"format":"s24","channels":1,"rate":{rate}}},
                "source":"test:"}}"#
            )
        };
        let text = format!(
            r#"{{"version":1,"id":"ab","take":"t","state":"recovered","started":{{"seconds":1}},
            "started_seconds":1,"scene":"","tape":"","kind":"wav","directories":["/d"],
            "is_mirrored":false,"ring_bytes":65536,"chunk_bytes":8192,"streams":[{}],
            "pieces":[{}],"gaps":[],"marks":[]}}"#,
            [stream("a", 48_000), stream("b", 96_000), stream("c", 48_000)].join(","),
            [
                piece(0, 0, 0, 48_000),
                piece(1, 0, 48_000, 48_000),
                piece(2, 1, 0, 191_999),
                piece(3, 2, 0, 24_000),
            ]
            .join(","),
        );
        let manifest = Manifest::decode(text.as_bytes()).unwrap();
        assert_eq!(shorter(&manifest), [("c", 1.5)]);
    }
}
