//! A connection to a Ceph cluster, and the objects of one of its pools.

use std::ffi::{CStr, CString, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::time::Duration;

use pinstripe_base::error::{Error, Kind, Result};

use crate::library::{Handle, Library};

/// The most bytes of one request, which every cluster accepts (`osd_max_write_size` is 90 MiB).
pub(crate) const PIECE_BYTES: usize = 80 << 20;

/// A connection to a cluster.
pub struct Cluster {
    library: &'static Library,
    handle: Handle,
    shown: String,
}

// SAFETY: librados documents its handles as safe to use from any thread, several at once.
unsafe impl Send for Cluster {}
// SAFETY: as above.
unsafe impl Sync for Cluster {}

/// The objects of a pool that are in one of its namespaces.
pub struct Pool {
    cluster: Arc<Cluster>,
    handle: Handle,
    shown: String,
}

// SAFETY: operations on one rados_ioctx_t may be made by several threads at once; what changes
// the context itself (its namespace) is called before it is shared.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

impl Cluster {
    /// Connects as `user` (as in `client.admin`), with the monitors and keys that a configuration
    /// file names. No request takes longer than `deadline`.
    ///
    /// # Errors
    /// [`Kind::Unsupported`] without librados; [`Kind::Unanswered`] if no monitor answers;
    /// [`Kind::NotFound`] for a missing file or key; other errors as the cluster reports them.
    pub fn connect(conf: &Path, user: &str, deadline: Duration) -> Result<Arc<Self>> {
        let library = Library::get()?;
        let shown = format!("Ceph cluster of {}", conf.display());
        let name = text(user)?;
        let mut handle = null_mut();
        // SAFETY: the texts end with a NUL and outlive the call, which fills the handle.
        let made = unsafe { (library.create)(&raw mut handle, c"ceph".as_ptr(), name.as_ptr(), 0) };
        check(made, "cannot prepare a connection to the Ceph cluster", &shown)?;
        // Dropped from here on, it is shut down.
        let cluster = Cluster { library, handle, shown };
        let path = CString::new(conf.as_os_str().as_bytes()).map_err(|_| unclean())?;
        // SAFETY: the handle is not connected yet, the path ends with a NUL.
        let read = unsafe { (library.conf_read_file)(handle, path.as_ptr()) };
        check(read, "cannot read the configuration of Ceph", &cluster.shown).map_err(|error| {
            error.advice("set CEPH_CONF to use another file than /etc/ceph/ceph.conf")
        })?;
        let seconds = deadline.as_secs().max(1).to_string();
        for option in ["client_mount_timeout", "rados_mon_op_timeout", "rados_osd_op_timeout"] {
            cluster.set(option, &seconds)?;
        }
        // What the library would print, calls return.
        for option in ["log_to_stderr", "err_to_stderr"] {
            cluster.set(option, "false")?;
        }
        // SAFETY: the handle is valid and not connected.
        let connected = unsafe { (library.connect)(handle) };
        check(connected, "cannot connect", &cluster.shown).map_err(|error| {
            let advice = format!(
                "'ceph auth get {user}' shows the key and the permissions of this user; check that \
                 the keyring file in the Ceph configuration contains this key"
            );
            if error.kind() == Kind::Unanswered { error } else { error.advice(advice) }
        })?;
        Ok(Arc::new(cluster))
    }

    /// The id of the cluster, which is unique.
    ///
    /// # Errors
    /// Returns errors as the cluster reports them.
    pub fn id(&self) -> Result<String> {
        // A UUID as text, and a NUL.
        let mut id = [0_u8; 37];
        // SAFETY: the handle is connected, and the buffer has this many bytes to write to.
        let filled =
            unsafe { (self.library.cluster_fsid)(self.handle, id.as_mut_ptr().cast(), id.len()) };
        check(filled, "cannot get the id of the Ceph cluster", &self.shown)?;
        let end = id.iter().position(|byte| *byte == 0).unwrap_or(id.len());
        Ok(String::from_utf8_lossy(&id[..end]).into_owned())
    }

    fn set(&self, option: &str, value: &str) -> Result<()> {
        let (option, value) = (text(option)?, text(value)?);
        // SAFETY: the handle is valid, the texts end with a NUL.
        let set = unsafe { (self.library.conf_set)(self.handle, option.as_ptr(), value.as_ptr()) };
        check(set, "cannot set an option of the Ceph client", &self.shown)
    }

    /// Opens a namespace of a pool; an empty name selects the default namespace.
    ///
    /// # Errors
    /// [`Kind::NotFound`] if the pool does not exist.
    pub fn pool(self: &Arc<Self>, pool: &str, namespace: &str) -> Result<Pool> {
        let shown = format!("ceph:{pool}/{namespace}");
        let (name, space) = (text(pool)?, text(namespace)?);
        let mut handle = null_mut();
        // SAFETY: the cluster is connected, the name ends with a NUL, the call fills the handle.
        let made =
            unsafe { (self.library.ioctx_create)(self.handle, name.as_ptr(), &raw mut handle) };
        if made == -libc::ENOENT {
            return Err(Error::new(
                Kind::NotFound,
                format!("the Ceph cluster has no pool '{pool}'"),
            )
            .at(&shown)
            .advice(format!(
                "'ceph osd pool ls' lists the pools; to create this pool, run 'ceph osd pool \
                     create {pool}'"
            )));
        }
        check(made, "cannot open the pool", &shown)?;
        // SAFETY: the context was just made and no other thread has it yet.
        unsafe { (self.library.set_namespace)(handle, space.as_ptr()) };
        Ok(Pool { cluster: Arc::clone(self), handle, shown })
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // SAFETY: every pool holds the cluster, so none is left; the handle is not used again.
        unsafe { (self.library.shutdown)(self.handle) };
    }
}

/// What a write does in a pool that is full or at its quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WhenFull {
    /// It fails.
    Fail,
    /// It is carried out: for small objects without which nothing can be deleted.
    Write,
}

impl Pool {
    pub(crate) fn library(&self) -> &'static Library {
        self.cluster.library
    }

    pub(crate) fn handle(&self) -> Handle {
        self.handle
    }

    pub(crate) fn shown(&self) -> &str {
        &self.shown
    }

    #[cfg(test)]
    pub(crate) fn cluster(&self) -> &Arc<Cluster> {
        &self.cluster
    }

    fn full_name(&self, object: &str) -> String {
        format!("{}/{object}", self.shown)
    }

    /// Fills `buf` from an offset of an object; returns the number of bytes that the object had
    /// there.
    ///
    /// # Errors
    /// [`Kind::NotFound`] if the object does not exist; [`Kind::Unanswered`] after the deadline.
    pub fn read(&self, object: &str, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let name = text(object)?;
        let mut done = 0;
        while done < buf.len() {
            let piece = &mut buf[done..];
            let length = piece.len().min(PIECE_BYTES);
            let start = piece.as_mut_ptr().cast::<c_char>();
            let at = offset + done as u64;
            // SAFETY: the context is valid, the name ends with a NUL, and the buffer has this many
            // bytes to write to until the call returns.
            let read =
                unsafe { (self.library().read)(self.handle, name.as_ptr(), start, length, at) };
            check(read, "cannot read", &self.full_name(object))?;
            done += read as usize;
            if (read as usize) < length {
                break;
            }
        }
        Ok(done)
    }

    /// Writes at an offset of an object, which is created if needed.
    ///
    /// # Errors
    /// [`Kind::Unanswered`] after the deadline; in this case it is unknown what was written.
    pub fn write(&self, object: &str, offset: u64, bytes: &[u8]) -> Result<()> {
        let name = text(object)?;
        let mut at = offset;
        for piece in bytes.chunks(PIECE_BYTES) {
            let (start, length) = (piece.as_ptr().cast(), piece.len());
            // SAFETY: the context is valid, the name ends with a NUL, the bytes outlive the call.
            let written =
                unsafe { (self.library().write)(self.handle, name.as_ptr(), start, length, at) };
            check(written, "cannot write", &self.full_name(object))?;
            at += length as u64;
        }
        Ok(())
    }

    /// Replaces the content of an object atomically.
    ///
    /// # Errors
    /// [`Kind::Usage`] for more bytes than one request may contain (80 MiB); [`Kind::NoSpace`] if
    /// the pool is full; the errors of [`write`](Self::write).
    pub(crate) fn replace(&self, object: &str, bytes: &[u8], when_full: WhenFull) -> Result<()> {
        let name = self.whole(object, bytes)?;
        let library = self.library();
        let put = self.operate(&name, when_full, |op| {
            // SAFETY: the operation is valid within the call, and the bytes outlive it.
            unsafe { (library.write_op_write_full)(op, bytes.as_ptr().cast(), bytes.len()) };
        });
        check(put, "cannot write", &self.full_name(object))
    }

    /// Creates an object with this content. If several callers create the same object at the same
    /// time, one of them succeeds.
    ///
    /// # Errors
    /// [`Kind::Exists`] if the object exists; the errors of [`replace`](Self::replace).
    pub(crate) fn create(&self, object: &str, bytes: &[u8], when_full: WhenFull) -> Result<()> {
        const EXCLUSIVE: c_int = 1;
        let name = self.whole(object, bytes)?;
        let library = self.library();
        let made = self.operate(&name, when_full, |op| {
            // SAFETY: the operation is valid within the call, the bytes outlive it, and the category
            // that servers ignore may be null.
            unsafe {
                (library.write_op_create)(op, EXCLUSIVE, null());
                (library.write_op_write_full)(op, bytes.as_ptr().cast(), bytes.len());
            }
        });
        check(made, "cannot make", &self.full_name(object))
    }

    /// Removes an object, even in a full pool; a missing object is not an error.
    ///
    /// # Errors
    /// Returns errors as the cluster reports them.
    pub fn remove(&self, object: &str) -> Result<()> {
        let name = text(object)?;
        let library = self.library();
        let removed = self.operate(&name, WhenFull::Fail, |op| {
            // SAFETY: the operation is valid within the call.
            unsafe { (library.write_op_remove)(op) };
        });
        match removed == -libc::ENOENT {
            true => Ok(()),
            false => check(removed, "cannot remove", &self.full_name(object)),
        }
    }

    /// Carries out the calls that `fill` adds to an operation, atomically. A full pool is reported
    /// as an error, or is written to beyond its limit; without a flag for this, clients would wait
    /// until the pool has space.
    fn operate(&self, name: &CStr, when_full: WhenFull, fill: impl FnOnce(Handle)) -> c_int {
        const FULL_TRY: c_int = 64;
        const FULL_FORCE: c_int = 128;
        let flag = match when_full {
            WhenFull::Fail => FULL_TRY,
            WhenFull::Write => FULL_FORCE,
        };
        let library = self.library();
        // SAFETY: the context is valid, the name ends with a NUL, and the operation is released when
        // it was carried out.
        unsafe {
            let op = (library.create_write_op)();
            fill(op);
            let done = (library.write_op_operate)(op, self.handle, name.as_ptr(), null_mut(), flag);
            (library.release_write_op)(op);
            done
        }
    }

    /// The length of an object in bytes.
    ///
    /// # Errors
    /// [`Kind::NotFound`] if the object does not exist.
    pub fn size(&self, object: &str) -> Result<u64> {
        let name = text(object)?;
        let (mut bytes, mut mtime) = (0, 0);
        // SAFETY: the context is valid, the name ends with a NUL, the call fills two numbers.
        let found = unsafe {
            (self.library().stat)(self.handle, name.as_ptr(), &raw mut bytes, &raw mut mtime)
        };
        check(found, "cannot examine", &self.full_name(object))?;
        Ok(bytes)
    }

    /// Calls `show` with the name of every object of the namespace, in no particular order, as long
    /// as `show` returns true. An object that is created or removed during the call may be listed
    /// or not. Names that are not UTF-8 are skipped.
    ///
    /// # Errors
    /// [`Kind::Unanswered`] after the deadline; other errors as the cluster reports them.
    pub fn list(&self, show: &mut dyn FnMut(&str) -> bool) -> Result<()> {
        let library = self.library();
        let mut list = null_mut();
        // SAFETY: the context is valid, the call fills the handle.
        let opened = unsafe { (library.list_open)(self.handle, &raw mut list) };
        check(opened, "cannot list", &self.shown)?;
        let listed = loop {
            let mut entry = null();
            // SAFETY: the list is open; the call fills a pointer to a text that is valid until the
            // next call, and what else it could tell may be null.
            let next = unsafe { (library.list_next)(list, &raw mut entry, null_mut(), null_mut()) };
            if next == -libc::ENOENT {
                break Ok(());
            }
            if let Err(error) = check(next, "cannot list", &self.shown) {
                break Err(error);
            }
            // SAFETY: the call succeeded, so the text is present, and ends with a NUL.
            let name = unsafe { CStr::from_ptr(entry) };
            if name.to_str().is_ok_and(|name| !show(name)) {
                break Ok(());
            }
        };
        // SAFETY: the list is open, and not used again.
        unsafe { (library.list_close)(list) };
        listed
    }

    fn whole(&self, object: &str, bytes: &[u8]) -> Result<CString> {
        if bytes.len() > PIECE_BYTES {
            let error = Error::new(Kind::Usage, "this is too much data for one request to Ceph");
            return Err(error
                .at(self.full_name(object))
                .expected("a request of at most 80 MiB", bytes.len()));
        }
        text(object)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: the context is valid until here, and the cluster still connected.
        unsafe { (self.library().ioctx_destroy)(self.handle) };
    }
}

fn text(text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| unclean())
}

fn unclean() -> Error {
    Error::new(Kind::Usage, "a Ceph name cannot contain a NUL byte")
}

/// Converts a negative return value of a call to an error.
pub(crate) fn check(returned: c_int, what: &str, place: &str) -> Result<()> {
    if returned >= 0 {
        return Ok(());
    }
    if -returned == libc::ETIMEDOUT {
        let what = format!("{what}: the Ceph cluster did not answer in time");
        return Err(Error::new(Kind::Unanswered, what).at(place).advice(
            "check the cluster with 'ceph -s', and check that this host can reach the addresses of \
             the cluster",
        ));
    }
    let error = Error::io(what, place, std::io::Error::from_raw_os_error(-returned));
    Err(match -returned {
        libc::EPERM => error.advice(
            "this Ceph user lacks permissions: a member needs 'allow rw' on its namespace and on \
             the namespaces below it; 'ceph auth get' shows the permissions",
        ),
        _ => error,
    })
}
