//! The I/O priority of a thread, ioprio_set(2). Only schedulers that know classes heed it
//! (mq-deadline, bfq), not `none`.

use std::io;

use pinstripe_base::error::{Error, Result};

use crate::io::at_once;

/// A class of service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum SchedulingClass {
    /// The priority of ordinary threads.
    #[default]
    Normal,
    /// Served before all ordinary threads.
    RealTime,
}

const WHO_PROCESS: libc::c_int = 1;
const CLASS_REAL_TIME: libc::c_int = 1;
const CLASS_SHIFT: libc::c_int = 13;
/// The I/O priority level, from 0 (first) to 7.
const LEVEL: libc::c_int = 4;

impl SchedulingClass {
    /// Has this thread served so, as long as it runs.
    ///
    /// # Errors
    /// The system's error where that is not permitted.
    pub(super) fn take(self) -> Result<()> {
        if self == SchedulingClass::Normal {
            return Ok(());
        }
        let class = CLASS_REAL_TIME << CLASS_SHIFT | LEVEL;
        // SAFETY: the call takes numbers only and changes nothing but when this thread is served.
        let refused = unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0, class) } != 0;
        match refused {
            true => Err(Error::io(
                "the I/O class for real time cannot be set",
                "the disk",
                io::Error::last_os_error(),
            )),
            false => Ok(()),
        }
    }
}

/// Looks whether a class is permitted, on a thread of its own.
///
/// # Errors
/// That it is not, as reported by the system.
pub(crate) fn can_take(class: SchedulingClass) -> Result<()> {
    at_once(1, |_| class.take()).into_iter().collect()
}
