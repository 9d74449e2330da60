//! Options of a mount.

/// The way a device is shown.
#[derive(Debug, Clone)]
pub struct MountOptions {
    /// The file's name.
    pub name: String,
    /// Threads that answer reads.
    pub threads: usize,
    /// Whether nothing may be written.
    pub is_read_only: bool,
    /// Whether others may change the device meanwhile: then the kernel does not cache it, and each
    /// read and each request for its length reaches the device.
    pub may_change: bool,
}
