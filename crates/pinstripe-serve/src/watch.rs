//! Checks the members from time to time, collects the state for the page and the metrics, and
//! raises alarms.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use pinstripe_base::clock;
use pinstripe_base::sync::lock;
use pinstripe_member::ExtentKind;

use crate::alarms::{AlarmChange, AlarmMessage};
use crate::app::{App, VolumeState};
use crate::role::TokenRole;
use crate::status::{
    HostStatus, MemberState, VolumeStatus, absent, conditions, conditions_of_jobs, look,
};
use crate::tokens::HostToken;
use crate::volume::ServedVolume;

/// An object that was recorded within this time may not exist yet.
const RECENT_SECONDS: i64 = 3600;
/// The kinds of objects whose deletion the ledgers notice, sessions before snapshots.
const SETTLED: [ExtentKind; 4] =
    [ExtentKind::Sessions, ExtentKind::Packs, ExtentKind::Index, ExtentKind::Snapshots];
/// The interval between two checks.
const EVERY: Duration = Duration::from_secs(5);

impl App {
    /// The state of every volume now. Reads no member.
    pub(crate) fn status(&self) -> Vec<VolumeStatus> {
        let now = clock::now().0;
        let tokens = self.gate.tokens.all().unwrap_or_default();
        let of_volume = |it: &VolumeState| {
            let volume = it.volume();
            let id = volume.id.to_string();
            let backs_up = |token: &&HostToken| {
                token.volume == id
                    && token.is_valid(now)
                    && (token.role.appends() && token.role != TokenRole::Admin
                        || it.ledger.host(&token.host).snapshots > 0)
            };
            let status = |token: &HostToken| {
                HostStatus::new(token.clone(), it.ledger.host(&token.host), now)
            };
            let mut hosts: Vec<_> = tokens.iter().filter(backs_up).map(status).collect();
            hosts.sort_by(|a, b| a.token.host.cmp(&b.token.host));
            VolumeStatus {
                hosts,
                members: lock(&it.members).clone(),
                sessions: it.ledger.sessions(),
                tokens: tokens.iter().filter(|token| token.volume == id).cloned().collect(),
                alarms: self.alarms.active(&id),
                is_store: volume.is_store,
                catalog: self
                    .catalog
                    .as_ref()
                    .filter(|it| it.store == volume.id)
                    .map(|it| it.state()),
                id,
            }
        };
        self.volumes.iter().map(of_volume).collect()
    }

    /// Checks the members from time to time and raises alarms, until the runtime ends.
    pub(crate) async fn watch(self: Arc<Self>) {
        loop {
            for served in &self.volumes {
                let states = self.check_members(served).await;
                *lock(&served.members) = states;
            }
            if let Some(catalog) = &self.catalog {
                catalog.check().await;
            }
            for (number, volume) in self.status().iter().enumerate() {
                let mut conditions = conditions(volume);
                if number == 0 {
                    conditions.extend(conditions_of_jobs(&self.jobs));
                }
                let now = (clock::monotonic(), clock::now().0);
                match self.alarms.observe(&volume.id, &conditions, now) {
                    Ok(messages) => messages.iter().for_each(|it| self.log_alarm(it)),
                    Err(error) => self.events.add(true, format!("alarms are not stored: {error}")),
                }
            }
            tokio::time::sleep(EVERY).await;
        }
    }

    async fn check_members(&self, served: &VolumeState) -> Vec<MemberState> {
        let volume = served.volume();
        let before = lock(&served.members).clone();
        let mut states: Vec<_> =
            volume.absent.iter().map(|(number, place)| absent(*number, place)).collect();
        let looks = volume.members.iter().map(|(number, member)| {
            let (number, member) = (*number, Arc::clone(member));
            self.call(move || Ok(look(number, &member)))
        });
        states.extend(join_all(looks).await.into_iter().flatten());
        states.sort_by_key(|it| it.number);
        let damage = self.jobs.damage().filter(|_| volume.is_store);
        for state in &mut states {
            state.damage = damage.as_ref().map(|it| it.get(&state.number).copied().unwrap_or(0));
            state.failed_reads = served.failed_reads(state.number);
        }
        for state in states.iter_mut().filter(|it| it.answers == Some(false)) {
            let known = before.iter().find(|it| it.number == state.number);
            let since = known.and_then(|it| it.silent_since);
            state.silent_since = Some(since.unwrap_or_else(clock::monotonic));
        }
        states
    }

    /// Corrects the ledgers after deletions by processes that use the members directly.
    pub(crate) fn settle_ledgers(&self) {
        self.settle_ledgers_until(clock::now().0 - RECENT_SECONDS);
    }

    /// Corrects the ledgers about what was recorded before a time.
    pub(crate) fn settle_ledgers_until(&self, since_seconds: i64) {
        for served in self.volumes.iter().filter(|it| it.volume().is_store) {
            for kind in SETTLED {
                if let Some(there) = names_of(&served.volume(), kind) {
                    served.ledger.settle(kind, &there, since_seconds);
                }
            }
        }
    }

    fn log_alarm(&self, message: &AlarmMessage) {
        let AlarmMessage { subject, what, .. } = message;
        match message.change {
            AlarmChange::Raised => self.events.add(true, format!("alarm: {subject}: {what}")),
            AlarmChange::Cleared => self.events.add(false, format!("alarm ended: {subject}")),
        }
    }

    /// The members of a store that do not answer, and for how long.
    pub(crate) fn silent_members(&self) -> Vec<(u16, Duration)> {
        let stores = self.volumes.iter().filter(|it| it.volume().is_store);
        let members = stores.flat_map(|it| lock(&it.members).clone());
        members.filter_map(|it| Some((it.number, clock::since(it.silent_since?)))).collect()
    }
}

/// The names of a kind on any member; `None` if not all members are present and answer. A session
/// has a copy on each member, so one that answers is enough.
fn names_of(volume: &ServedVolume, kind: ExtentKind) -> Option<HashSet<[u8; 16]>> {
    let listed: Vec<_> = volume.members.values().map(|member| member.names(kind)).collect();
    let is_complete = match kind {
        ExtentKind::Sessions => listed.iter().any(Result::is_ok),
        _ => volume.absent.is_empty() && listed.iter().all(Result::is_ok),
    };
    is_complete.then(|| listed.into_iter().flatten().flatten().collect())
}
