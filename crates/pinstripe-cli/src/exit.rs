//! Exit codes for scripts. The same table is in `--help` and doc/exit-codes.md.
//!
//! Invariant: the code follows from the kind of the error, or from the ledger when there was
//! none; no message decides about it.

use pinstripe_base::error::Kind;
use pinstripe_base::monitor::{Counter, Monitor};

/// All was done.
pub const DONE: u8 = 0;
/// It failed; no incomplete file has a final name.
pub const FAILED: u8 = 1;
/// The command line is invalid.
pub const USAGE: u8 = 2;
/// It was done, except for losses; each was reported.
pub const LOSSES: u8 = 3;
/// It was done, but a member that should have taken part did not. Nothing is lost.
pub const DEGRADED: u8 = 4;
/// `check` found damage that `repair` can mend.
pub const REPAIRABLE: u8 = 10;
/// No such store, snapshot or path.
pub const NOT_FOUND: u8 = 11;
/// A member of another store, or not the member that it should be.
pub const WRONG_MEMBER: u8 = 12;
/// Written by a newer version.
pub const UNSUPPORTED: u8 = 13;
/// Refused for safety; an option overrides it.
pub const REFUSED: u8 = 14;
/// More is lost than parity replaces.
pub const TOO_MANY_LOSSES: u8 = 15;
/// Sealed, and no password or key file was given.
pub const LOCKED: u8 = 16;
/// The password or key file opens nothing.
pub const WRONG_KEY: u8 = 17;
/// Another process has to finish something first.
pub const BUSY: u8 = 18;
/// Not encrypted, where an encrypted store is expected.
pub const NOT_ENCRYPTED: u8 = 19;
/// An endpoint lets several writers make the same object.
pub const NO_ONE_WINNER: u8 = 20;
/// Ended early by an interrupt, with what it had done kept: what a shell reports for SIGINT.
pub const INTERRUPTED: u8 = 130;
/// The reader of standard output went away: what a shell reports for a death by SIGPIPE.
pub const BROKEN_PIPE: u8 = 141;

/// The end of `pinstripe --help`.
pub const HELP: &str = "\
Exit codes:
    0  done
    1  failed
    2  bad usage
    3  finished with losses, each named on standard error
    4  done, but degraded: a member was absent, failed or full, and was not written
   10  damage, or an absent member, that 'pinstripe repair' can repair
   11  no such store, snapshot or path
   12  wrong member: the member belongs to another store
   13  written by a newer version of pinstripe
   14  refused for safety; the message names the option that overrides it
   15  more is lost than parity replaces
   16  the store is encrypted, and no password or key file was given
   17  wrong password or key file
   18  busy: another process must finish first; try again later
   19  the store is not encrypted, and an encrypted one is expected here
   20  unfit endpoint: the endpoint lets several writers create the same object
  130  interrupted (143: terminated); run the same command again to continue
  141  the reader of standard output closed the pipe";

/// The code of a run that failed. After a signal, `signals::exit_code` has the one to report.
pub fn of_error(kind: Kind) -> u8 {
    match kind {
        Kind::Usage => USAGE,
        Kind::NotFound => NOT_FOUND,
        Kind::WrongMember => WRONG_MEMBER,
        Kind::Unsupported => UNSUPPORTED,
        Kind::Refused => REFUSED,
        Kind::TooManyLosses => TOO_MANY_LOSSES,
        Kind::Locked => LOCKED,
        Kind::WrongKey => WRONG_KEY,
        Kind::Busy | Kind::KeysChanged => BUSY,
        Kind::NotEncrypted => NOT_ENCRYPTED,
        Kind::NoOneWinner => NO_ONE_WINNER,
        Kind::Interrupted => INTERRUPTED,
        _ => FAILED,
    }
}

/// The code of a run that reached its end: losses outrank what the verb has to say, and that
/// outranks a member that took no part.
pub fn of_ledger(monitor: &Monitor, said_by_verb: u8) -> u8 {
    if monitor.get(Counter::Losses) > 0 {
        LOSSES
    } else if said_by_verb == DONE && monitor.get(Counter::DegradedMembers) > 0 {
        DEGRADED
    } else {
        said_by_verb
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_and_documentation_name_every_code() {
        let documented = include_str!("../../../doc/exit-codes.md");
        for code in [
            DONE,
            FAILED,
            USAGE,
            LOSSES,
            DEGRADED,
            REPAIRABLE,
            NOT_FOUND,
            WRONG_MEMBER,
            UNSUPPORTED,
            REFUSED,
            TOO_MANY_LOSSES,
            NOT_ENCRYPTED,
            NO_ONE_WINNER,
            INTERRUPTED,
            BROKEN_PIPE,
        ] {
            assert!(documented.contains(&format!("| {code} |")), "{code}");
            assert!(HELP.contains(&format!("{code:>5}  ")), "{code}");
        }
    }

    #[test]
    fn losses_outrank_what_the_verb_says() {
        let monitor = Monitor::default();
        assert_eq!(of_ledger(&monitor, DONE), DONE);
        assert_eq!(of_ledger(&monitor, REPAIRABLE), REPAIRABLE);
        monitor.add(Counter::DegradedMembers, 1);
        assert_eq!(of_ledger(&monitor, DONE), DEGRADED);
        assert_eq!(of_ledger(&monitor, REPAIRABLE), REPAIRABLE);
        monitor.add(Counter::Losses, 1);
        assert_eq!(of_ledger(&monitor, REPAIRABLE), LOSSES);
    }
}
