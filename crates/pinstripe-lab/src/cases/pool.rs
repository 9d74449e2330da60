//! Objects of a Ceph pool in place of files: the options that name the pool, and how the objects
//! are created.

use std::path::PathBuf;
use std::sync::Arc;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::units::format_size;
use pinstripe_io::device::SharedDevice;

use super::{CaseOption, ValueForm, Values};
use crate::io::{self, Area, CephDevice, Direction, Job, Order, Pattern, Target};
use crate::run::Live;

/// Whether a file or a Ceph pool is read.
pub(crate) const ENGINE: CaseOption = CaseOption {
    name: "engine",
    value: "NAME",
    form: ValueForm::Text,
    default: Some("file"),
    about: "What to read: files ('file'), or objects of a Ceph pool ('ceph:POOL' or \
            'ceph:POOL/NAMESPACE')",
    more: "The objects are created in the given namespace, or else in the namespace pinstripe-lab, \
           and are removed at the end. To read from a Ceph pool, the package librados2 must be \
           installed.",
};

/// The option for the configuration file with which the Ceph cluster is reached.
pub(crate) const CONF: CaseOption = CaseOption {
    name: "ceph-conf",
    value: "FILE",
    form: ValueForm::Path,
    default: None,
    about: "Configuration file of the Ceph cluster [default: /etc/ceph/ceph.conf]",
    more: "",
};

/// As whom.
pub const USER: CaseOption = CaseOption {
    name: "ceph-user",
    value: "NAME",
    form: ValueForm::Text,
    default: None,
    about: "User name for the Ceph cluster [default: client.admin]",
    more: "",
};

/// The default configuration file of Ceph clients.
const DEFAULT_CONF: &str = "/etc/ceph/ceph.conf";
/// The default name of Ceph clients.
const DEFAULT_USER: &str = "client.admin";

/// Threads that create objects in parallel; on a distant cluster, creating many objects then takes
/// no longer than creating one.
const WRITERS: usize = 32;

/// A Ceph pool, and how its cluster is reached.
pub(crate) struct CephPool {
    pool: String,
    conf: PathBuf,
    user: String,
}

impl CephPool {
    /// The pool of `--engine`, if it names one.
    ///
    /// # Errors
    /// [`Kind::Usage`] for an unknown engine.
    pub(crate) fn from_values(values: &Values) -> Result<Option<Self>> {
        let engine = values.text("engine").unwrap_or("file");
        let pool = match engine.strip_prefix("ceph:") {
            Some(pool) if !pool.is_empty() && !pool.starts_with('/') => pool.to_owned(),
            None if engine == "file" => return Ok(None),
            _ => {
                return Err(Error::new(Kind::Usage, format!("'{engine}' is not a valid engine"))
                    .advice("the engine must be file, ceph:POOL or ceph:POOL/NAMESPACE"));
            }
        };
        let conf = values.text("ceph-conf").unwrap_or(DEFAULT_CONF).into();
        let user = values.text("ceph-user").unwrap_or(DEFAULT_USER).to_owned();
        Ok(Some(CephPool { pool, conf, user }))
    }

    /// Creates full objects of `record_bytes` each for every client; each client has its own
    /// connection.
    ///
    /// # Errors
    /// Errors of connecting and writing; an interrupt.
    pub fn fill(
        &self,
        clients: u64,
        record_bytes: usize,
        bytes: u64,
        live: &Live,
    ) -> Result<Vec<SharedDevice>> {
        let objects = |number| -> Result<SharedDevice> {
            let Self { pool, conf, user } = self;
            let objects = CephDevice::new(pool, conf, user, (number, record_bytes as u64))?;
            let objects = Arc::new(objects) as SharedDevice;
            let area = Area::new(vec![Target::new(Arc::clone(&objects))], bytes);
            let pattern = Pattern {
                order: Order::Sequential,
                direction: Direction::Write,
                block_bytes: record_bytes,
            };
            let requests = Some(bytes / record_bytes as u64);
            let job = Job { requests, threads: WRITERS, ..Job::new(pattern) };
            io::run(&job, &area, live)?;
            Ok(objects)
        };
        (0..clients).map(objects).collect()
    }

    /// Describes what the case will do to the pool.
    pub fn intent(&self, clients: u64, record_bytes: usize, bytes: u64) -> String {
        let count = clients * bytes / record_bytes as u64;
        format!(
            "create {count} objects with a total size of {} in the pool {}",
            format_size(clients * bytes),
            self.pool
        )
    }
}

#[cfg(test)]
pub mod testing {
    use std::process::{Command, id};

    /// A namespace of the pool `data` of the cluster that PINSTRIPE_CEPH_CONF names.
    pub(crate) struct RealPool {
        conf: String,
        engine: String,
    }

    impl RealPool {
        /// Returns `None` if no cluster is named; the test then counts as skipped.
        pub fn parse(test: &str, name: &str) -> Option<Self> {
            let Some(conf) = std::env::var_os("PINSTRIPE_CEPH_CONF") else {
                let reason = "PINSTRIPE_CEPH_CONF names no cluster (its ceph.conf)";
                pinstripe_testing::skipped(test, reason);
                return None;
            };
            let engine = format!("ceph:data/{name}.{}", id());
            Some(RealPool { conf: conf.into_string().unwrap(), engine })
        }

        /// The options that name the pool.
        pub fn given(&self) -> [(&str, &str); 2] {
            [("engine", &self.engine), ("ceph-conf", &self.conf)]
        }

        /// Asserts that the pool is empty, by the cluster's own tool.
        #[track_caller]
        pub(crate) fn assert_empty(&self) {
            let namespace = self.engine.trim_start_matches("ceph:data/");
            let listed = Command::new("rados")
                .args(["-c", &self.conf, "-p", "data", "-N", namespace, "ls"])
                .output()
                .unwrap();
            assert!(listed.status.success());
            assert_eq!(String::from_utf8_lossy(&listed.stdout), "");
        }
    }
}
