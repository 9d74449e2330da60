//! The I/O priority of a thread, ioprio_set(2). Only I/O schedulers that support classes
//! (mq-deadline, bfq) respect it; `none` ignores it.

use std::io;

use pinstripe_base::error::{Error, Result};

use crate::io::at_once;

/// An I/O scheduling class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum SchedulingClass {
    /// The priority of ordinary threads.
    #[default]
    Normal,
    /// The I/O of the thread is served before that of all ordinary threads.
    RealTime,
}

const WHO_PROCESS: libc::c_int = 1;
const CLASS_REAL_TIME: libc::c_int = 1;
const CLASS_SHIFT: libc::c_int = 13;
/// The I/O priority level, from 0 (first) to 7.
const LEVEL: libc::c_int = 4;

impl SchedulingClass {
    /// Gives this thread the scheduling class for the rest of its run.
    ///
    /// # Errors
    /// The system's error if the class is not permitted.
    pub(super) fn take(self) -> Result<()> {
        if self == SchedulingClass::Normal {
            return Ok(());
        }
        let class = CLASS_REAL_TIME << CLASS_SHIFT | LEVEL;
        // SAFETY: the call takes numbers only and changes nothing but when this thread is served.
        let refused = unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0, class) } != 0;
        match refused {
            true => Err(Error::io(
                "the real-time I/O class cannot be set",
                "the disk",
                io::Error::last_os_error(),
            )),
            false => Ok(()),
        }
    }
}

/// Checks on a thread of its own whether a class is permitted.
///
/// # Errors
/// The system's error if the class is not permitted.
pub(crate) fn can_take(class: SchedulingClass) -> Result<()> {
    at_once(1, |_| class.take()).into_iter().collect()
}
