//! The progress bar: a thread that reads the ledger ten times a second and draws the progress.
//!
//! The bar is drawn on standard error, and only if that is a terminal. With `--json`, the same
//! thread prints a progress event each second. The thread ends, and the bar is erased, when the
//! [`Ticker`] is dropped.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use pinstripe_base::monitor::{Along, Monitor};

use super::screen::Screen;
use crate::args::Common;
use crate::event::Event;
use crate::time;

const TICKS_PER_SECOND: u8 = 10;
/// Ticks of the thread between two progress events.
const EVENT_TICKS: u64 = TICKS_PER_SECOND as u64;
/// A narrower terminal has room for the amounts, but not for a bar.
const BAR_COLUMNS: u16 = 72;
/// A narrower terminal has room only for the share and the time.
const AMOUNT_COLUMNS: u16 = 48;

/// How a verb's progress is measured.
#[derive(Clone, Copy)]
pub struct Gauge {
    /// The verb in its progressive form: "backing up".
    pub label: &'static str,
    /// The number of bytes that were processed so far.
    pub done_bytes: fn(&Monitor) -> u64,
    /// The number of passes over the expected bytes: two if everything that is written is read
    /// again.
    pub passes: u64,
}

/// Whether a bar is to be drawn.
pub fn is_wanted(common: &Common) -> bool {
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    !common.no_progress && !common.quiet && !is_dumb && std::io::stderr().is_terminal()
}

/// A running bar.
pub struct Ticker {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Ticker {
    /// Starts drawing, if standard error is a terminal.
    pub fn start(
        common: &Common,
        screen: &Arc<Screen>,
        monitor: &Arc<Monitor>,
        gauge: Gauge,
    ) -> Self {
        let is_drawn = is_wanted(common);
        if !is_drawn && !screen.is_json() {
            return Ticker { stop: None, thread: None };
        }
        let (stop, stopped) = channel();
        let (screen, monitor) = (Arc::clone(screen), Arc::clone(monitor));
        let thread = std::thread::spawn(move || {
            if is_drawn {
                let target = ProgressDrawTarget::stderr_with_hz(TICKS_PER_SECOND);
                screen.bar.set_draw_target(target);
            }
            let began = Instant::now();
            let period = Duration::from_secs(1) / u32::from(TICKS_PER_SECOND);
            let (mut form, mut flows) = (None, Flows::default());
            for tick in 1.. {
                let reading = GaugeReading::take(&monitor, gauge);
                if is_drawn {
                    reading.draw(&screen.bar, gauge.label, !flows.seen.is_empty(), &mut form);
                }
                if tick % EVENT_TICKS == 0 {
                    screen.bar.set_prefix(flows.line(&monitor));
                    let _ = screen.event(&flows.with(reading.event(began.elapsed())));
                    screen.flush();
                }
                if stopped.recv_timeout(period) == Err(RecvTimeoutError::Disconnected) {
                    break;
                }
            }
            screen.bar.finish_and_clear();
            screen.bar.set_draw_target(ProgressDrawTarget::hidden());
        });
        Ticker { stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It draws and nothing more: its panic would be no reason to fail.
            let _ = thread.join();
        }
    }
}

/// The rates of parts of the run, such as outputs, in the last second.
#[derive(Default)]
struct Flows {
    /// By flow: bytes and time at the last update.
    seen: Vec<(u64, Duration)>,
    /// For each output, its name and the number of bytes in the last second.
    rates: Vec<(String, u64)>,
    limit: Option<String>,
}

impl Flows {
    /// The rates of all outputs, and the stage that took the most time; must be called once a
    /// second.
    fn line(&mut self, monitor: &Monitor) -> String {
        let flows = monitor.flows();
        self.seen.resize(flows.len(), (0, Duration::ZERO));
        self.rates.clear();
        let mut most = Duration::ZERO;
        for (flow, seen) in flows.iter().zip(&mut self.seen) {
            let now = (flow.bytes(), flow.time());
            let (bytes, time) = (now.0 - seen.0, now.1.saturating_sub(seen.1));
            *seen = now;
            match flow.along {
                Along::Output => self.rates.push((flow.name.clone(), bytes)),
                Along::Stage if time > most => {
                    most = time;
                    self.limit = Some(flow.name.clone());
                }
                Along::Stage => {}
            }
        }
        let second = Duration::from_secs(1);
        let rate = |(name, bytes): &(String, u64)| format!("{name} {}", time::rate(*bytes, second));
        let mut parts: Vec<String> = self.rates.iter().map(rate).collect();
        parts.extend(self.limit.iter().map(|limit| format!("waiting for {limit}")));
        parts.join("  ")
    }

    /// Adds the rates to an event.
    fn with(&self, event: Event) -> Event {
        if self.rates.is_empty() {
            return event;
        }
        let outputs: serde_json::Map<String, serde_json::Value> =
            self.rates.iter().map(|(name, bytes)| (name.clone(), (*bytes).into())).collect();
        event.with("output_bytes_per_second", outputs).with_some("limit", self.limit.clone())
    }
}

struct GaugeReading {
    done_bytes: u64,
    total_bytes: Option<u64>,
}

/// The form of a bar: whether the total is known, how many columns there are, and whether parts of
/// the run have a line of their own.
type BarForm = (bool, u16, bool);

impl GaugeReading {
    fn take(monitor: &Monitor, gauge: Gauge) -> Self {
        let done_bytes = (gauge.done_bytes)(monitor);
        let (expected, _) = monitor.expected();
        let total_bytes = (expected > 0).then(|| (expected * gauge.passes).max(done_bytes));
        GaugeReading { done_bytes, total_bytes }
    }

    fn draw(
        &self,
        bar: &ProgressBar,
        label: &'static str,
        has_flows: bool,
        form: &mut Option<BarForm>,
    ) {
        let columns = rustix::termios::tcgetwinsize(std::io::stderr()).map_or(80, |it| it.ws_col);
        let now = (self.total_bytes.is_some(), columns, has_flows);
        if *form != Some(now) {
            *form = Some(now);
            bar.set_style(style(now));
            bar.set_message(label);
        }
        if let Some(total) = self.total_bytes {
            bar.set_length(total);
        }
        bar.set_position(self.done_bytes);
        bar.tick();
    }

    fn event(&self, elapsed: Duration) -> Event {
        Event::new("progress")
            .with("done_bytes", self.done_bytes)
            .with_some("total_bytes", self.total_bytes)
            .with("elapsed_seconds", elapsed.as_secs_f64())
    }
}

fn style((is_total_known, columns, has_flows): BarForm) -> ProgressStyle {
    let template = match (is_total_known, columns) {
        (true, BAR_COLUMNS..) => {
            "{msg} [{wide_bar}] {percent:>3} %  {binary_bytes} of {binary_total_bytes}  \
             {binary_bytes_per_sec}  {left}"
        }
        (true, AMOUNT_COLUMNS..) => {
            "{percent:>3} %  {binary_bytes} of {binary_total_bytes}  {binary_bytes_per_sec}  \
             {left}"
        }
        (true, _) => "{percent:>3} %  {left}",
        (false, AMOUNT_COLUMNS..) => {
            "{msg}  {binary_bytes}  {binary_bytes_per_sec}  {so_far} so far"
        }
        (false, _) => "{binary_bytes}  {so_far}",
    };
    let template = match has_flows {
        true => format!("{template}\n{{prefix}}"),
        false => template.to_owned(),
    };
    let style = ProgressStyle::with_template(&template).expect("the templates above are valid");
    style.with_key("left", write_left).with_key("so_far", write_so_far).progress_chars("=> ")
}

fn write_so_far(state: &ProgressState, out: &mut dyn std::fmt::Write) {
    let _ = out.write_str(&time::rough_span(state.elapsed()));
}

/// Writes the time left, which is unknown until some work was done.
fn write_left(state: &ProgressState, out: &mut dyn std::fmt::Write) {
    let left = state.eta();
    // A line that cannot be drawn is drawn again at the next tick.
    let _ = if left.is_zero() && !state.is_finished() && state.pos() < state.len().unwrap_or(0) {
        out.write_str("...")
    } else {
        write!(out, "{} left", time::rough_span(left))
    };
}

#[cfg(test)]
mod tests {
    use pinstripe_base::monitor::Counter;

    use super::*;

    const GAUGE: Gauge = Gauge {
        label: "testing",
        done_bytes: |monitor| monitor.get(Counter::ReadBytes),
        passes: 2,
    };

    #[test]
    fn every_form_has_a_sound_template() {
        for columns in [0, 20, 48, 72, 300] {
            for has_flows in [false, true] {
                style((true, columns, has_flows));
                style((false, columns, has_flows));
            }
        }
    }

    #[test]
    fn more_than_expected_is_no_more_than_all() {
        let monitor = Monitor::default();
        monitor.add(Counter::ReadBytes, 30);
        assert_eq!(GaugeReading::take(&monitor, GAUGE).total_bytes, None);
        monitor.set_total(100, 1);
        assert_eq!(GaugeReading::take(&monitor, GAUGE).total_bytes, Some(200));
        monitor.add(Counter::ReadBytes, 300);
        let reading = GaugeReading::take(&monitor, GAUGE);
        assert_eq!((reading.done_bytes, reading.total_bytes), (330, Some(330)));
    }
}
