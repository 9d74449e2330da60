//! What this host saw of the heartbeats of sessions, as it is stored in a file.

use std::time::Duration;

use pinstripe::PulseSighting;
use pinstripe_base::id::{SessionId, hex};
use serde::{Deserialize, Serialize};

/// Sightings during one boot of this machine; their times are meaningless after the next boot.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownSightings {
    /// The kernel's id of the boot, as hex digits.
    boot: String,
    seen: Vec<KnownSighting>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct KnownSighting {
    session: String,
    count: u64,
    since_boot_seconds: u64,
}

impl KnownSightings {
    /// The stored form. Without sightings or without a boot id, the result is empty, so that
    /// nothing is written.
    pub fn new(boot: &[u8; 16], sightings: &[PulseSighting]) -> Self {
        if sightings.is_empty() || *boot == [0; 16] {
            return KnownSightings::default();
        }
        let seen = sightings.iter().map(|it| KnownSighting {
            session: it.session.to_string(),
            count: it.count,
            // Rounded up: a session is never taken for silent for longer than it was.
            since_boot_seconds: it.since.as_secs() + u64::from(it.since.subsec_nanos() > 0),
        });
        KnownSightings { boot: hex(boot), seen: seen.collect() }
    }

    /// Whether there are no sightings.
    pub fn is_empty(&self) -> bool {
        self.seen.is_empty()
    }

    /// The sightings of this boot; invalid ones are left out.
    pub fn of_boot(&self, boot: &[u8; 16]) -> Vec<PulseSighting> {
        if *boot == [0; 16] || self.boot != hex(boot) {
            return Vec::new();
        }
        let read = |it: &KnownSighting| {
            let since = Duration::from_secs(it.since_boot_seconds);
            Some(PulseSighting {
                session: SessionId::from_hex(&it.session)?,
                count: it.count,
                since,
            })
        };
        self.seen.iter().filter_map(read).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sightings_come_back_in_the_same_boot_only() {
        let seen = PulseSighting {
            session: SessionId([3; 16]),
            count: 5,
            since: Duration::from_millis(7500),
        };
        let known = KnownSightings::new(&[1; 16], &[seen]);
        let text = serde_json::to_string(&known).unwrap();
        let known: KnownSightings = serde_json::from_str(&text).unwrap();
        let later = PulseSighting { since: Duration::from_secs(8), ..seen };
        assert_eq!(known.of_boot(&[1; 16]), [later]);
        assert!(known.of_boot(&[2; 16]).is_empty());
        // Where the system names no boot, two boots cannot be told apart.
        assert!(KnownSightings::new(&[0; 16], &[seen]).is_empty());
        assert!(known.of_boot(&[0; 16]).is_empty());
    }
}
