//! Records a take while another take is played, aligned to the sample.
//!
//! Ports of a JACK server are aligned by the server's clock: the first recorded frame is the frame
//! that was heard together with the first played frame, corrected by the latencies that the server
//! reports. Test streams begin when playback begins. Inputs that wait for their source (`pcm:`,
//! `raw:`) are aligned by counting frames: data that passes through other programs and returns
//! keeps its place. RTP streams begin with their first packet.

#![allow(clippy::disallowed_methods, reason = "this module plays in a separate thread")]

use std::sync::Arc;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::Monitor;
use pinstripe_base::sync::Stop;

use crate::input::RecordInput;
use crate::play::{PlayOutcome, PreparedPlay};
use crate::recorder::{RunningTake, TakeOutcome, TakePlan, TakeStatus, record};
use crate::start::CommonStart;
use crate::take::{BesideTake, TakeFolder};

/// How both went.
#[derive(Debug)]
pub struct OverdubOutcome {
    /// The take that was recorded.
    pub recorded: TakeOutcome,
    /// The take that was played.
    pub played: PlayOutcome,
}

/// Records as [`record`] does, and plays another take at the same time. Recording continues after
/// playback has ended; playback ends when recording ends.
///
/// # Errors
/// The errors of [`record`]. A failure of playback is a loss in the ledger, and ends the take.
pub fn overdub(
    plan: &TakePlan,
    mut inputs: Vec<Box<dyn RecordInput>>,
    folders: &dyn Fn() -> Result<Vec<Arc<dyn TakeFolder>>>,
    (stop, monitor): (&Stop, &Arc<Monitor>),
    watch: &mut dyn FnMut(&Arc<RunningTake>, &TakeStatus),
    play: PreparedPlay,
) -> Result<OverdubOutcome> {
    let (start, over) = (Arc::new(CommonStart::new()?), Stop::new()?);
    for input in &mut inputs {
        input.begin_with(&start);
    }
    let (path, manifest) = play.take();
    let beside = BesideTake {
        id: manifest.id.clone(),
        path: path.to_path_buf(),
        first_frame: play.first_frame(),
    };
    let plan = TakePlan { beside: Some(beside), ..plan.clone() };
    let (start, over) = (&start, &over);
    std::thread::scope(|scope| {
        let (mut waiting, mut playing) = (Some(play), None);
        let mut begin_and_watch = |take: &Arc<RunningTake>, status: &TakeStatus| {
            // The files are made, and the inputs run: from now on, playing waits for neither.
            if let Some(play) = waiting.take() {
                take.begin_with(start);
                let take = Arc::clone(take);
                playing = Some(scope.spawn(move || {
                    let played = play.run(Some(start), (over, monitor));
                    if played.is_err() {
                        take.stop.set();
                    }
                    played
                }));
            }
            watch(take, status);
        };
        let recorded = record(&plan, inputs, folders, (stop, monitor), &mut begin_and_watch);
        over.set();
        let played = playing.map(|it| {
            // A panic is reported where it happened.
            it.join().unwrap_or_else(|_| Err(Error::new(Kind::Io, "the playback ended early")))
        });
        let played = played.unwrap_or_else(|| Ok(PlayOutcome::default()));
        let recorded = recorded?;
        let played = played.unwrap_or_else(|error| {
            monitor.loss(&plan.take, error);
            PlayOutcome::default()
        });
        Ok(OverdubOutcome { recorded, played })
    })
}

#[cfg(test)]
mod tests;
