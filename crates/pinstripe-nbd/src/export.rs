//! An export: a device that is served, and the counts of its clients' requests.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::protocol::{Command, ExportInfo, NAME_BYTES_MAX, Request};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_io::device::{Device, Run, SharedDevice, Space, Sparse};

/// The preferred alignment of requests if the device has none.
const PREFERRED_BYTES: u32 = 4096;

/// A device that is served.
pub struct Export {
    device: ExportTarget,
    name: String,
    description: String,
    is_read_only: bool,
    is_rotational: bool,
    trims: bool,
    zeros_fast: bool,
    counters: ExportCounters,
}

enum ExportTarget {
    Plain(SharedDevice),
    Sparse(Arc<dyn Sparse>),
}

/// The counts of an export so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// Connections that have chosen this export.
    pub connections: u64,
    /// The number of connections to this export that have ended.
    pub disconnections: u64,
    /// The number of reads that were carried out.
    pub reads: u64,
    /// Bytes that were read, holes included.
    pub read_bytes: u64,
    /// The number of writes that were carried out.
    pub writes: u64,
    /// Bytes that were written.
    pub written_bytes: u64,
    /// The number of flushes that were carried out.
    pub flushes: u64,
    /// The number of trims that were carried out.
    pub trims: u64,
    /// The number of requests that made ranges read as zeros.
    pub zeroes: u64,
    /// The number of requests for block status that were answered.
    pub statuses: u64,
    /// The number of requests that failed because of the device.
    pub errors: u64,
    /// The number of requests that were invalid or not allowed.
    pub refusals: u64,
}

#[derive(Default)]
struct ExportCounters {
    connections: AtomicU64,
    disconnections: AtomicU64,
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
    flushes: AtomicU64,
    trims: AtomicU64,
    zeroes: AtomicU64,
    statuses: AtomicU64,
    errors: AtomicU64,
    refusals: AtomicU64,
}

/// A change in the state of a connection.
#[derive(Debug, Clone, Copy)]
pub(super) enum Event {
    Connected,
    Disconnected,
    Failed,
    Refused,
}

impl Export {
    /// Serves a device under a name; clients that give no name get the export with the empty name.
    /// The export of a plain device reports no holes, and writes zeros as data.
    pub fn new(name: impl Into<String>, device: SharedDevice) -> Self {
        Export::with_target(name.into(), ExportTarget::Plain(device))
    }

    /// Serves a device with holes under a name.
    pub fn sparse(name: impl Into<String>, device: Arc<dyn Sparse>) -> Self {
        Export::with_target(name.into(), ExportTarget::Sparse(device))
    }

    fn with_target(name: String, device: ExportTarget) -> Self {
        Export {
            trims: true,
            zeros_fast: matches!(device, ExportTarget::Sparse(_)),
            device,
            name,
            description: String::new(),
            is_read_only: false,
            is_rotational: false,
            counters: ExportCounters::default(),
        }
    }

    /// Makes the export read-only.
    #[must_use]
    pub fn read_only(self) -> Self {
        Export { is_read_only: true, ..self }
    }

    /// Tells clients that the disks of the export rotate.
    #[must_use]
    pub fn rotational(self) -> Self {
        Export { is_rotational: true, ..self }
    }

    /// Does not offer TRIM, for a device that cannot free space. A client that sends TRIM anyway
    /// gets a success without effect.
    #[must_use]
    pub fn without_trim(self) -> Self {
        Export { trims: false, ..self }
    }

    /// Does not offer to make zeros faster than by writing them.
    #[must_use]
    pub fn without_fast_zero(self) -> Self {
        Export { zeros_fast: false, ..self }
    }

    /// Sets the description for people.
    #[must_use]
    pub fn described(self, description: impl Into<String>) -> Self {
        Export { description: description.into(), ..self }
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The counts so far.
    pub fn traffic(&self) -> Traffic {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.counters;
        Traffic {
            connections: get(&counters.connections),
            disconnections: get(&counters.disconnections),
            reads: get(&counters.reads),
            read_bytes: get(&counters.read_bytes),
            writes: get(&counters.writes),
            written_bytes: get(&counters.written_bytes),
            flushes: get(&counters.flushes),
            trims: get(&counters.trims),
            zeroes: get(&counters.zeroes),
            statuses: get(&counters.statuses),
            errors: get(&counters.errors),
            refusals: get(&counters.refusals),
        }
    }

    pub(super) fn device(&self) -> &dyn Device {
        match &self.device {
            ExportTarget::Plain(device) => device,
            ExportTarget::Sparse(device) => device,
        }
    }

    /// The description of the export for clients, with its present length.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`] for a name that is too long; with the errors of the device.
    pub(super) fn info(&self) -> Result<ExportInfo> {
        if self.name.len().max(self.description.len()) > NAME_BYTES_MAX {
            let error = Error::new(Kind::Usage, "the name or description of an export is too long");
            return Err(error.expected(NAME_BYTES_MAX, self.name.len().max(self.description.len())));
        }
        Ok(ExportInfo {
            name: self.name.clone(),
            description: self.description.clone(),
            bytes: self.device().len()?,
            is_read_only: self.is_read_only,
            is_rotational: self.is_rotational,
            can_trim: self.trims && !self.is_read_only,
            can_fast_zero: self.zeros_fast && !self.is_read_only,
            preferred_bytes: self.device().caps().align_bytes.max(PREFERRED_BYTES),
        })
    }

    /// The run at the beginning of a range; a device without holes has only data.
    pub(super) fn run(&self, range: Range<u64>) -> Result<Run> {
        match &self.device {
            ExportTarget::Plain(_) => Ok(Run { bytes: range.end - range.start, is_hole: false }),
            ExportTarget::Sparse(device) => device.run(range),
        }
    }

    /// Whether the device can have holes.
    pub(super) fn knows_holes(&self) -> bool {
        matches!(self.device, ExportTarget::Sparse(_))
    }

    /// Makes a range read as zeros in a faster way than by writing them.
    ///
    /// # Errors
    /// Fails with [`Kind::Unsupported`] when the device has no faster way; with the errors of the
    /// device.
    pub(super) fn zero(&self, range: Range<u64>, space: Space) -> Result<()> {
        match &self.device {
            ExportTarget::Plain(device) => {
                let what =
                    "this device has no request that zeroes a range; the caller must write zeros";
                Err(Error::new(Kind::Unsupported, what).at(device.place()))
            }
            ExportTarget::Sparse(device) => device.zero(range, space),
        }
    }

    /// Counts a request that was carried out.
    pub(super) fn count(&self, request: &Request) {
        let counters = &self.counters;
        let (calls, bytes) = match request.command {
            Command::Read => (&counters.reads, Some(&counters.read_bytes)),
            Command::Write => (&counters.writes, Some(&counters.written_bytes)),
            Command::Flush => (&counters.flushes, None),
            Command::Trim => (&counters.trims, None),
            Command::WriteZeroes => (&counters.zeroes, None),
            Command::BlockStatus => (&counters.statuses, None),
            Command::Disconnect | Command::Cache | Command::Unknown(_) => return,
        };
        calls.fetch_add(1, Ordering::Relaxed);
        if let Some(bytes) = bytes {
            bytes.fetch_add(request.len.into(), Ordering::Relaxed);
        }
    }

    pub(super) fn note(&self, event: Event) {
        let counter = match event {
            Event::Connected => &self.counters.connections,
            Event::Disconnected => &self.counters.disconnections,
            Event::Failed => &self.counters.errors,
            Event::Refused => &self.counters.refusals,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}
