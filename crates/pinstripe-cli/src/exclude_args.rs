//! The options that exclude entries from a backup or a restore, in the order in which they were
//! given: the last rule that matches decides.

use std::ffi::OsString;
use std::ops::Deref;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use clap::{ArgMatches, Args, Command, FromArgMatches, ValueHint};
use pinstripe::{DirectoryTag, Exclude, FileLimits, IgnoreFile, RuleOrigin, WrittenRule};
use pinstripe_base::clock;
use pinstripe_base::error::Result;
use pinstripe_member::meta::Time;

use crate::args::{Size, size};
use crate::config::BackupEntry;
use crate::lists;
use crate::rules::TimeSpan;

/// What `backup` excludes.
#[derive(clap::Args, Debug)]
#[group(skip)]
pub struct ExcludeArgs {
    /// Exclude entries that match this pattern, or with ! before it include them again; may be given
    /// more than once
    ///
    /// The last matching pattern decides, in the order of the command line. Nothing below an
    /// excluded directory can be included again. Patterns of the config file come before those of
    /// the command line.
    #[arg(long, value_name = "PATTERN")]
    pub exclude: Vec<OsString>,

    /// Like --exclude, but letters of both cases match
    #[arg(long, value_name = "PATTERN")]
    pub iexclude: Vec<OsString>,

    /// Exclude entries that match a pattern in this file, which has one pattern per line
    ///
    /// Empty lines of the file, and lines that begin with #, are ignored.
    #[arg(long, visible_alias = "exclude-from", value_name = "FILE",
          value_hint = ValueHint::FilePath)]
    pub exclude_file: Vec<PathBuf>,

    /// Exclude entries by the rules in files of this name, as git does for .gitignore; may be given
    /// more than once
    ///
    /// The rules in such a file apply to what is at and below the directory of the file, and have
    /// precedence over the rules in directories above. --exclude, --iexclude and --exclude-file have
    /// precedence over all these files.
    #[arg(long, value_name = "NAME")]
    pub ignore_file: Vec<OsString>,

    /// Exclude the content of directories that contain a file CACHEDIR.TAG
    ///
    /// The file CACHEDIR.TAG must begin with the signature that bford.info/cachedir specifies. An
    /// excluded directory itself and its CACHEDIR.TAG are still backed up. The content of a PATH is
    /// always backed up, even if PATH contains a CACHEDIR.TAG.
    #[arg(long)]
    pub exclude_caches: bool,

    /// Exclude the content of directories that contain an entry NAME, which, with HEADER, is a file
    /// that begins with these bytes; may be given more than once
    ///
    /// As with --exclude-caches, the directory itself and its entry NAME are still backed up, and so
    /// is the content of a PATH.
    #[arg(long, value_name = "NAME[:HEADER]")]
    pub exclude_if_present: Vec<OsString>,

    /// Exclude regular files that are larger than this size, for example 100M or 4G
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub exclude_larger_than: Option<Size>,

    /// Exclude regular files that were modified longer ago than this, for example 36h, 30d, 8w, 6m
    /// or 2y
    ///
    /// The unit m is 30 days, and the unit y is 365 days. The age is measured from the begin of the
    /// backup.
    #[arg(long, value_name = "AGE")]
    pub exclude_older_than: Option<TimeSpan>,
}

impl Ordered<ExcludeArgs> {
    /// What these options and an entry of the config file exclude together.
    ///
    /// # Errors
    /// Fails for an invalid pattern or name, and for a list that cannot be read.
    pub fn with(&self, entry: &BackupEntry) -> Result<Exclude> {
        let mut rules = Vec::new();
        for (key, patterns) in [("exclude", &entry.exclude), ("iexclude", &entry.iexclude)] {
            rules.extend(patterns.iter().map(|pattern| WrittenRule {
                text: pattern.as_bytes().to_vec(),
                ignores_case: key == "iexclude",
                origin: RuleOrigin::Config(key),
            }));
        }
        for list in &entry.exclude_file {
            rules.extend(lists::patterns(list)?);
        }
        for (option, number) in &self.order {
            match *option {
                "exclude" => rules.push(given("--exclude", &self.exclude[*number])),
                "iexclude" => rules.push(WrittenRule {
                    ignores_case: true,
                    ..given("--iexclude", &self.iexclude[*number])
                }),
                _ => rules.extend(lists::patterns(&self.exclude_file[*number])?),
            }
        }
        let mut exclude = Exclude::of_rules(rules)?;
        if self.exclude_caches || entry.exclude_caches {
            exclude = exclude.with_tag(DirectoryTag::of_caches());
        }
        let named = self.exclude_if_present.iter().map(|it| it.as_bytes());
        for tag in named.chain(entry.exclude_if_present.iter().map(|it| it.as_bytes())) {
            exclude = exclude.with_tag(DirectoryTag::parse(tag)?);
        }
        let configured = entry.ignore_file.iter().map(|it| it.as_bytes());
        for name in configured.chain(self.ignore_file.iter().map(|it| it.as_bytes())) {
            exclude = exclude.with_ignore_file(IgnoreFile::parse(name)?);
        }
        let age = self.exclude_older_than.as_ref().or(entry.exclude_older_than.as_ref());
        let larger = self.exclude_larger_than.or(entry.exclude_larger_than);
        Ok(exclude.with_limits(FileLimits {
            larger_than: larger.map(|size| size.0),
            older_than: age.map(|age| {
                let (seconds, nanos) = clock::now();
                Time { seconds: seconds.saturating_sub_unsigned(age.seconds()), nanos }
            }),
        }))
    }
}

impl HasOrder for ExcludeArgs {
    const ORDERED: &[&str] = &["exclude", "iexclude", "exclude_file"];
}

/// What `restore` selects.
#[derive(clap::Args, Debug)]
#[group(skip)]
pub struct FilterArgs {
    /// Restore only entries that match this pattern, and everything below them; patterns are
    /// written as for 'backup --exclude'; may be given more than once
    #[arg(long, value_name = "PATTERN")]
    include: Vec<OsString>,

    /// Like --include, for each pattern in this file, which has one pattern per line
    #[arg(long, visible_alias = "include-file", value_name = "FILE",
          value_hint = ValueHint::FilePath)]
    include_from: Vec<PathBuf>,

    /// Do not restore entries that match this pattern, or anything below them; may be given more
    /// than once
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<OsString>,

    /// Like --exclude, for each pattern in this file, which has one pattern per line
    #[arg(long, visible_alias = "exclude-file", value_name = "FILE",
          value_hint = ValueHint::FilePath)]
    exclude_from: Vec<PathBuf>,
}

impl HasOrder for FilterArgs {
    const ORDERED: &[&str] = &["include", "include_from", "exclude", "exclude_from"];
}

impl Ordered<FilterArgs> {
    /// The patterns of --include and --include-from, if any were given.
    ///
    /// # Errors
    /// Fails for an invalid pattern, and for a list that cannot be read or is empty.
    pub fn included(&self) -> Result<Option<Exclude>> {
        self.patterns("--include", &self.include, "include_from", &self.include_from)
    }

    /// The patterns of --exclude and --exclude-from, if any were given.
    ///
    /// # Errors
    /// Fails as [`included`](Self::included) does.
    pub fn excluded(&self) -> Result<Option<Exclude>> {
        self.patterns("--exclude", &self.exclude, "exclude_from", &self.exclude_from)
    }

    fn patterns(
        &self,
        option: &'static str,
        patterns: &[OsString],
        from: &str,
        files: &[PathBuf],
    ) -> Result<Option<Exclude>> {
        let mut rules = Vec::new();
        for (name, number) in &self.order {
            if option.strip_prefix("--") == Some(name) {
                rules.push(given(option, &patterns[*number]));
            } else if *name == from {
                rules.extend(lists::some_patterns(&files[*number])?);
            }
        }
        let is_given = !rules.is_empty();
        is_given.then(|| Exclude::of_rules(rules)).transpose()
    }
}

fn given(option: &'static str, pattern: &OsString) -> WrittenRule {
    let text = pattern.as_bytes().to_vec();
    WrittenRule { text, ignores_case: false, origin: RuleOrigin::Option(option) }
}

/// Options whose order matters.
pub trait HasOrder {
    /// Their ids.
    const ORDERED: &[&str];
}

/// Options, and the order in which some of them were given.
#[derive(Debug)]
pub struct Ordered<T> {
    given: T,
    /// The id of an option, and which of its values it is.
    order: Vec<(&'static str, usize)>,
}

impl<T> Deref for Ordered<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.given
    }
}

impl<T: FromArgMatches + HasOrder> FromArgMatches for Ordered<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ordered::from_arg_matches_mut(&mut matches.clone())
    }

    fn from_arg_matches_mut(matches: &mut ArgMatches) -> Result<Self, clap::Error> {
        let mut places = Vec::new();
        for &id in T::ORDERED {
            let found = matches.indices_of(id).into_iter().flatten().enumerate();
            places.extend(found.map(|(number, place)| (place, (id, number))));
        }
        places.sort_unstable();
        let order = places.into_iter().map(|(_, it)| it).collect();
        Ok(Ordered { given: T::from_arg_matches_mut(matches)?, order })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Ordered::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<T: Args + HasOrder> Args for Ordered<T> {
    fn augment_args(command: Command) -> Command {
        T::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        T::augment_args_for_update(command)
    }
}
