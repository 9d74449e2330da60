//! Alarms: conditions that an administrator has to know, and the messages about their changes.
//!
//! Invariants: there is one message for each change of an alarm; a change is stored durably together
//! with its message before the message is sent, so that a restart neither loses nor repeats a
//! change; a message is sent again until each channel has taken it.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use pinstripe_base::error::Result;
use pinstripe_base::id::{hex, random};
use pinstripe_base::sync::lock;
use serde::{Deserialize, Serialize};

use crate::state_file;

/// The most messages that wait to be sent; the oldest ones are dropped.
const UNSENT_MAX: usize = 1000;

/// Whether a condition holds now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holds {
    Yes,
    No,
    /// Neither: an alarm that is active stays active, and no new one is raised.
    Between,
}

/// Something that is watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Condition {
    /// The name of the alarm: `host web1`, `member 2`.
    pub subject: String,
    /// The fault, for people.
    pub what: String,
    pub holds: Holds,
    /// How long a change must last before it counts.
    pub settles: Duration,
}

/// An alarm that is active.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Alarm {
    pub subject: String,
    pub what: String,
    pub since_seconds: i64,
}

/// A message about a change of an alarm.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AlarmMessage {
    /// A random id: a message that is sent twice has the same id.
    pub id: String,
    /// `raised` or `cleared`.
    pub change: AlarmChange,
    pub subject: String,
    pub what: String,
    pub since_seconds: i64,
    pub time_seconds: i64,
    /// The store, in hex.
    pub store: String,
    /// The channels that have taken the message.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taken_by: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum AlarmChange {
    Raised,
    Cleared,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct AlarmFile {
    /// By store and subject.
    active: BTreeMap<String, Alarm>,
    unsent: VecDeque<AlarmMessage>,
}

/// The alarms of a server: the file `alarms.json`.
pub(crate) struct Alarms {
    path: PathBuf,
    state: Mutex<AlarmState>,
}

struct AlarmState {
    file: AlarmFile,
    /// The conditions that differ from their alarm, and since when.
    differs: HashMap<String, Instant>,
}

impl Alarms {
    /// Opens the file in a state directory.
    pub fn open(state: &Path) -> Result<Alarms> {
        let path = state.join("alarms.json");
        let file = state_file::read_json(&path)?.unwrap_or_default();
        Ok(Alarms { path, state: Mutex::new(AlarmState { file, differs: HashMap::new() }) })
    }

    /// The active alarms of a store.
    pub fn active(&self, store: &str) -> Vec<Alarm> {
        let state = lock(&self.state);
        let of_store = state.file.active.iter().filter(|(key, _)| key.starts_with(store));
        of_store.map(|(_, alarm)| alarm.clone()).collect()
    }

    /// Compares the conditions of a store with its alarms, and returns the messages about what has
    /// changed. An alarm whose condition is no longer watched is cleared.
    pub fn observe(
        &self,
        store: &str,
        conditions: &[Condition],
        (monotonic, seconds): (Instant, i64),
    ) -> Result<Vec<AlarmMessage>> {
        let state = &mut *lock(&self.state);
        let key = |subject: &str| format!("{store} {subject}");
        let watched: HashMap<String, &Condition> =
            conditions.iter().map(|it| (key(&it.subject), it)).collect();
        let is_unwatched =
            |it: &&String| it.starts_with(store) && !watched.contains_key(it.as_str());
        let mut cleared: Vec<String> =
            state.file.active.keys().filter(is_unwatched).cloned().collect();
        let mut raised = Vec::new();
        for (key, condition) in &watched {
            let is_active = state.file.active.contains_key(key);
            let differs = match condition.holds {
                Holds::Yes => !is_active,
                Holds::No => is_active,
                Holds::Between => false,
            };
            if !differs {
                state.differs.remove(key);
                continue;
            }
            let since = *state.differs.entry(key.clone()).or_insert(monotonic);
            if monotonic.saturating_duration_since(since) < condition.settles {
                continue;
            }
            state.differs.remove(key);
            match is_active {
                true => cleared.push(key.clone()),
                false => raised.push((key.clone(), *condition)),
            }
        }
        let mut messages = Vec::new();
        for key in cleared {
            let Some(alarm) = state.file.active.remove(&key) else { continue };
            messages.push(message(AlarmChange::Cleared, store, &alarm, seconds)?);
        }
        for (key, Condition { subject, what, .. }) in raised {
            let (subject, what) = (subject.clone(), what.clone());
            let alarm = Alarm { subject, what, since_seconds: seconds };
            messages.push(message(AlarmChange::Raised, store, &alarm, seconds)?);
            state.file.active.insert(key, alarm);
        }
        if !messages.is_empty() {
            messages.sort_by(|a, b| a.subject.cmp(&b.subject));
            state.file.unsent.extend(messages.iter().cloned());
            let excess = state.file.unsent.len().saturating_sub(UNSENT_MAX);
            state.file.unsent.drain(..excess);
            state_file::replace_json(&self.path, &state.file)?;
        }
        Ok(messages)
    }

    /// The oldest message that a channel has not taken.
    pub(crate) fn unsent(&self, channel: &str) -> Option<AlarmMessage> {
        let waits = |it: &&AlarmMessage| !it.taken_by.iter().any(|name| name == channel);
        lock(&self.state).file.unsent.iter().find(waits).cloned()
    }

    /// Records that a channel has taken a message; one that all channels have taken is removed.
    pub fn taken(&self, id: &str, channel: &str, channels: &[&str]) -> Result<()> {
        let state = &mut *lock(&self.state);
        for message in state.file.unsent.iter_mut().filter(|it| it.id == id) {
            message.taken_by.push(channel.to_owned());
        }
        let is_taken = |it: &AlarmMessage| {
            channels.iter().all(|name| it.taken_by.iter().any(|taken| taken == name))
        };
        state.file.unsent.retain(|it| !is_taken(it));
        state_file::replace_json(&self.path, &state.file)
    }

    /// Drops all messages, because the configuration names no channel.
    pub(crate) fn drop_unsent(&self) {
        lock(&self.state).file.unsent.clear();
    }
}

fn message(change: AlarmChange, store: &str, alarm: &Alarm, seconds: i64) -> Result<AlarmMessage> {
    let id: [u8; 16] = random()?;
    Ok(AlarmMessage {
        id: hex(&id),
        change,
        subject: alarm.subject.clone(),
        what: alarm.what.clone(),
        since_seconds: alarm.since_seconds,
        time_seconds: seconds,
        store: store.to_owned(),
        taken_by: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pinstripe_base::clock;

    const SETTLES: Duration = Duration::from_secs(30);

    fn condition(subject: &str, holds: Holds) -> Condition {
        let what = "is silent".to_owned();
        Condition { subject: subject.to_owned(), what, holds, settles: SETTLES }
    }

    fn changes(messages: &[AlarmMessage]) -> Vec<(AlarmChange, &str)> {
        messages.iter().map(|it| (it.change, it.subject.as_str())).collect()
    }

    #[test]
    fn a_change_counts_when_it_has_lasted_and_is_sent_once() {
        let dir = tempfile::tempdir().unwrap();
        let alarms = Alarms::open(dir.path()).unwrap();
        let start = clock::monotonic();
        let observe = |alarms: &Alarms, seconds: u64, holds| {
            let now = (start + Duration::from_secs(seconds), seconds as i64);
            alarms.observe("ab", &[condition("member 1", holds)], now).unwrap()
        };
        assert_eq!(observe(&alarms, 0, Holds::Yes), []);
        assert_eq!(observe(&alarms, 10, Holds::No), []);
        // The time begins anew.
        assert_eq!(observe(&alarms, 20, Holds::Yes), []);
        assert_eq!(observe(&alarms, 49, Holds::Yes), []);
        let raised = observe(&alarms, 50, Holds::Yes);
        assert_eq!(changes(&raised), [(AlarmChange::Raised, "member 1")]);
        assert_eq!(observe(&alarms, 60, Holds::Yes), []);
        assert_eq!(observe(&alarms, 70, Holds::Between), []);
        drop(alarms);
        let alarms = Alarms::open(dir.path()).unwrap();
        assert_eq!(alarms.active("ab").len(), 1);
        assert_eq!(observe(&alarms, 80, Holds::Yes), []);
        assert_eq!(observe(&alarms, 90, Holds::No), []);
        let cleared = observe(&alarms, 120, Holds::No);
        assert_eq!(changes(&cleared), [(AlarmChange::Cleared, "member 1")]);
        assert_eq!((cleared[0].since_seconds, cleared[0].time_seconds), (50, 120));
        assert_eq!(alarms.active("ab"), []);
    }

    #[test]
    fn an_alarm_that_nobody_watches_is_cleared_and_other_stores_are_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let alarms = Alarms::open(dir.path()).unwrap();
        let now = (clock::monotonic(), 5);
        let at_once =
            |subject| Condition { settles: Duration::ZERO, ..condition(subject, Holds::Yes) };
        alarms.observe("ab", &[at_once("host a"), at_once("host b")], now).unwrap();
        alarms.observe("cd", &[at_once("host a")], now).unwrap();
        let messages = alarms.observe("ab", &[at_once("host b")], now).unwrap();
        assert_eq!(changes(&messages), [(AlarmChange::Cleared, "host a")]);
        assert_eq!((alarms.active("ab").len(), alarms.active("cd").len()), (1, 1));
    }

    #[test]
    fn a_message_waits_until_each_channel_took_it_also_over_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let alarms = Alarms::open(dir.path()).unwrap();
        let now = (clock::monotonic(), 5);
        let both = ["webhook", "mail"];
        let condition = Condition { settles: Duration::ZERO, ..condition("host a", Holds::Yes) };
        let sent = alarms.observe("ab", &[condition], now).unwrap().remove(0);
        assert_eq!(alarms.unsent("mail").unwrap(), sent);
        alarms.taken(&sent.id, "mail", &both).unwrap();
        drop(alarms);
        let alarms = Alarms::open(dir.path()).unwrap();
        assert_eq!(alarms.unsent("mail"), None);
        assert_eq!(alarms.unsent("webhook").unwrap().id, sent.id);
        alarms.taken(&sent.id, "webhook", &both).unwrap();
        assert_eq!(alarms.unsent("webhook"), None);
    }
}
