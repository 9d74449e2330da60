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
    /// Whether others may change the device meanwhile: then the kernel keeps nothing of it, and
    /// each read and each question for its length is answered anew.
    pub may_change: bool,
}
