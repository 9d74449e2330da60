//! The live line: the current variant, its rate, and the remaining time.
//!
//! The live line is drawn on standard error if that is a terminal; with `--json`, a progress event
//! is printed each second.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{ProgressDrawTarget, ProgressStyle};
use pinstripe_base::units::format_count;
use pinstripe_lab::{Live, Remaining, RunStage};

use crate::event::Event;
use crate::run::Run;
use crate::run::progress;
use crate::run::screen::Screen;
use crate::time;

const PERIOD: Duration = Duration::from_millis(200);
/// Periods between two events, and between two updates of the rate.
const EVENT_PERIODS: u32 = 5;

/// The live line; it is drawn until this object is dropped.
pub struct Watch {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Starts drawing or printing, if a terminal or a script reads it.
    pub fn start(run: &Run, live: &Arc<Live>) -> Self {
        let is_drawn = progress::is_wanted(&run.common);
        if !is_drawn && !run.screen.is_json() {
            return Watch { stop: None, thread: None };
        }
        let (stop, stopped) = channel();
        let (screen, live) = (Arc::clone(&run.screen), Arc::clone(live));
        let thread = std::thread::spawn(move || {
            let began = Instant::now();
            if is_drawn {
                screen.bar.set_draw_target(ProgressDrawTarget::stderr());
                let style = ProgressStyle::with_template("{wide_msg}");
                screen.bar.set_style(style.expect("the template is valid"));
            }
            let mut seen = WorkSample::now(&live);
            let mut rate = String::new();
            for period in 1.. {
                if stopped.recv_timeout(PERIOD) == Err(RecvTimeoutError::Disconnected) {
                    break;
                }
                if period % EVENT_PERIODS == 0 {
                    let now = WorkSample::now(&live);
                    rate = seen.rate(&now, &live.stage().unit);
                    seen = now;
                    report(&screen, &live, began.elapsed());
                }
                if is_drawn {
                    screen.bar.set_message(line(&stage(&live), &rate));
                    screen.bar.tick();
                }
            }
            screen.bar.finish_and_clear();
            screen.bar.set_draw_target(ProgressDrawTarget::hidden());
        });
        Watch { stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It draws and nothing more: its panic would be no reason to fail.
            let _ = thread.join();
        }
    }
}

/// The work done at a moment.
struct WorkSample {
    at: Instant,
    bytes: u64,
    items: u64,
}

impl WorkSample {
    fn now(live: &Live) -> Self {
        WorkSample { at: Instant::now(), bytes: live.bytes(), items: live.items() }
    }

    /// The rate from this sample to `later`, in bytes per second, or in `unit` per second if no
    /// bytes are moved.
    fn rate(&self, later: &WorkSample, unit: &str) -> String {
        let span = later.at - self.at;
        let items = later.items.saturating_sub(self.items);
        match later.bytes.saturating_sub(self.bytes) {
            0 if items > 0 && !unit.is_empty() => {
                let rate = items as f64 / span.as_secs_f64().max(1e-6);
                format!("{} {unit}", format_count(rate as u64))
            }
            bytes => time::rate(bytes, span),
        }
    }
}

/// The current stage and the time left, which comes from the plan if the plan knows it, else from
/// the rate so far.
fn stage(live: &Live) -> RunStage {
    let stage = live.stage();
    let at_least = stage.remaining.at_least.or_else(|| live.left());
    RunStage { remaining: Remaining { at_least, ..stage.remaining }, ..stage }
}

/// Formats a line such as `measuring rndrd run 4 of at least 30 812.3 MB/s 1 min 20 s to 4 min
/// left`.
fn line(stage: &RunStage, rate: &str) -> String {
    let mut line = stage.label.clone();
    if !stage.variant.is_empty() {
        line += &format!(" {}", stage.variant);
    }
    if stage.runs_at_least > 0 {
        line += &format!("  run {} of at least {}", stage.runs + 1, stage.runs_at_least);
    }
    if !rate.is_empty() {
        line += &format!("  {rate}");
    }
    if let Some(left) = stage.remaining.at_least {
        let most = stage.remaining.at_most.map(|it| format!(" to {}", time::rough_span(it)));
        line += &format!("  {}{} left", time::rough_span(left), most.unwrap_or_default());
    }
    line
}

fn report(screen: &Screen, live: &Live, elapsed: Duration) {
    let stage = stage(live);
    let event = Event::new("progress")
        .with("done_bytes", live.bytes())
        .with("done_items", live.items())
        .with("elapsed_seconds", elapsed.as_secs_f64())
        .with("stage", stage.label)
        .with("variant", stage.variant)
        .with("runs", stage.runs)
        .with("runs_at_least", stage.runs_at_least)
        .with_some("left_seconds", stage.remaining.at_least.map(|left| left.as_secs_f64()))
        .with_some("left_seconds_at_most", stage.remaining.at_most.map(|it| it.as_secs_f64()));
    // A reader that went away is noticed at the end.
    let _ = screen.event(&event);
    screen.flush();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_what_is_known() {
        let mut stage = RunStage { label: "preparing".to_owned(), ..RunStage::default() };
        assert_eq!(line(&stage, ""), "preparing");
        stage = RunStage {
            label: "measuring".to_owned(),
            variant: "seqrd".to_owned(),
            runs: 3,
            runs_at_least: 30,
            remaining: Remaining { at_least: Some(Duration::from_secs(80)), at_most: None },
            ..RunStage::default()
        };
        let whole = "measuring seqrd  run 4 of at least 30  9.0 MB/s  1 min 20 s left";
        assert_eq!(line(&stage, "9.0 MB/s"), whole);
        stage.remaining.at_most = Some(Duration::from_secs(240));
        assert!(line(&stage, "").ends_with("1 min 20 s to 4 min 0 s left"), "{}", line(&stage, ""));
    }
}
