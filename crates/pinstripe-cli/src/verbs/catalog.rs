//! `pinstripe catalog`: manages the file from which searches are answered.

use std::path::{Path, PathBuf};

use pinstripe::{Store, catalog_status, rebuild_catalog, shared};
use pinstripe_base::error::Result;
use pinstripe_base::monitor::Counter;
use pinstripe_base::units::format_size;
use pinstripe_member::SharedCatalog;

use crate::event::Event;
use crate::message::counted;
use crate::run::progress::Gauge;
use crate::run::{Ending, Run};
use crate::time;
use crate::xdg;

/// Rebuild the catalog (an index of the paths in all snapshots), or show its status
///
/// 'find' and 'history' search the catalog. The catalog is a file outside the store. The catalog is
/// built from the snapshots, and each search updates the catalog. Backup and restore do not need
/// the catalog. The catalog contains file names in clear text; only the user who owns the catalog
/// file can read it.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe catalog status
  pinstripe catalog rebuild
  pinstripe catalog rebuild --catalog /var/cache/names.sqlite
  pinstripe catalog rebuild --all-hosts")]
pub struct CatalogArgs {
    #[command(subcommand)]
    what: CatalogVerb,

    #[command(flatten)]
    place: CatalogFile,

    /// For a store behind a server: the server's shared catalog, instead of the catalog file
    ///
    /// 'rebuild' removes the snapshots that the token of this host may change, which are those of all
    /// hosts for the role admin, and sends them again.
    #[arg(long, global = true)]
    all_hosts: bool,
}

#[derive(clap::Subcommand)]
enum CatalogVerb {
    /// Discard the catalog and rebuild it from the snapshots
    Rebuild,
    /// Show where the catalog is, what it contains, and whether it is up to date
    Status,
}

/// Option for the place of the catalog.
#[derive(clap::Args)]
pub struct CatalogFile {
    /// Path of the catalog file
    ///
    /// Default: $XDG_CACHE_HOME/pinstripe/STORE/catalog.sqlite, or the same file below ~/.cache;
    /// STORE is the id of the store.
    #[arg(long, value_name = "FILE", global = true, value_hint = clap::ValueHint::FilePath)]
    catalog: Option<PathBuf>,
}

impl CatalogFile {
    /// The catalog of a store.
    ///
    /// # Errors
    /// Fails when no catalog was named and there is no home directory.
    pub fn database(&self, run: &Run, store: &Store) -> Result<PathBuf> {
        catalog_file(self.catalog.as_deref(), run, store)
    }
}

/// The catalog of a store: the file that was named, or the user's default one. A store that is
/// shown as of an earlier time has a catalog of its own, because an update would remove later
/// snapshots from the usual one.
///
/// # Errors
/// Fails when no catalog was named and there is no home directory.
pub fn catalog_file(named: Option<&Path>, run: &Run, store: &Store) -> Result<PathBuf> {
    match named {
        Some(named) => Ok(named.to_path_buf()),
        None if run.shows_past() => {
            Ok(xdg::catalog(store.config.store)?.with_file_name("catalog-at.sqlite"))
        }
        None => xdg::catalog(store.config.store),
    }
}

/// The progress of filling a catalog, measured by the bytes read of the trees.
pub const GAUGE: Gauge = Gauge {
    label: "filling the catalog",
    done_bytes: |monitor| monitor.get(Counter::FetchedBytes),
    passes: 1,
};

impl CatalogArgs {
    /// Runs the verb.
    ///
    /// # Errors
    /// Fails with the errors of [`catalog::rebuild`] and [`catalog::status`].
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let store = run.open_store()?;
        run.warn_of_absent(&store);
        if let Some(of_all) = run.catalog_of_all(&store, self.all_hosts)? {
            return self.of_all(run, &store, &*of_all);
        }
        let place = self.place.database(run, &store)?;
        if matches!(self.what, CatalogVerb::Rebuild) {
            let ticker = run.ticker(GAUGE);
            rebuild_catalog(&store, &place, &run.monitor)?;
            drop(ticker);
        }
        let status = catalog_status(&store, &place)?;
        let size = &status.size;
        run.screen.say(&format!("the catalog {} has {}", place.display(), format_size(size.bytes)));
        run.screen.say(&format!(
            "it lists {} of {}, and {} of paths in {}",
            counted(size.snapshots, "snapshot"),
            sets(size.series),
            counted(size.versions, "version"),
            pinstripe_base::units::counted(size.directories, "directory", "directories"),
        ));
        if matches!(self.what, CatalogVerb::Rebuild) {
            run.screen.say(&format!("the catalog was rebuilt in {}", time::span(run.elapsed())));
        } else {
            run.screen.say(&truth(status.missing, status.gone));
        }
        Ok(Ending::done(
            Event::default()
                .with_path("catalog", &place)
                .with("catalog_bytes", size.bytes)
                .with("snapshots", size.snapshots)
                .with("versions", size.versions)
                .with("directories", size.directories)
                .with("missing_snapshots", status.missing)
                .with("gone_snapshots", status.gone),
        ))
    }
}

impl CatalogArgs {
    /// Runs the verb on the shared catalog.
    fn of_all(&self, run: &Run, store: &Store, of_all: &dyn SharedCatalog) -> Result<Ending> {
        let mut facts = Event::default();
        if matches!(self.what, CatalogVerb::Rebuild) {
            let ticker = run.ticker(GAUGE);
            let sent = shared::rebuild(store, of_all, &run.monitor)?.sent;
            drop(ticker);
            facts = facts.with("sent_snapshots", sent);
        }
        let size = of_all.size()?;
        run.screen.say(&format!(
            "the shared catalog lists {} of {}, and {} of paths; its database has {}",
            counted(size.snapshots, "snapshot"),
            sets(size.series),
            counted(size.versions, "version"),
            format_size(size.bytes),
        ));
        let facts = facts.with("snapshots", size.snapshots).with("versions", size.versions);
        Ok(Ending::done(facts.with("catalog_bytes", size.bytes)))
    }
}

fn truth(missing: u64, gone: u64) -> String {
    match (missing, gone) {
        (0, 0) => "the catalog is up to date".to_owned(),
        _ => format!(
            "the next search adds {} to the catalog and removes {}",
            counted(missing, "snapshot"),
            counted(gone, "snapshot")
        ),
    }
}

fn sets(series: u64) -> String {
    format!("{} of backed-up paths", counted(series, "set"))
}
