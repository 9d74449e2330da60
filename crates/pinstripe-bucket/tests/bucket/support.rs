//! A server, a proxy before it, and members that are opened through the proxy.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pinstripe_base::error::Result;
use pinstripe_bucket::{Access, Buckets, EndpointDefaults};
use pinstripe_member::{RemoteMembers, SharedMember};
use pinstripe_testing::{KEY_ID, KEY_SECRET, Proxy, S3Server};
use tempfile::TempDir;

/// The stand of a test.
pub struct Site {
    pub server: S3Server,
    pub proxy: Proxy,
    pub buckets: Arc<Buckets>,
    prefixes: AtomicUsize,
    _dir: TempDir,
}

/// Members opened with this secret.
pub fn buckets(secret: &'static str) -> Buckets {
    let access = move |_: &_| {
        let pairs = [("aws_access_key_id", KEY_ID), ("aws_secret_access_key", secret)];
        let credentials = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        Ok(Access { region: "us-east-1".to_owned(), credentials, ..Access::default() })
    };
    Buckets::new(EndpointDefaults::default(), access)
}

impl Site {
    /// `None` where there is no server to be had.
    pub fn new(test: &str) -> Option<Site> {
        let dir = tempfile::tempdir().unwrap();
        let server = S3Server::start(test, dir.path())?;
        let proxy = Proxy::start(server.port());
        let buckets = Arc::new(buckets(KEY_SECRET));
        Some(Site { server, proxy, buckets, prefixes: AtomicUsize::new(0), _dir: dir })
    }

    /// A place that nothing is at.
    pub fn fresh_place(&self) -> PathBuf {
        let number = self.prefixes.fetch_add(1, Ordering::Relaxed);
        self.server.place_at(self.proxy.port(), &format!("p{number}")).into()
    }

    pub fn open(&self, place: &Path) -> Result<SharedMember> {
        self.buckets.open(place)
    }

    /// A new, empty member; the requests for it are not in the log.
    pub fn member(&self) -> SharedMember {
        let member = self.buckets.create(&self.fresh_place()).unwrap().member;
        self.proxy.take_log();
        member
    }
}
