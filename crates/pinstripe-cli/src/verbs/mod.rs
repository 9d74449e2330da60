//! The verbs, one file each: their options, their calls of the library, their output.

mod analyze;
mod array;
mod backup;
mod cat;
mod catalog;
mod check;
mod completions;
mod config;
#[cfg(feature = "serve")]
mod connect;
mod diff;
mod dump;
mod explain;
mod fakevmcore;
mod find;
mod forget;
mod gc;
mod hint;
mod history;
mod init;
mod inspect;
mod join;
mod key;
mod lab;
mod ls;
mod man;
mod member;
mod members;
mod mount;
mod overlay;
mod play;
#[cfg(feature = "s3")]
mod probe;
mod record;
mod recover;
mod repair;
mod restore;
mod restore_file;
mod scrub;
#[cfg(feature = "serve")]
mod serve;
mod shown;
mod snapshots;
mod split;
mod stats;
mod tag;
#[cfg(feature = "serve")]
mod token;
mod undelete;
mod upgrade;
mod verify;

use pinstripe_base::error::Result;

use crate::run::{Ending, Run};

/// The verb. The options of a verb are built only when it is parsed, because all verbs together
/// have about 700 options.
#[derive(clap::Subcommand)]
#[command(defer = true)]
pub enum Verb {
    Init(init::InitArgs),
    Backup(backup::BackupArgs),
    Snapshots(snapshots::SnapshotsArgs),
    Ls(ls::LsArgs),
    Cat(cat::CatArgs),
    Dump(dump::DumpArgs),
    Find(find::FindArgs),
    History(history::HistoryArgs),
    Diff(diff::DiffArgs),
    Catalog(catalog::CatalogArgs),
    Restore(restore::RestoreArgs),
    Mount(mount::MountArgs),
    Overlay(overlay::OverlayArgs),
    Hint(hint::HintArgs),
    Forget(forget::ForgetArgs),
    Undelete(undelete::UndeleteArgs),
    Tag(tag::TagArgs),
    Gc(gc::GcArgs),
    Stats(stats::StatsArgs),
    Analyze(analyze::AnalyzeArgs),
    Check(check::CheckArgs),
    Members(members::MembersArgs),
    Member(member::MemberArgs),
    #[cfg(feature = "s3")]
    Probe(probe::ProbeArgs),
    Repair(repair::RepairArgs),
    Upgrade(upgrade::UpgradeArgs),
    Config(config::ConfigArgs),
    Scrub(scrub::ScrubArgs),
    Key(key::KeyArgs),
    #[cfg(feature = "serve")]
    Serve(serve::ServeArgs),
    #[cfg(feature = "serve")]
    Token(token::TokenArgs),
    #[cfg(feature = "serve")]
    Connect(connect::ConnectArgs),
    Split(split::SplitArgs),
    Join(join::JoinArgs),
    Verify(verify::VerifyArgs),
    Inspect(inspect::InspectArgs),
    Array(array::ArrayArgs),
    Record(Box<record::RecordArgs>),
    Recover(recover::RecoverArgs),
    Play(play::PlayArgs),
    Fakevmcore(fakevmcore::FakevmcoreArgs),
    Lab(lab::LabArgs),
    Completions(completions::CompletionsArgs),
    Man(man::ManArgs),
}

impl Verb {
    /// The name.
    pub fn name(&self) -> &'static str {
        match self {
            Verb::Init(_) => "init",
            Verb::Backup(_) => "backup",
            Verb::Snapshots(_) => "snapshots",
            Verb::Ls(_) => "ls",
            Verb::Cat(_) => "cat",
            Verb::Dump(_) => "dump",
            Verb::Find(_) => "find",
            Verb::History(_) => "history",
            Verb::Diff(_) => "diff",
            Verb::Catalog(_) => "catalog",
            Verb::Restore(_) => "restore",
            Verb::Mount(_) => "mount",
            Verb::Overlay(_) => "overlay",
            Verb::Hint(_) => "hint",
            Verb::Forget(_) => "forget",
            Verb::Undelete(_) => "undelete",
            Verb::Tag(_) => "tag",
            Verb::Gc(_) => "gc",
            Verb::Stats(_) => "stats",
            Verb::Analyze(_) => "analyze",
            Verb::Check(_) => "check",
            Verb::Members(_) => "members",
            Verb::Member(_) => "member",
            #[cfg(feature = "s3")]
            Verb::Probe(_) => "probe",
            Verb::Repair(_) => "repair",
            Verb::Upgrade(_) => "upgrade",
            Verb::Config(_) => "config",
            Verb::Scrub(_) => "scrub",
            Verb::Key(_) => "key",
            #[cfg(feature = "serve")]
            Verb::Serve(_) => "serve",
            #[cfg(feature = "serve")]
            Verb::Token(_) => "token",
            #[cfg(feature = "serve")]
            Verb::Connect(_) => "connect",
            Verb::Split(_) => "split",
            Verb::Join(_) => "join",
            Verb::Verify(_) => "verify",
            Verb::Inspect(_) => "inspect",
            Verb::Array(_) => "array",
            Verb::Record(_) => "record",
            Verb::Recover(_) => "recover",
            Verb::Play(_) => "play",
            Verb::Fakevmcore(_) => "fakevmcore",
            Verb::Lab(_) => "lab",
            Verb::Completions(_) => "completions",
            Verb::Man(_) => "man",
        }
    }

    /// Whether the verb writes nothing into a store and can show a store as of an earlier time.
    #[cfg(feature = "s3")]
    fn may_show_past(&self) -> bool {
        self.may_use_cache() && !matches!(self, Verb::Backup(_) | Verb::Catalog(_))
            || matches!(self, Verb::Check(_) | Verb::Members(_))
    }

    /// Whether the verb only reads the content of a store, so that listings may come from this
    /// host's cache. Verbs that check, repair or delete on the members must not use the cache.
    #[cfg(feature = "s3")]
    fn may_use_cache(&self) -> bool {
        matches!(
            self,
            Verb::Backup(_)
                | Verb::Snapshots(_)
                | Verb::Ls(_)
                | Verb::Cat(_)
                | Verb::Dump(_)
                | Verb::Find(_)
                | Verb::History(_)
                | Verb::Diff(_)
                | Verb::Catalog(_)
                | Verb::Restore(_)
                | Verb::Mount(_)
                | Verb::Stats(_)
        )
    }

    /// Runs the verb. `command` builds the entire command line, for verbs that print it.
    ///
    /// # Errors
    /// Fails with the errors of the verb.
    pub fn run(&self, run: &Run, command: fn() -> clap::Command) -> Result<Ending> {
        #[cfg(feature = "s3")]
        {
            let instead = "with --at, only verbs that read the store can be used";
            let is_shown = run.shows_past() && !self.may_show_past();
            crate::args::refuse_option(is_shown, "--at", instead)?;
            if self.may_use_cache() {
                run.allow_cache();
            }
        }
        match self {
            Verb::Init(args) => args.run(run),
            Verb::Backup(args) if args.reads_stdin() => args.run(run),
            Verb::Backup(args) => run.without_silent(|| args.run(run)),
            Verb::Snapshots(args) => args.run(run),
            Verb::Ls(args) => args.run(run),
            Verb::Cat(args) => args.run(run),
            Verb::Dump(args) => args.run(run),
            Verb::Find(args) => args.run(run),
            Verb::History(args) => args.run(run),
            Verb::Diff(args) => args.run(run),
            Verb::Catalog(args) => args.run(run),
            Verb::Restore(args) => args.run(run),
            Verb::Mount(args) => args.run(run),
            Verb::Overlay(args) => args.run(run),
            Verb::Hint(args) => args.run(run),
            Verb::Forget(args) => args.run(run),
            Verb::Undelete(args) => run.without_silent(|| args.run(run)),
            Verb::Tag(args) => run.without_silent(|| args.run(run)),
            Verb::Gc(args) => run.without_silent(|| args.run(run)),
            Verb::Stats(args) => args.run(run),
            Verb::Analyze(args) => args.run(run),
            Verb::Check(args) => args.run(run),
            Verb::Members(args) => args.run(run),
            Verb::Member(args) => args.run(run),
            #[cfg(feature = "s3")]
            Verb::Probe(args) => args.run(run),
            Verb::Repair(args) => run.without_silent(|| args.run(run)),
            Verb::Upgrade(args) => run.without_silent(|| args.run(run)),
            Verb::Config(args) => args.run(run),
            Verb::Scrub(args) => run.without_silent(|| args.run(run)),
            Verb::Key(args) => args.run(run),
            #[cfg(feature = "serve")]
            Verb::Serve(args) => args.run(run),
            #[cfg(feature = "serve")]
            Verb::Token(args) => args.run(run),
            #[cfg(feature = "serve")]
            Verb::Connect(args) => args.run(run),
            Verb::Split(args) => args.run(run),
            Verb::Join(args) => args.run(run),
            Verb::Verify(args) => args.run(run),
            Verb::Inspect(args) => args.run(run),
            Verb::Array(args) => args.run(run),
            Verb::Record(args) => args.run(run),
            Verb::Recover(args) => args.run(run),
            Verb::Play(args) => args.run(run),
            Verb::Fakevmcore(args) => args.run(run),
            Verb::Lab(args) => args.run(run),
            Verb::Completions(args) => args.run(run, command()),
            Verb::Man(args) => args.run(run, command()),
        }
    }
}
