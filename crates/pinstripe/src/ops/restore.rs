//! `restore`: writes a snapshot, or a subtree of it, below a directory or to its original place.

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::select::{Selected, first_entry, select};
use crate::pipeline::limits::Limits;
use crate::pipeline::restore::{
    self, ChosenReader, LinkMounts, LinkedFiles, Owners, Pass, PathFilter, RestorePlan, Reuse,
};
use crate::sink::{RemovedCount, Rules, TreeSink};
use crate::source;
use crate::store::Store;
use crate::store::choice::SnapshotName;
use crate::store::index::Index;
use crate::store::packs::{ChunkReader, PackReader};
use crate::store::tree::TreeReader;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::monitor::{Counter, Monitor};
use pinstripe_io::beneath::{shown, shown_from_root};
use pinstripe_member::keys::Keys;
use pinstripe_member::meta::FileKind;
use pinstripe_member::refuse_inside_member;
use pinstripe_member::snapshot::Snapshot;
use pinstripe_member::tree::is_at_or_below;

/// Options of a restore.
#[derive(Clone)]
pub struct RestoreOptions<'a> {
    /// The snapshot.
    pub snapshot: SnapshotName<'a>,
    /// A path in the snapshot; empty for everything.
    pub path: &'a [u8],
    /// The target directory.
    pub to: &'a Path,
    /// Replace existing files with restored ones. Implied by `reuse`.
    pub overwrite: bool,
    /// Keep content that the target already has, and replace the rest.
    pub reuse: Option<Reuse>,
    /// Keep full paths below the target even when a path in the snapshot is given: with the target
    /// `/`, everything returns to its original place.
    pub full_paths: bool,
    /// Remove what the target has but the snapshot does not have. Allowed only with `reuse` and
    /// without `filter`.
    pub delete: Option<Delete>,
    /// Which entries.
    pub filter: PathFilter,
    /// Which owners restored entries get.
    pub owners: Owners,
    /// Read everything again after it was written.
    pub verify: bool,
    /// Refuse a path that is a directory in the snapshot.
    pub no_directory: bool,
    /// Threads and queues.
    pub limits: Limits,
}

impl<'a> RestoreOptions<'a> {
    /// Options for a restore of everything, unchanged, into an empty directory, without reading it
    /// again.
    pub fn new(
        snapshot: impl Into<SnapshotName<'a>>,
        path: &'a [u8],
        to: &'a Path,
        limits: Limits,
    ) -> Self {
        RestoreOptions {
            snapshot: snapshot.into(),
            path,
            to,
            overwrite: false,
            reuse: None,
            full_paths: false,
            delete: None,
            filter: PathFilter::default(),
            owners: Owners::default(),
            verify: false,
            no_directory: false,
            limits,
        }
    }

    /// # Errors
    /// Fails with [`Kind::Usage`] for options that exclude each other, or with [`Kind::Refused`]
    /// for a target inside a member of a store.
    pub(super) fn check(&self) -> Result<()> {
        let is_filtered = self.filter.include.is_some() || self.filter.exclude.is_some();
        if self.delete.is_some() && (self.reuse.is_none() || is_filtered) {
            let what = "--delete works only with --in-place, and only without --include or \
                        --exclude";
            return Err(Error::new(Kind::Usage, what).advice(
                "add --in-place; to restore only a part of the snapshot, give a path as \
                 SNAPSHOT:PATH instead of --include or --exclude",
            ));
        }
        refuse_inside_member(self.to, self.to)
    }

    /// Returns the rules for writing the target.
    fn rules(&self) -> Rules {
        Rules {
            overwrite: self.overwrite || self.reuse.is_some(),
            remove_full: self.delete.is_some(),
            durable: self.reuse.is_some(),
            owners: !self.owners.leave,
        }
    }

    /// Returns the rules for a target that is only read.
    pub(super) fn rules_to_look(&self) -> Rules {
        Rules { durable: false, ..self.rules() }
    }
}

/// How much a restore may remove.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delete {
    /// Remove only if the snapshot is complete and no more entries would be removed than it has at
    /// the target.
    WithinReason,
    /// No limit.
    Whatever,
}

/// The entries to restore: everything at and below a path in a snapshot. Each pass over the entries
/// has a reader of its own.
pub(super) struct Selection<'a> {
    pub packs: &'a PackReader<'a>,
    pub index: &'a Index<'a>,
    pub snapshot: &'a Snapshot,
    pub below: &'a [u8],
    pub options: &'a RestoreOptions<'a>,
}

impl<'a> Selection<'a> {
    /// Returns a reader of all entries, selected or not.
    fn all_entries(&self) -> Result<TreeReader<'a>> {
        let chunks = ChunkReader::below(self.packs, self.index, self.below);
        TreeReader::new(chunks, &self.snapshot.root, self.below)
    }

    /// Returns a reader of the selected entries for a target, if there is one.
    ///
    /// # Errors
    /// Fails when the tree cannot be read.
    pub fn entries<'s>(&self, sink: Option<&'s TreeSink>) -> Result<ChosenReader<'s>>
    where
        'a: 's,
    {
        let RestoreOptions { filter, owners, .. } = self.options;
        let target = sink.map(|sink| LinkMounts::new(sink, self.strip()));
        Ok(ChosenReader::new(self.all_entries()?, filter, owners, target))
    }

    /// Fails unless the snapshot has the path.
    ///
    /// # Errors
    /// Fails with the errors of [`first_entry`], or with [`Kind::Usage`] if the path is a directory
    /// and must not be one.
    pub(crate) fn require(&self) -> Result<()> {
        let is_directory = self.below.is_empty() || {
            // The first entry is below the path if that of the path itself is lost.
            let first = first_entry(&mut self.all_entries()?, self.below)?;
            first.path != self.below || first.meta.kind == FileKind::Directory
        };
        if self.options.no_directory && is_directory {
            return Err(Error::new(Kind::Usage, "this path is a directory in the snapshot")
                .at(shown_from_root(self.below))
                .advice("restore a directory with --to DIR"));
        }
        Ok(())
    }

    /// Fails if an --include was given and no pattern of it matches any entry, so that a restore of
    /// nothing creates nothing. The tree is read up to the first selected entry. A tree that cannot
    /// be read is left to the restore, which reports what is lost.
    ///
    /// # Errors
    /// Fails with [`Kind::NotFound`] and the first pattern; first, as a dry run does, with the
    /// reasons to refuse an existing target.
    fn require_match(&self) -> Result<()> {
        let RestoreOptions { to, filter, .. } = self.options;
        if filter.include.is_none() {
            return Ok(());
        }
        if let Some(sink) = TreeSink::inspect(to, self.options.rules_to_look())? {
            self.check_above(&sink)?;
        }
        match self.entries(None)?.next_entry() {
            Ok(None) => filter.refuse_without_match(),
            Ok(Some(_)) | Err(_) => Ok(()),
        }
    }

    /// Returns the leading part that is removed from the paths of entries.
    pub fn strip(&self) -> &'a [u8] {
        if self.options.full_paths { b"" } else { self.below }
    }

    /// Returns the paths in the target that correspond to what the user named: the sources of the
    /// snapshot, and the path that is restored.
    pub fn named(&self) -> Vec<Vec<u8>> {
        let strip = self.strip();
        let sources = self.snapshot.sources.iter().map(|it| it.strip_prefix(b"/").unwrap_or(it));
        let below = sources.filter(|source| is_at_or_below(source, self.below));
        let mut named: Vec<Vec<u8>> =
            below.chain([self.below]).map(|path| restore::below(strip, path).to_vec()).collect();
        named.sort();
        named.dedup();
        named
    }

    /// Refuses a target with an entry of another type where the snapshot has a directory above its
    /// sources, such as a symlink to another disk: the directory would replace it, and the data
    /// behind the symlink could not be reached any more.
    ///
    /// # Errors
    /// Fails with [`Kind::Refused`] and the first entry that is in the way.
    pub(crate) fn check_above(&self, sink: &TreeSink) -> Result<()> {
        let is_above = |named: &Vec<u8>, at: usize| sink.is_in_the_way(&named[..at]);
        for named in self.named() {
            let mut ends = named.iter().enumerate().filter(|(_, byte)| **byte == b'/');
            if let Some((at, _)) = ends.find(|(at, _)| is_above(&named, *at)) {
                let what = "this path is not a directory, but it is a parent directory of the \
                            backed-up paths";
                return Err(Error::new(Kind::Refused, what)
                    .at(self.options.to.join(shown(&named[..at])))
                    .advice(
                        "give the path to restore as SNAPSHOT:PATH, and a target directory with \
                         --to",
                    ));
            }
        }
        Ok(())
    }

    /// Returns the plan of a restore, which verbs that only read use as well.
    pub fn plan<'p>(
        &'p self,
        sink: &'p TreeSink,
        keys: &'p Keys,
        mark: &'p [u8],
        monitor: &'p Monitor,
    ) -> RestorePlan<'p> {
        let RestoreOptions { to, reuse, limits, .. } = *self.options;
        RestorePlan {
            packs: self.packs,
            index: self.index,
            keys,
            sink,
            to,
            strip: self.strip(),
            reuse,
            limits,
            monitor,
            mark,
            owner_not_restored: AtomicU64::new(0),
            lost: Mutex::default(),
            blocked: Mutex::default(),
            linked: LinkedFiles::default(),
            making: Mutex::default(),
        }
    }
}

/// Restores. An entry that could not be restored is a loss in the ledger.
///
/// # Errors
/// Fails with [`Kind::Refused`] when the target is not empty and may not be overwritten, or when
/// too much would be removed, with [`Kind::Usage`] for options that exclude each other, or with the
/// error that keeps the restore from beginning, or when the target is full.
pub fn run(store: &Store, options: &RestoreOptions<'_>, monitor: &Monitor) -> Result<Snapshot> {
    options.check()?;
    let named = select(store, options.snapshot, options.path, monitor)?;
    for number in store.absent() {
        let absent =
            store.absence_as(number, "the member is absent; its strips are rebuilt from parity");
        monitor.warning(&store.member_slots[number].place, absent);
    }
    let index = Index::load(store, monitor)?;
    let packs = PackReader::new(store, monitor);
    let Selected { snapshot, below } = named.settle(&packs, &index, monitor);
    let selection =
        Selection { packs: &packs, index: &index, snapshot: &snapshot, below: &below, options };
    selection.require()?;
    if options.delete == Some(Delete::WithinReason) {
        refuse_losses(&snapshot)?;
    }
    selection.require_match()?;
    if below.is_empty() && options.filter.include.is_none() {
        monitor.set_total(snapshot.content_bytes(), snapshot.root.entries);
    }
    let sink = TreeSink::create(options.to, options.rules())?.with_named(selection.named());
    selection.check_above(&sink)?;
    let mark = mark_of(&snapshot, &below);
    let mut plan = selection.plan(&sink, store.keys()?, &mark, monitor);
    if options.delete == Some(Delete::WithinReason) {
        let (mut tree, sources) = (selection.entries(Some(&sink))?, &snapshot.sources);
        let removed = restore::extras(&plan, &mut tree, sources, Pass::Count, &mut |_, _| ());
        refuse_beyond_reason(&selection, removed)?;
    }
    sink.begin(&mark)?;
    if options.full_paths {
        make_way(&sink, &below)?;
    }
    if options.reuse.is_some() {
        plan.linked = LinkedFiles::read(&plan, &mut selection.entries(Some(&sink))?);
    }
    write_tree(&plan, &selection)?;
    options.filter.report_unmet(monitor)?;
    Ok(snapshot)
}

/// Runs the passes that write: first files, then the removal of what is in the way, then everything
/// else, and finally one that reads everything again.
fn write_tree(plan: &RestorePlan<'_>, selection: &Selection<'_>) -> Result<()> {
    let Selection { snapshot, options, .. } = *selection;
    let mut first = plan.files(&mut selection.entries(Some(plan.sink))?)?;
    while plan.files_under_other_names(&mut selection.entries(Some(plan.sink))?, &mut first)? {}
    if options.delete.is_some() {
        let mut entries = selection.entries(Some(plan.sink))?;
        restore::extras(plan, &mut entries, &snapshot.sources, Pass::Remove, &mut |_, _| ());
    }
    restore::finish_tree(plan, &mut selection.entries(Some(plan.sink))?, &mut first)?;
    let RemovedCount { entries, bytes } = plan.sink.cleared();
    plan.monitor.add(Counter::RemovedEntries, entries);
    plan.monitor.add(Counter::RemovedBytes, bytes);
    plan.sink.end(plan.mark);
    let not_given = plan.owner_not_restored.load(Ordering::Relaxed);
    if not_given > 0 {
        let entries = pinstripe_base::units::counted(
            not_given,
            "restored entry belongs",
            "restored entries belong",
        );
        let what = format!("{entries} to you, not to the original owner");
        let advice = "only root can change owners: restore as root to keep the original owners";
        plan.monitor.warning(options.to, Error::new(Kind::Refused, what).advice(advice));
    }
    if options.verify {
        let target = source::open_directory(options.to)?;
        restore::verify(plan, &mut selection.entries(Some(plan.sink))?, target.as_fd())?;
    }
    Ok(())
}

/// Returns the mark that an initially empty target has until the restore has finished.
#[must_use]
pub fn mark_of(snapshot: &Snapshot, below: &[u8]) -> Vec<u8> {
    let what =
        format!("a restore of snapshot {} into this directory has not ended; path: /", snapshot.id);
    [what.as_bytes(), below, b"\n"].concat()
}

/// Creates the missing directories above `below`.
fn make_way(sink: &TreeSink, below: &[u8]) -> Result<()> {
    for (at, _) in below.iter().enumerate().filter(|(_, byte)| **byte == b'/') {
        if !sink.has(&below[..at]) {
            sink.make_directory(&below[..at])?;
        }
    }
    Ok(())
}

/// The advice for a refused removal.
const OVERRIDE_IT: &str = "check the removals with --dry-run; if they are intended, add --yes";

/// Refuses to remove anything by the entries of a snapshot with losses, which may lack them for
/// that reason.
pub(super) fn refuse_losses(snapshot: &Snapshot) -> Result<()> {
    let lost = snapshot.count("losses").unwrap_or(0);
    if lost > 0 {
        let lost = pinstripe_base::units::counted(lost, "entry", "entries");
        let what = format!(
            "the snapshot lacks {lost} that could not be backed up, and --delete would remove the \
             files at their paths"
        );
        return Err(Error::new(Kind::Refused, what).advice(OVERRIDE_IT));
    }
    Ok(())
}

/// Refuses to remove more than the snapshot has: a wrong target has little in common with the
/// snapshot.
pub(super) fn refuse_beyond_reason(selection: &Selection<'_>, removed: RemovedCount) -> Result<()> {
    let Selection { snapshot, below, .. } = *selection;
    let mut entries = 0;
    if below.is_empty() {
        entries = snapshot.root.entries;
    } else {
        let mut all = selection.all_entries()?;
        while entries < removed.entries && matches!(all.next_entry(), Ok(Some(_))) {
            entries += 1;
        }
    }
    if removed.entries > entries {
        let what = "--delete would remove more entries than the snapshot has under this path";
        return Err(Error::new(Kind::Refused, what)
            .at(selection.options.to)
            .expected(format!("the removal of at most {entries} entries"), removed.entries)
            .advice(OVERRIDE_IT));
    }
    Ok(())
}
