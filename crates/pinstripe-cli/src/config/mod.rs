//! The config file: named stores, named backups, retention. doc/config.md lists all keys.
//!
//! Invariants: an unknown key or value is refused with file, line and what was expected; paths are
//! absolute; an option on the command line takes precedence over the file. The config file may name
//! a file of knobs; therefore all verbs read it except those that `knobs` excludes, and an invalid
//! config file stops them unless --knobs is given.

mod prices;
mod reader;
mod serve;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_stripe::GroupBy;
use serde::Serialize;

pub use self::prices::{Money, PriceEntry};
pub use self::reader::Source;
use self::reader::{Table, nearest};
pub use self::serve::{AlarmEntry, JobEntry, ServeEntry};
use crate::args::Common;
use crate::credential::CredentialArgs;
use crate::rules::{Rules, TimeSpan};
use crate::values::{Size, size};
use crate::xdg;

/// The environment variable that names a config file.
const VARIABLE: &str = "PINSTRIPE_CONFIG";

/// A longer file is not a config file, which is written by hand.
const FILE_MAX_BYTES: u64 = 1 << 20;

/// The content of a config file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Config {
    /// The name in `stores` of the store that is used when none is named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_store: Option<String>,
    /// Stores by name.
    #[serde(rename = "store", skip_serializing_if = "BTreeMap::is_empty")]
    pub stores: BTreeMap<String, StoreEntry>,
    /// Backups by name.
    #[serde(rename = "backup", skip_serializing_if = "BTreeMap::is_empty")]
    pub backups: BTreeMap<String, BackupEntry>,
    /// The prices of bucket providers, by a name for each provider.
    #[serde(rename = "price", skip_serializing_if = "BTreeMap::is_empty")]
    pub prices: BTreeMap<String, PriceEntry>,
    /// The size of this host's cache of stores in buckets, in bytes.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_size")]
    pub cache_size: Option<u64>,
    /// The file with measured settings, which are used for options that are not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub knobs: Option<PathBuf>,
    /// The rules that `forget` uses to keep snapshots when no rule is given as an option.
    #[serde(skip_serializing_if = "Rules::is_empty")]
    pub retention: Rules,
    /// The settings of `pinstripe serve`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serve: Option<ServeEntry>,
}

/// A store with a name: where its members are and how it is unlocked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct StoreEntry {
    /// The place of one member, or of several: each is tried until one opens the store.
    #[serde(rename = "member", serialize_with = "one_or_many")]
    pub members: Vec<PathBuf>,
    /// A file whose first line is the password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password_file: Option<PathBuf>,
    /// A command that prints the password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password_command: Option<String>,
    /// A key file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_file: Option<PathBuf>,
    /// The rules of this store, which `forget` uses instead of the general ones.
    #[serde(skip_serializing_if = "Rules::is_empty")]
    pub retention: Rules,
}

/// A backup with a name: what to back up, and into which store.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct BackupEntry {
    /// The name of the store; by default, the default store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store: Option<String>,
    /// Files and directories.
    pub paths: Vec<PathBuf>,
    /// Patterns of files to exclude.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
    /// Such patterns that match letters of both cases.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub iexclude: Vec<String>,
    /// Files with patterns of files to exclude.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exclude_file: Vec<PathBuf>,
    /// Names of files with rules for their directories.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ignore_file: Vec<String>,
    /// Exclude the content of cache directories.
    pub exclude_caches: bool,
    /// Exclude the content of directories with such an entry.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exclude_if_present: Vec<String>,
    /// Exclude larger files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exclude_larger_than: Option<Size>,
    /// Exclude files that were modified longer ago.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exclude_older_than: Option<TimeSpan>,
    /// Do not enter other file systems.
    pub one_file_system: bool,
    /// Tags of the snapshots.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// The machine's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

impl Config {
    /// The names under which backups of this host are stored, besides the machine's name.
    pub fn host_names(&self) -> impl Iterator<Item = &str> {
        self.backups.values().filter_map(|backup| backup.host.as_deref())
    }

    /// Reads the config file that was named, or the one in its default place if that exists; also
    /// returns its path.
    ///
    /// # Errors
    /// Fails when the named file cannot be read, or when a file has an invalid key or value.
    pub fn load(common: &Common) -> Result<(Config, Option<PathBuf>)> {
        let named = common.config.clone().or_else(|| xdg::set(VARIABLE).map(PathBuf::from));
        let is_named = named.is_some();
        let Some(file) = named.or_else(usual_place) else { return Ok((Config::default(), None)) };
        let bytes = match std::fs::metadata(&file).and_then(|it| match it.len() {
            0..=FILE_MAX_BYTES => std::fs::read(&file),
            _ => Err(std::io::Error::from(std::io::ErrorKind::FileTooLarge)),
        }) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && !is_named => {
                return Ok((Config::default(), None));
            }
            Err(error) => return Err(Error::of_named("cannot read the config file", &file, error)),
        };
        let text = String::from_utf8(bytes).map_err(|error| {
            let good = error.utf8_error().valid_up_to();
            Error::new(Kind::Usage, "the config file is not UTF-8")
                .at(&file)
                .expected("UTF-8", format!("a byte that is not UTF-8 at offset {good}"))
        })?;
        let home = xdg::set("HOME").map(PathBuf::from);
        let config = Config::parse(&file, &text, home.as_deref())?;
        Ok((config, Some(file)))
    }

    /// Reads the text of a config file.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`], with file and line, for an invalid key or value.
    pub fn parse(file: &Path, text: &str, home: Option<&Path>) -> Result<Config> {
        let source = Source { file, text, home };
        let parsed = toml::de::DeTable::parse(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            let what = error.message().lines().collect::<Vec<_>>().join(", ");
            source.error(at, format!("the config file is not valid TOML: {what}"))
        })?;
        let mut table = Table::new(&source, "", parsed.get_ref());
        let mut config = Config {
            stores: each(table.named_tables("store")?, store_entry)?,
            backups: each(table.named_tables("backup")?, backup_entry)?,
            prices: each(table.named_tables("price")?, prices::entry)?,
            retention: table.table("retention")?.map_or(Ok(Rules::default()), retention)?,
            serve: table.table("serve")?.map(serve::entry).transpose()?,
            default_store: None,
            knobs: table.path("knobs")?,
            cache_size: cache_size(&mut table)?,
        };
        config.default_store = table.string("default-store")?;
        let check = |name: &Option<String>, table: &Table<'_>, key: &str| match name {
            Some(name) if !config.stores.contains_key(name) => {
                let error = table.error(key, format!("the config file has no store '{name}'"));
                Err(error.advice(config.advice_for_store(name)))
            }
            _ => Ok(()),
        };
        check(&config.default_store, &table, "default-store")?;
        let first = config.prices.values().next().map_or("", |prices| &prices.currency);
        for (name, inner) in table.named_tables("price")? {
            let other = &config.prices[&name].currency;
            if other != first {
                let error = inner.error("currency", "prices of two currencies cannot be added up");
                let found = format!("'{other}', the default of a price table without a currency");
                let found = if inner.has("currency") { format!("'{other}'") } else { found };
                return Err(error.expected(
                    format!("the same currency in all price tables, for example '{first}'"),
                    found,
                ));
            }
        }
        for (name, inner) in table.named_tables("backup")? {
            check(&config.backups[&name].store, &inner, "store")?;
        }
        table.finish()?;
        Ok(config)
    }

    /// The store with this name.
    ///
    /// # Errors
    /// Fails with [`Kind::NotFound`], with the most similar name.
    pub fn store(&self, name: &str) -> Result<&StoreEntry> {
        self.stores.get(name).ok_or_else(|| {
            Error::new(Kind::NotFound, format!("the config file has no store '{name}'"))
                .advice(self.advice_for_store(name))
        })
    }

    /// The stores that have a member at one of these places.
    fn at(&self, places: &[&Path]) -> Vec<&StoreEntry> {
        let is_it = |entry: &&StoreEntry| {
            entry.members.iter().any(|member| {
                let real = std::fs::canonicalize(member);
                places.iter().any(|&place| place == member)
                    || real.is_ok_and(|real| places.contains(&&*real))
            })
        };
        self.stores.values().filter(is_it).collect()
    }

    /// The key of the store that has a member at one of these places.
    pub fn key_of(&self, places: &[&Path]) -> CredentialArgs {
        let entry = self.at(places).first().copied().cloned().unwrap_or_default();
        CredentialArgs {
            password_file: entry.password_file,
            password_command: entry.password_command,
            key_file: entry.key_file,
            key_slot: None,
        }
    }

    /// The own rules of the store that has a member at one of these places.
    pub fn rules_of(&self, places: &[&Path]) -> Option<&Rules> {
        let mut rules = self.at(places).into_iter().map(|entry| &entry.retention);
        rules.find(|rules| !rules.is_empty())
    }

    /// The prices of an endpoint: its own prices, else those for all other endpoints.
    #[cfg_attr(not(feature = "s3"), allow(dead_code, reason = "buckets cost"))]
    pub fn prices_of(&self, url: &str) -> Option<&PriceEntry> {
        let is_its = |it: &&PriceEntry| it.endpoint.as_deref() == Some(url);
        let own = self.prices.values().find(is_its);
        own.or_else(|| self.prices.values().find(|it| it.endpoint.is_none()))
    }

    /// The backup with this name.
    ///
    /// # Errors
    /// Fails with [`Kind::NotFound`], with the most similar name.
    pub fn backup(&self, name: &str) -> Result<&BackupEntry> {
        let names: Vec<_> = self.backups.keys().map(String::as_str).collect();
        self.backups.get(name).ok_or_else(|| {
            Error::new(Kind::NotFound, format!("the config file has no backup '{name}'"))
                .advice(advice("backup", name, &names))
        })
    }

    fn advice_for_store(&self, name: &str) -> String {
        let names: Vec<_> = self.stores.keys().map(String::as_str).collect();
        advice("store", name, &names)
    }
}

fn advice(what: &str, name: &str, names: &[&str]) -> String {
    match nearest(name, names) {
        Some(near) => format!("the most similar name is '{near}'"),
        None if names.is_empty() => format!("add a table [{what}.{name}] to the config file"),
        None => format!("the config file has these names: {}", names.join(", ")),
    }
}

/// The default place of the config file: `$XDG_CONFIG_HOME/pinstripe/config.toml`, or the same path
/// below `~/.config`.
fn usual_place() -> Option<PathBuf> {
    Some(xdg::config_dir()?.join("pinstripe/config.toml"))
}

/// Writes a list of one path as that path alone, as most people write it.
fn one_or_many<S: serde::Serializer>(paths: &[PathBuf], to: S) -> Result<S::Ok, S::Error> {
    match paths {
        [one] => one.serialize(to),
        many => many.serialize(to),
    }
}

/// Writes a number of bytes as a size, as in the config file.
fn as_size<S: serde::Serializer>(
    bytes: &Option<u64>,
    to: S,
) -> std::result::Result<S::Ok, S::Error> {
    bytes.map(|bytes| crate::args::Size(bytes).to_string()).serialize(to)
}

fn each<T>(
    tables: Vec<(String, Table<'_>)>,
    read: fn(Table<'_>) -> Result<T>,
) -> Result<BTreeMap<String, T>> {
    tables.into_iter().map(|(name, table)| Ok((name, read(table)?))).collect()
}

/// The size of this host's cache of stores in buckets.
#[cfg(feature = "s3")]
fn cache_size(table: &mut Table<'_>) -> Result<Option<u64>> {
    let Some(text) = table.string("cache-size")? else { return Ok(None) };
    let size =
        crate::bucket_args::cache_size(&text).map_err(|what| table.error("cache-size", what))?;
    Ok(Some(size.0))
}

/// Programs built without buckets accept this key, too, because they share the config file.
#[cfg(not(feature = "s3"))]
fn cache_size(table: &mut Table<'_>) -> Result<Option<u64>> {
    table.string("cache-size").map(|_| None)
}

fn store_entry(mut table: Table<'_>) -> Result<StoreEntry> {
    let entry = StoreEntry {
        members: table.path_or_paths("member")?,
        password_file: table.path("password-file")?,
        password_command: table.string("password-command")?,
        key_file: table.path("key-file")?,
        retention: table.table("retention")?.map_or(Ok(Rules::default()), retention)?,
    };
    let ways =
        [entry.password_file.is_some(), entry.password_command.is_some(), entry.key_file.is_some()];
    if ways.into_iter().filter(|&way| way).count() > 1 {
        let what = "only one of password-file, password-command and key-file may be given";
        return Err(table.error("password-file", what));
    }
    if entry.members.is_empty() {
        let what = "a store needs the key 'member', which gives the directory of any one member, \
                    or a list of member directories";
        return Err(table.error("member", what));
    }
    table.finish()?;
    Ok(entry)
}

fn backup_entry(mut table: Table<'_>) -> Result<BackupEntry> {
    let entry = BackupEntry {
        store: table.string("store")?,
        paths: table.paths("paths")?,
        exclude: table.patterns("exclude")?,
        iexclude: table.patterns("iexclude")?,
        exclude_file: table.paths("exclude-file")?,
        ignore_file: table.strings("ignore-file")?,
        exclude_caches: table.flag("exclude-caches")?,
        exclude_if_present: table.strings("exclude-if-present")?,
        exclude_larger_than: larger_than(&mut table)?,
        exclude_older_than: span(&mut table, "exclude-older-than")?,
        one_file_system: table.flag("one-file-system")?,
        tags: table.strings("tags")?,
        host: table.string("host")?,
    };
    if entry.paths.is_empty() {
        return Err(table
            .error("paths", "a backup needs the key 'paths', which lists the paths to back up"));
    }
    for tag in &entry.tags {
        crate::args::tag(tag).map_err(|what| table.error("tags", what))?;
    }
    for tag in &entry.exclude_if_present {
        pinstripe::DirectoryTag::parse(tag.as_bytes())
            .map_err(|error| table.error("exclude-if-present", error.what()))?;
    }
    for name in &entry.ignore_file {
        pinstripe::IgnoreFile::parse(name.as_bytes())
            .map_err(|error| table.error("ignore-file", error.what()))?;
    }
    for (key, patterns) in [("exclude", &entry.exclude), ("iexclude", &entry.iexclude)] {
        if let Err(error) = pinstripe::Exclude::new(patterns) {
            return Err(table.error(key, error.what()));
        }
    }
    table.finish()?;
    Ok(entry)
}

fn larger_than(table: &mut Table<'_>) -> Result<Option<Size>> {
    const KEY: &str = "exclude-larger-than";
    let Some(text) = table.string(KEY)? else { return Ok(None) };
    size(&text).map(Some).map_err(|what| table.error(KEY, what))
}

fn retention(mut table: Table<'_>) -> Result<Rules> {
    let rules = Rules {
        keep_last: table.number("keep-last")?,
        keep_hourly: table.number("keep-hourly")?,
        keep_daily: table.number("keep-daily")?,
        keep_weekly: table.number("keep-weekly")?,
        keep_monthly: table.number("keep-monthly")?,
        keep_yearly: table.number("keep-yearly")?,
        keep_tag: table.strings("keep-tag")?,
        keep_within: span(&mut table, "keep-within")?,
        keep_within_hourly: span(&mut table, "keep-within-hourly")?,
        keep_within_daily: span(&mut table, "keep-within-daily")?,
        keep_within_weekly: span(&mut table, "keep-within-weekly")?,
        keep_within_monthly: span(&mut table, "keep-within-monthly")?,
        keep_within_yearly: span(&mut table, "keep-within-yearly")?,
        group_by: group_by(&mut table)?,
    };
    for tag in &rules.keep_tag {
        crate::args::tag(tag).map_err(|what| table.error("keep-tag", what))?;
    }
    table.finish()?;
    Ok(rules)
}

fn group_by(table: &mut Table<'_>) -> Result<Option<GroupBy>> {
    let Some(text) = table.string("group-by")? else { return Ok(None) };
    text.parse().map(Some).map_err(|what: String| table.error("group-by", what))
}

fn span(table: &mut Table<'_>, key: &'static str) -> Result<Option<TimeSpan>> {
    let Some(text) = table.string(key)? else { return Ok(None) };
    text.parse().map(Some).map_err(|what: String| table.error(key, what))
}
