//! The catalog that the hosts of a server share: whether this run uses it.
//!
//! Invariant: names of an encrypted store are sent to a server only if the user has allowed it with
//! 'connect --clear-names'.

use pinstripe::{Store, shared};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_member::SharedCatalog;
use pinstripe_member::label::Encryption;
use pinstripe_remote::{RemoteCatalog, RemoteClient, ServedPlace, is_served};
use std::sync::Arc;

use super::context::Run;

impl Run {
    /// The client of the server through which the store is used.
    fn server_of(&self, store: &Store) -> Option<Arc<RemoteClient>> {
        let members = store.member_slots.iter().filter_map(|slot| slot.member.as_ref());
        let place = members.map(|it| it.place()).find(|place| is_served(place))?;
        let ServedPlace { address, volume, .. } = ServedPlace::parse(place).ok()?;
        self.served().volumes().client(&address, volume).ok()
    }

    /// The id of the token with which the store is used, if it is used through a server.
    pub fn token_of(&self, store: &Store) -> Option<String> {
        self.server_of(store).map(|client| client.connection().token.to_string())
    }

    /// The catalog that the store's server has, if this host may use it.
    fn shared_catalog(&self, store: &Store) -> Option<RemoteCatalog> {
        let client = self.server_of(store)?;
        let may_name = store.config.encryption == Encryption::None
            || self.served().sends_clear_names(client.connection());
        RemoteCatalog::of(client).filter(|_| may_name)
    }

    /// The shared catalog for a search over all hosts. `None` if the search is not over all hosts,
    /// or the server has no catalog: then the embedded catalog has what this host may see.
    ///
    /// # Errors
    /// Fails with the errors of the server.
    pub fn catalog_of_all(
        &self,
        store: &Store,
        all_hosts: bool,
    ) -> Result<Option<Box<dyn SharedCatalog>>> {
        if !all_hosts {
            return Ok(None);
        }
        if let Some(shared) = self.shared_catalog(store) {
            return Ok(Some(Box::new(shared)));
        }
        let Some(client) = self.server_of(store) else { return Ok(None) };
        let hello = client.hello()?;
        if hello.role != "admin" && !hello.all_hosts {
            self.monitor.note(&format!(
                "the token of this host sees only the snapshots of host {}; 'pinstripe token add \
                 --all-hosts' on the server makes one that sees all",
                crate::escape::text(&hello.host)
            ));
        }
        Ok(None)
    }

    /// Sends the new snapshot to the shared catalog, if there is one. The backup is complete,
    /// whatever the result is.
    pub fn share(&self, store: &Store) {
        let Some(catalog) = self.shared_catalog(store) else { return };
        match shared::send_own(store, &catalog, &self.monitor) {
            Ok(_) => {}
            // A role that only appends cannot read pages of its tree that another host stored.
            Err(error) if error.kind() == Kind::NotAllowed => self.monitor.note(&format!(
                "the shared catalog lacks this snapshot: {}; an administrator adds it with \
                 'pinstripe find --all-hosts'",
                error.what()
            )),
            Err(error) => {
                let what = format!("the snapshot is stored, but {}", error.what());
                let error = Error::new(error.kind(), what).advice(
                    "the next backup or 'pinstripe catalog rebuild --all-hosts' adds it to the \
                     shared catalog",
                );
                match error.kind() {
                    // It would be counted without a message, like later reports of a silent member.
                    Kind::Unanswered => self.monitor.silent_member("shared catalog", error),
                    _ => self.monitor.warning("shared catalog", error),
                }
            }
        }
    }
}
