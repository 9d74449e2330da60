//! Exit codes for scripts. The same table is in the help of the program and in doc/exit-codes.md.
//!
//! Invariant: the exit code follows from the kind of the error, or from the ledger if there was no
//! error; the text of a message never determines it.

use pinstripe_base::error::Kind;
use pinstripe_base::monitor::{Counter, Monitor};

/// All was done.
pub const DONE: u8 = 0;
/// The run failed; no incomplete file has a final name.
pub const FAILED: u8 = 1;
/// The command line is invalid.
pub const USAGE: u8 = 2;
/// The run reached its end with losses; each loss was reported.
pub const LOSSES: u8 = 3;
/// The run reached its end, but a member that should have taken part did not. Nothing is lost.
pub const DEGRADED: u8 = 4;
/// `check` found damage that `repair` can repair.
pub const REPAIRABLE: u8 = 10;
/// There is no such store, snapshot or path.
pub const NOT_FOUND: u8 = 11;
/// A member belongs to another store, or is not the expected member.
pub const WRONG_MEMBER: u8 = 12;
/// The data was written by a newer version.
pub const UNSUPPORTED: u8 = 13;
/// The run was refused for safety; an option overrides the refusal.
pub const REFUSED: u8 = 14;
/// More members are lost than parity replaces.
pub const TOO_MANY_LOSSES: u8 = 15;
/// The store is sealed, and no password or key file was given.
pub const LOCKED: u8 = 16;
/// The password or key file does not open the store.
pub const WRONG_KEY: u8 = 17;
/// Another process has to finish first.
pub const BUSY: u8 = 18;
/// The store is not encrypted, but an encrypted one is expected.
pub const NOT_ENCRYPTED: u8 = 19;
/// An endpoint lets several writers create the same object.
pub const NO_ONE_WINNER: u8 = 20;
/// A server has another key than the pinned one.
pub const WRONG_SERVER: u8 = 21;
/// A server refuses the token, or what the token's role does not allow.
pub const NOT_ALLOWED: u8 = 22;
/// An interrupt ended the run early, and its work so far is kept; a shell reports the same code for
/// SIGINT.
pub const INTERRUPTED: u8 = 130;
/// The reader of standard output closed it; a shell reports the same code for SIGPIPE.
pub const BROKEN_PIPE: u8 = 141;

/// The table of exit codes at the end of `pinstripe --help`.
pub const HELP: &str = "\
Exit codes:
    0  done
    1  failed
    2  bad usage
    3  finished with losses: standard error lists what was not saved, restored or verified
    4  done, but degraded: a member that was absent, failed or full was not written
   10  there is damage, or an absent member, that 'pinstripe repair' can repair
   11  no such store, snapshot or path
   12  wrong member: the member belongs to another store
   13  the data was written by a newer version of pinstripe
   14  refused for safety; the message names the option that overrides the refusal
   15  more members or outputs are lost than parity can replace
   16  the store is encrypted, and no password or key file was given
   17  wrong password or key file
   18  busy: another process must finish first; try again later
   19  the store is not encrypted, but an encrypted store is expected here
   20  unfit endpoint: the endpoint lets several writers create the same object
   21  wrong server: the server's key is not the one that the join string names
   22  not allowed: the server refuses the token, or its role does not allow this
  130  interrupted (143: terminated); run the same command again to continue
  141  the reader of standard output closed the pipe";

/// The exit code of a run that failed. After a signal, the exit code comes from
/// `signals::exit_code` instead.
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
        Kind::WrongServer => WRONG_SERVER,
        Kind::NotAllowed => NOT_ALLOWED,
        Kind::Interrupted => INTERRUPTED,
        _ => FAILED,
    }
}

/// The exit code of a run that reached its end: losses take precedence over the code of the verb,
/// and that takes precedence over a member that did not take part.
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
            WRONG_SERVER,
            NOT_ALLOWED,
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
