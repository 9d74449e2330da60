//! Hosts: a process on a machine of its own each, with connections of its own.

use std::path::Path;
use std::sync::Arc;

use pinstripe::{OpenOptions, Store};
use pinstripe_base::error::Result;
use pinstripe_bucket::Buckets;
use pinstripe_member::session::Process;

use crate::endpoint::{Client, Endpoint, Line};
use pinstripe_sim::credential;

/// A host. Dropping it ends its connections.
pub struct Host {
    process: Process,
    pub line: Arc<Line>,
    pub buckets: Arc<Buckets>,
}

impl Host {
    /// The host of this number: no other one can tell whether it runs.
    pub fn new(number: u32, endpoints: &[Arc<Endpoint>]) -> Self {
        let line = Line::new();
        let (endpoints, own) = (endpoints.to_vec(), Arc::clone(&line));
        let buckets = Buckets::over(move |place| {
            let number = place.endpoint().trim_start_matches("http://e").parse();
            let number: usize = number.expect("the number of an endpoint");
            Arc::new(Client {
                endpoint: Arc::clone(&endpoints[number]),
                line: Arc::clone(&own),
                sent: Arc::default(),
            })
        });
        let mut boot = [9; 16];
        boot[..4].copy_from_slice(&number.to_le_bytes());
        let process = Process { machine: boot, boot, namespace: 1, pid: 1, started_ticks: 1 };
        Host { process, line, buckets: Arc::new(buckets) }
    }

    /// Opens the store through one of its places.
    pub fn open(&self, through: &Path) -> Result<Store> {
        let options = OpenOptions {
            remote: Some(self.buckets.clone()),
            process: Some(self.process),
            ..OpenOptions::default()
        };
        let mut store = Store::open_with(through, options)?;
        store.unlock(&credential())?;
        Ok(store)
    }
}
