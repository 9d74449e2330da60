//! Options of a mount.

/// The options with which a device is mounted.
#[derive(Debug, Clone)]
pub struct MountOptions {
    /// The file's name.
    pub name: String,
    /// Threads that answer reads.
    pub threads: usize,
    /// Whether writes are refused.
    pub is_read_only: bool,
    /// Whether others may change the device while it is mounted: if so, the kernel does not cache
    /// it, and each read and each request for its length reaches the device.
    pub may_change: bool,
}
