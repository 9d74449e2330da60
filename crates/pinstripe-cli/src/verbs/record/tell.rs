//! The messages of a recorder: at the beginning, each second, and at the end.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use indicatif::ProgressDrawTarget;
use pinstripe_base::error::Result;
use pinstripe_base::monitor::Counter;
use pinstripe_base::units::{format_count, format_size};
use pinstripe_record::{
    LevelReader, RecordedFile, RunningTake, StreamLevel, TakeOutcome, TakePhase, TakePlan,
    TakeState, TakeStatus,
};

use crate::escape;
use crate::event::Event;
use crate::message::counted;
use crate::run::{Ending, Run};
use crate::time;

/// The status line on a terminal while a take is recorded.
pub struct Line<'a> {
    run: &'a Run,
    is_drawn: bool,
}

impl<'a> Line<'a> {
    /// A status line, which is drawn only if `is_drawn` is set.
    pub fn new(run: &'a Run, is_drawn: bool) -> Self {
        if is_drawn {
            run.screen.bar.set_draw_target(ProgressDrawTarget::stderr());
            let plain = indicatif::ProgressStyle::with_template("{msg}");
            run.screen.bar.set_style(plain.expect("the template is valid"));
        }
        Line { run, is_drawn }
    }

    /// Shows the status, or prints it as an event.
    pub fn show(&mut self, run: &Run, take: &RunningTake, status: &TakeStatus) {
        if run.screen.is_json() {
            let levels = take.levels(LevelReader::Log);
            let dbfs: Vec<_> = levels.iter().map(StreamLevel::dbfs).collect();
            let clips: Vec<_> = levels.iter().map(|it| it.clips).collect();
            let event = Event::new("recording").with_fields(status);
            // A failure is remembered and reported at the end.
            let _ = run.screen.event(&event.with("levels_dbfs", dbfs).with("clips", clips));
            run.screen.flush();
        }
        if self.is_drawn {
            run.screen.bar.set_message(line(status));
        }
    }
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        if self.is_drawn {
            self.run.screen.bar.finish_and_clear();
            self.run.screen.bar.set_draw_target(ProgressDrawTarget::hidden());
        }
    }
}

/// Formats the status as in `0:01:05 256 streams 4.4 GiB ring 23 % (worst 41 %) lag 1.1 s longest
/// write 3 ms left 2:11`.
fn line(status: &TakeStatus) -> String {
    let left = status.left_seconds.map_or(String::new(), |it| format!("  left {}", clock(it)));
    let overruns = match status.overruns {
        0 => String::new(),
        many => format!(
            "  OVERRUNS {} ({} frames)",
            format_count(many),
            format_count(status.lost_frames)
        ),
    };
    let alarm = if status.has_alarm && status.overruns == 0 { "  RING FULL SOON" } else { "" };
    let phase = match status.phase {
        TakePhase::Armed => "ARMED  ",
        _ => "",
    };
    format!(
        "{phase}{}  {}  {}  ring {:.0} % (worst {:.0} %)  durable lag {:.1} s  longest write {:.0} ms{left}{alarm}{overruns}",
        clock(status.elapsed_seconds),
        counted(status.streams as u64, "stream"),
        format_size(status.written_bytes),
        status.ring_percent,
        status.ring_worst_percent,
        status.durable_lag_ms / 1e3,
        status.longest_write_ms,
    )
}

/// `1:02:03`.
pub fn clock(seconds: f64) -> String {
    let seconds = seconds as u64;
    format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// Reports the beginning of a take.
pub fn begin(
    run: &Run,
    plan: &TakePlan,
    status: &TakeStatus,
    (why, osc): (&str, Option<SocketAddr>),
) {
    run.screen.say(&format!(
        "{} '{}': {}, each with a ring buffer of {}; the recorder stops after {}",
        match plan.armed {
            Some(_) => "armed",
            None => "recording",
        },
        escape::text(&plan.take),
        counted(status.streams as u64, "stream"),
        format_size(plan.ring_bytes),
        match plan.most {
            Some(most) => format!("{}, or when it is interrupted", time::span(most)),
            None => "all inputs have ended, or when it is interrupted".to_owned(),
        },
    ));
    run.screen.say(&format!("write policy: {} ({why})", plan.engine.writes));
    if let Some(osc) = osc {
        run.screen.say(&format!("OSC messages are accepted at {osc}"));
    }
    if plan.armed.is_some() {
        run.screen.say("to begin the take, run 'pinstripe record ctl start DIR/TAKE'");
    }
    let event = Event::new("take").with("take", plan.take.as_str());
    let event = event.with("streams", status.streams).with("ring_bytes", plan.ring_bytes);
    let event = event.with("phase", status.phase.to_string());
    let event = event.with("osc", osc.map(|it| it.to_string()));
    let event = event.with("writes", plan.engine.writes.to_string()).with("why", why);
    let _ = run.screen.event(&event);
    run.screen.flush();
}

/// Reports the end of a take.
pub fn end(run: &Run, outcome: &TakeOutcome) -> Result<Ending> {
    let (figures, last) = (&outcome.figures, &outcome.last);
    for refusal in &outcome.refusals {
        run.monitor.note(refusal);
    }
    if !outcome.is_locked {
        run.monitor.note(
            "the ring buffers are not locked in memory: allow more locked memory with 'ulimit -l'",
        );
    }
    if outcome.manifest.state == TakeState::Armed {
        run.screen.say(
            "the take never began, so nothing was recorded, and the files of the take were removed",
        );
        return Ok(Ending::done(facts(outcome)));
    }
    for (number, stream) in outcome.manifest.streams.iter().enumerate() {
        let status = &last.by_stream[number];
        let files = files(outcome, |it| it.stream as usize == number);
        let event = Event::new("stream").with_fields(status).with("source", stream.source.as_str());
        run.screen.event(&event.with("files", files))?;
    }
    run.screen.say(&format!(
        "recorded {} of {} ({}) in {}, {}",
        time::span(Duration::from_secs_f64(figures.seconds)),
        counted(last.streams as u64, "stream"),
        format_size(figures.written_bytes),
        counted(files(outcome, |_| true) as u64, "file"),
        lost(last, run.count(Counter::Losses)),
    ));
    run.screen.say(&format!(
        "highest ring fill {:.0} %, longest write {:.1} ms, longest durable lag {:.2} s; all data \
         was durable {:.2} s after the end",
        figures.ring_worst_percent,
        figures.longest_write_ms,
        figures.durable_lag_worst_ms / 1e3,
        outcome.stopping.as_secs_f64(),
    ));
    for drift in &last.drifts {
        run.screen.say(&format!(
            "the clock of '{}' differs by {:+} ppm from the clock of this machine",
            escape::text(&drift.source),
            // As a whole number there is no -0.
            drift.ppm.round() as i64
        ));
    }
    let (sync, commit) = (&figures.slowest_sync, &figures.slowest_commit);
    run.screen.say(&format!(
        "slowest commit {:.0} ms at {:.0} s: data {:.0}, syncs {:.0}, journal {:.0}, headers {:.0} ms; slowest sync {:.0} ms of {}",
        commit.ms,
        commit.at_seconds,
        commit.writeback_ms,
        commit.sync_ms,
        commit.journal_ms,
        commit.head_ms,
        sync.ms,
        escape::text(&sync.file),
    ));
    Ok(Ending::done(facts(outcome)))
}

/// The text `nothing lost`, or a list of what was lost: `2 overruns: 4,096 frames lost, 480 frames
/// did not come`.
fn lost(last: &TakeStatus, losses: u64) -> String {
    let frames = |count: u64| format!("{} frames", format_count(count));
    let mut parts = Vec::new();
    if last.overruns > 0 {
        parts.push(format!(
            "{}: {} lost",
            counted(last.overruns, "overrun"),
            frames(last.lost_frames)
        ));
    }
    if last.missing_frames > 0 {
        parts.push(format!("{} were not received from the inputs", frames(last.missing_frames)));
    }
    match last.failed_directories {
        0 => {}
        1 => parts.push("a directory failed".to_owned()),
        many => parts.push(format!("{many} directories failed")),
    }
    match (losses, parts.is_empty()) {
        // Other problems in the ledger were reported when they occurred.
        (0, true) => "nothing lost".to_owned(),
        (0, false) => format!("{}, nothing lost", parts.join(", ")),
        (_, true) => "with the losses that are listed above".to_owned(),
        (_, false) => parts.join(", "),
    }
}

/// The number of files that contain chosen pieces: a pre-roll shares its file with the piece after
/// it.
fn files(outcome: &TakeOutcome, is_chosen: impl Fn(&RecordedFile) -> bool) -> usize {
    let chosen = outcome.manifest.pieces.iter().filter(|it| is_chosen(it));
    chosen.map(|it| (it.directory, &it.file)).collect::<BTreeSet<_>>().len()
}

fn facts(outcome: &TakeOutcome) -> Event {
    Event::default()
        .with_fields(&outcome.last)
        .with("ring_bytes", outcome.manifest.ring_bytes)
        .with("files", files(outcome, |_| true))
        .with("is_locked", outcome.is_locked)
        .with("refusals", outcome.refusals.clone())
        .with("input_cpu_seconds", outcome.input_cpu.as_secs_f64())
        .with("starting_seconds", outcome.starting.as_secs_f64())
        .with("stopping_seconds", outcome.stopping.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_line_says_what_was_lost() {
        let told = |overruns: u64, missing: u64, failed: usize, losses: u64| {
            let status = TakeStatus {
                overruns,
                lost_frames: 4096 * overruns,
                missing_frames: missing,
                failed_directories: failed,
                ..TakeStatus::default()
            };
            lost(&status, losses)
        };
        assert_eq!(told(0, 0, 0, 0), "nothing lost");
        assert_eq!(told(2, 0, 0, 1), "2 overruns: 8,192 frames lost");
        assert_eq!(told(0, 480, 0, 1), "480 frames were not received from the inputs");
        assert_eq!(told(0, 0, 1, 0), "a directory failed, nothing lost");
        assert_eq!(told(0, 0, 2, 3), "2 directories failed");
        assert_eq!(
            told(0, 0, 0, 1),
            "with the losses that are listed above",
            "an input could not be read"
        );
    }
}
