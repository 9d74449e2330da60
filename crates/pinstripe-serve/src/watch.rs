//! Checks the members from time to time, and collects the state for the page and the metrics.

use std::sync::Arc;
use std::time::Duration;

use pinstripe_base::clock;
use pinstripe_base::sync::lock;

use crate::app::{App, VolumeState};
use crate::role::TokenRole;
use crate::status::{HostStatus, VolumeStatus, look};
use crate::tokens::HostToken;

/// The interval between two checks.
const EVERY: Duration = Duration::from_secs(10);

impl App {
    /// The state of every volume now. Reads no member.
    pub(crate) fn status(&self) -> Vec<VolumeStatus> {
        let now = clock::now().0;
        let tokens = self.gate.tokens.all().unwrap_or_default();
        let of_volume = |it: &VolumeState| {
            let id = it.volume.id.to_string();
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
                is_store: it.volume.is_store,
                id,
            }
        };
        self.volumes.iter().map(of_volume).collect()
    }

    /// Checks the members from time to time, until the runtime ends.
    pub(crate) async fn watch_members(self: Arc<Self>) {
        loop {
            for served in &self.volumes {
                let mut states = Vec::new();
                for (number, member) in &served.volume.members {
                    let (number, member) = (*number, Arc::clone(member));
                    let looked = self.call(move || Ok(look(number, &member))).await;
                    states.extend(looked.ok());
                }
                *lock(&served.members) = states;
            }
            tokio::time::sleep(EVERY).await;
        }
    }
}
