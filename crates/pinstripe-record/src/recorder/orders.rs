//! Orders to a running take, from a control socket, a remote control or a key press.

use std::collections::BTreeSet;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use pinstripe_base::clock;
use pinstripe_base::error::{Error, Kind, Result};

use super::status::{RunningTake, TakePhase};
use crate::engine::SharedStream;
use crate::header::LocalTime;
use crate::limits::MARKS_MAX;
use crate::start::CommonStart;
use crate::take::{Manifest, TakeState};

/// An order to a running take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TakeOrder {
    /// Requests the status, and changes nothing.
    Status,
    /// Begins an armed take.
    Start,
    /// End.
    Stop,
    /// Begins a new file of every stream.
    Split,
    /// Marks the current place with a text.
    Mark(String),
    /// Arms streams: `all`, a name, or numbers as in `1,4-8`.
    Arm(String),
    /// Disarms streams, which are then not recorded any more.
    Disarm(String),
}

/// The words of orders, as they are written on a line.
const WORDS: &str =
    "one of the commands status, start, stop, split, mark TEXT, arm STREAM and disarm STREAM";

impl FromStr for TakeOrder {
    type Err = Error;

    fn from_str(line: &str) -> Result<Self> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let text = rest.trim().to_owned();
        let is_needed = matches!(word, "arm" | "disarm");
        let is_taken = is_needed || word == "mark";
        let order = match word {
            "status" => TakeOrder::Status,
            "start" => TakeOrder::Start,
            "stop" => TakeOrder::Stop,
            "split" => TakeOrder::Split,
            "mark" => TakeOrder::Mark(text.clone()),
            "arm" => TakeOrder::Arm(text.clone()),
            "disarm" => TakeOrder::Disarm(text.clone()),
            _ => {
                let error = Error::new(Kind::Usage, "this is not a command of the recorder");
                return Err(error.expected(WORDS, word));
            }
        };
        match (text.is_empty(), is_needed, is_taken) {
            (true, true, _) => {
                let error = Error::new(Kind::Usage, format!("the command '{word}' needs a stream"));
                Err(error.advice("give the name or the number of a stream, or 'all'"))
            }
            (false, _, false) => {
                Err(Error::new(Kind::Usage, format!("the command '{word}' takes no text")))
            }
            _ => Ok(order),
        }
    }
}

impl RunningTake {
    /// Carries out an order.
    ///
    /// # Errors
    /// [`Kind::Refused`] if the order is not possible now; [`Kind::NotFound`] if the stream does
    /// not exist.
    pub fn obey(&self, order: &TakeOrder) -> Result<()> {
        match order {
            TakeOrder::Status => Ok(()),
            TakeOrder::Start => self.start(),
            TakeOrder::Stop => {
                self.stop.set();
                Ok(())
            }
            TakeOrder::Split => self.split(),
            TakeOrder::Mark(text) => self.mark(text),
            TakeOrder::Arm(streams) => self.arm(streams, true),
            TakeOrder::Disarm(streams) => self.arm(streams, false),
        }
    }

    /// Begins an armed take.
    ///
    /// # Errors
    /// [`Kind::Refused`] if the take has begun, is ending, or has no armed stream.
    pub fn start(&self) -> Result<()> {
        if self.stop.is_set() {
            return Err(Error::new(Kind::Refused, "the take is already ending"));
        }
        let pre_roll = self.armed.unwrap_or_default();
        let (seconds, nanos) = clock::now();
        let now = LocalTime { seconds: seconds + self.zone_seconds, nanos };
        self.shared.start(pre_roll, self.most, (now, self.zone_seconds))?;
        self.started.set();
        Ok(())
    }

    /// Begins a new file of every armed stream with the next frame.
    ///
    /// # Errors
    /// [`Kind::Refused`] before the take begins, and after too many splits.
    pub fn split(&self) -> Result<()> {
        self.shared.split()
    }

    /// Marks the current place of every stream.
    ///
    /// # Errors
    /// [`Kind::Refused`] before the take begins, and after too many marks.
    pub fn mark(&self, text: &str) -> Result<()> {
        if self.shared.beginning().is_none() {
            return Err(Error::new(
                Kind::Refused,
                "the take has not begun, so nothing can be marked",
            ));
        }
        match self.shared.mark(text) {
            true => Ok(()),
            false => Err(Error::new(Kind::Refused, "the take has too many marks")
                .expected(format!("at most {MARKS_MAX} marks"), "one more")),
        }
    }

    /// Arms or disarms streams: `all`, a name, or numbers as in `1,4-8`.
    ///
    /// # Errors
    /// [`Kind::NotFound`] for an unknown stream; [`Kind::Refused`] if this was done too often.
    pub fn arm(&self, streams: &str, is_armed: bool) -> Result<()> {
        let names: Vec<&str> =
            self.shared.streams.iter().map(|it| it.facts.name.as_str()).collect();
        self.shared.arm(&chosen(streams, &names)?, is_armed).map(drop)
    }

    /// The current phase of the take.
    pub fn phase(&self) -> TakePhase {
        match self.shared.beginning() {
            _ if self.stop.is_set() => TakePhase::Stopping,
            None => TakePhase::Armed,
            Some(_) => TakePhase::Recording,
        }
    }

    /// The elapsed time of the take at a moment; before an armed take begins, the time since its
    /// inputs were opened.
    pub(super) fn elapsed(&self, now: Duration) -> Duration {
        self.shared.beginning().map_or(now, |begun| now.saturating_sub(begun.at) + begun.pre_roll)
    }

    /// The pre-roll with which the take began, or with which it would begin now.
    pub(super) fn pre_roll(&self) -> Duration {
        let kept = || self.armed.unwrap_or_default().min(self.shared.now());
        self.shared.beginning().map_or_else(kept, |begun| begun.pre_roll)
    }

    /// Makes the length of the take count from the common start, not from the opening of its
    /// inputs, because both takes may wait for a server for seconds.
    pub(crate) fn begin_with(&self, start: &Arc<CommonStart>) {
        self.common_start.get_or_init(|| Arc::clone(start));
    }

    /// The moment at which the take will end, once that is known.
    pub(super) fn end_at(&self) -> Option<Duration> {
        let begun = match self.common_start.get() {
            Some(start) => start.begun_at()?.saturating_duration_since(self.shared.began),
            None => self.shared.beginning()?.at,
        };
        Some(begun + self.most?)
    }

    /// For each stream, the number of frames that its input had delivered before the first frame of
    /// the take.
    pub(super) fn origins(&self) -> Vec<i64> {
        let origin = |it: &SharedStream| it.ring.origin() / it.facts.shape.frame_bytes() as i64;
        self.shared.streams.iter().map(origin).collect()
    }

    /// Records in manifests that an armed take has begun; heads and journals already contain this.
    pub(super) fn report_beginning(&self, manifest: &mut Manifest) {
        let started = LocalTime::from_nanos(self.shared.started.load(Ordering::Acquire));
        manifest.state = TakeState::Recording;
        manifest.started = started;
        manifest.started_seconds = started.seconds - self.zone_seconds;
        manifest.origins = self.origins();
        for directory in self.shared.directories.iter().filter(|it| !it.has_failed()) {
            if let Err(error) = manifest.save(&*directory.folder) {
                directory.fail(error);
            }
        }
    }
}

/// The numbers of the streams that a text names. A stream's name takes precedence, because it may
/// look like a number.
fn chosen(text: &str, names: &[&str]) -> Result<BTreeSet<usize>> {
    let named: BTreeSet<usize> =
        (0..).zip(names).filter(|(_, name)| **name == text).map(|(number, _)| number).collect();
    if !named.is_empty() {
        return Ok(named);
    }
    if text == "all" {
        return Ok((0..names.len()).collect());
    }
    let mut found = BTreeSet::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |it: &str| it.trim().parse().ok().filter(|it| (1..=names.len()).contains(it));
        let range = number(first).zip(number(last)).filter(|(first, last)| first <= last);
        let (first, last) = range.ok_or_else(|| {
            Error::new(Kind::NotFound, format!("there is no stream '{part}'")).expected(
                format!(
                    "'all', the name of a stream, or numbers from 1 to {}, for example 1,4-8",
                    names.len()
                ),
                text,
            )
        })?;
        found.extend(first - 1..last);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_a_word_with_its_text() {
        for (line, order) in [
            ("status", TakeOrder::Status),
            ("start", TakeOrder::Start),
            ("stop", TakeOrder::Stop),
            ("split ", TakeOrder::Split),
            ("mark second movement", TakeOrder::Mark("second movement".to_owned())),
            ("mark", TakeOrder::Mark(String::new())),
            ("arm 1,4-8", TakeOrder::Arm("1,4-8".to_owned())),
            ("disarm room mic", TakeOrder::Disarm("room mic".to_owned())),
        ] {
            assert_eq!(line.parse::<TakeOrder>().unwrap(), order, "{line}");
        }
        for bad in ["", "begin", "arm", "disarm ", "stop now", "STOP", "start 3"] {
            assert_eq!(bad.parse::<TakeOrder>().unwrap_err().kind(), Kind::Usage, "{bad}");
        }
    }

    #[test]
    fn streams_are_chosen_by_name_number_and_range() {
        let names = ["kick", "7", "voice", "kick", "all strings", "piano"];
        let found = |text: &str| chosen(text, &names).unwrap().into_iter().collect::<Vec<_>>();
        assert_eq!(found("kick"), [0, 3]);
        assert_eq!(found("7"), [1], "a name comes first");
        assert_eq!(found("all strings"), [4]);
        assert_eq!(found("all"), [0, 1, 2, 3, 4, 5]);
        assert_eq!(found("2-3, 3-4,6"), [1, 2, 3, 5]);
        for bad in ["", "0", "8", "3-2", "1-", "-1", "1,,2", "kic", "1-99999999999999999999"] {
            assert_eq!(chosen(bad, &names).unwrap_err().kind(), Kind::NotFound, "{bad}");
        }
    }
}
