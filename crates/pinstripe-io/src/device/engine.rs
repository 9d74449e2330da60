//! The engine that carries out the writes of a device, several at a time.

use std::fmt;
use std::str::FromStr;

use super::policy::by_name;
use pinstripe_base::error::{Error, Result};

/// The method of keeping several writes in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Engine {
    /// The better engine for the write policy (decision 0019).
    #[default]
    Auto,
    /// One thread for each write in flight.
    Threads,
    /// One thread, which submits the writes to the kernel (io_uring, Linux 5.6).
    Uring,
}

impl Engine {
    /// Every engine with its name.
    pub const ALL: [(Engine, &'static str); 3] =
        [(Engine::Auto, "auto"), (Engine::Threads, "threads"), (Engine::Uring, "uring")];
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(Self::ALL[*self as usize].1)
    }
}

impl FromStr for Engine {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        by_name("engine", text, &Self::ALL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for (engine, name) in Engine::ALL {
            assert_eq!(engine.to_string(), name);
            assert_eq!(name.parse::<Engine>().unwrap(), engine);
        }
        assert!(
            "aio"
                .parse::<Engine>()
                .unwrap_err()
                .to_string()
                .contains("'aio' is not a known engine")
        );
    }
}
