//! The settings of the server in the config file: jobs, replacements and alarms.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use pinstripe_base::error::Result;
use serde::Serialize;

use super::reader::{Table, nearest};
use crate::args;
use crate::time::parse_span;

/// The verbs that can be jobs.
const JOBS: [&str; 4] = ["scrub", "repair", "gc", "check"];
/// How long a member must be silent before it is replaced, unless the file says otherwise.
const REPLACE_AFTER: &str = "1h";

/// The settings of `pinstripe serve`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ServeEntry {
    /// Verbs that run from time to time, by their name.
    #[serde(rename = "job", skip_serializing_if = "BTreeMap::is_empty")]
    pub jobs: BTreeMap<String, JobEntry>,
    /// The replacement of silent members.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replace: Option<ReplaceEntry>,
    /// The channels of alarms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alarm: Option<AlarmEntry>,
    /// `--catalog`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub catalog: Option<DatabaseUrl>,
    /// `--catalog-password-file`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub catalog_password_file: Option<PathBuf>,
    /// `--catalog-clear-names`.
    pub catalog_clear_names: bool,
}

/// The URL of a database, which may have a password and is not shown.
#[derive(Clone, PartialEq, Eq)]
pub struct DatabaseUrl(pub String);

impl std::fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl Serialize for DatabaseUrl {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(HIDDEN)
    }
}

/// The text that replaces a URL, which may have a password.
const HIDDEN: &str = "postgres://...";

/// A time with its text in the config file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct JobTime {
    text: String,
    /// The time.
    #[serde(skip)]
    pub time: Duration,
}

/// A verb that runs from time to time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct JobEntry {
    /// The interval.
    pub every: JobTime,
    /// `--budget` of a scrub.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<String>,
    /// `--limit` of a scrub.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// `--read-data` of a check.
    pub read_data: bool,
    /// `--key-file`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_file: Option<PathBuf>,
    /// `--password-file`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password_file: Option<PathBuf>,
}

/// The replacement of members that do not answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ReplaceEntry {
    /// How long a member must be silent.
    pub after: JobTime,
    /// Places of new members.
    pub spares: Vec<PathBuf>,
    /// `--same-fate`.
    pub same_fate: bool,
}

/// The channels of alarms.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct AlarmEntry {
    /// A URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhook: Option<String>,
    /// The file with the secret that signs messages to the URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhook_secret_file: Option<PathBuf>,
    /// The recipients of mails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mail_to: Option<String>,
    /// The program that sends mails, with its arguments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mail_command: Vec<String>,
    /// A program that receives alarms, with its arguments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
}

/// Reads the table `[serve]`.
pub fn entry(mut table: Table<'_>) -> Result<ServeEntry> {
    let mut jobs = BTreeMap::new();
    for (name, inner) in table.named_tables("job")? {
        if !JOBS.contains(&name.as_str()) {
            let error = inner.error("every", format!("'{name}' cannot be a job"));
            let error = error.expected(JOBS.join(", "), format!("'{name}'"));
            return Err(match nearest(&name, &JOBS) {
                Some(near) => error.advice(format!("the most similar job is '{near}'")),
                None => error,
            });
        }
        let job = job(&name, inner)?;
        jobs.insert(name, job);
    }
    let replace = table.table("replace")?.map(replace).transpose()?;
    let alarm = table.table("alarm")?.map(alarm).transpose()?;
    let catalog = table.string("catalog")?.map(DatabaseUrl);
    let catalog_password_file = table.path("catalog-password-file")?;
    let catalog_clear_names = table.flag("catalog-clear-names")?;
    table.finish()?;
    Ok(ServeEntry { jobs, replace, alarm, catalog, catalog_password_file, catalog_clear_names })
}

/// A time such as `30min`, `6h` or `7d`.
fn time(table: &mut Table<'_>, key: &'static str) -> Result<Option<JobTime>> {
    let Some(text) = table.string(key)? else { return Ok(None) };
    let days = parse_span(&text).map(Duration::from_secs);
    let time = args::duration(&text).map(|it| it.0).or_else(|wrong| days.map_err(|_| wrong));
    match time {
        Ok(time) if !time.is_zero() => Ok(Some(JobTime { text, time })),
        _ => Err(table.error(key, "this is not a time").expected("30min, 6h or 7d", text)),
    }
}

fn job(name: &str, mut table: Table<'_>) -> Result<JobEntry> {
    let every = time(&mut table, "every")?
        .ok_or_else(|| table.error("every", "a job needs the key 'every', for example \"1d\""))?;
    let mut entry = JobEntry {
        every,
        budget: None,
        limit: None,
        read_data: false,
        key_file: None,
        password_file: None,
    };
    if name == "scrub" {
        (entry.budget, entry.limit) = (table.string("budget")?, table.string("limit")?);
    }
    if name == "check" {
        entry.read_data = table.flag("read-data")?;
    }
    if matches!(name, "gc" | "check") {
        entry.key_file = table.path("key-file")?;
        entry.password_file = table.path("password-file")?;
        if entry.key_file.is_some() && entry.password_file.is_some() {
            let what = "only one of key-file and password-file may be given";
            return Err(table.error("password-file", what));
        }
    }
    table.finish()?;
    Ok(entry)
}

fn replace(mut table: Table<'_>) -> Result<ReplaceEntry> {
    let after = time(&mut table, "after")?.unwrap_or_else(|| JobTime {
        text: REPLACE_AFTER.to_owned(),
        time: Duration::from_secs(3600),
    });
    let spares = table.paths("spares")?;
    if spares.is_empty() {
        return Err(table.error("spares", "'spares' must name the place of a new member"));
    }
    let same_fate = table.flag("same-fate")?;
    table.finish()?;
    Ok(ReplaceEntry { after, spares, same_fate })
}

fn alarm(mut table: Table<'_>) -> Result<AlarmEntry> {
    let entry = AlarmEntry {
        webhook: table.string("webhook")?,
        webhook_secret_file: table.path("webhook-secret-file")?,
        mail_to: table.string("mail-to")?,
        mail_command: table.strings("mail-command")?,
        command: table.strings("command")?,
    };
    let is_url =
        |url: &String| ["http://", "https://"].iter().any(|scheme| url.starts_with(scheme));
    if let Some(url) = entry.webhook.as_ref().filter(|url| !is_url(url)) {
        let error = table.error("webhook", "this is not a URL of a webhook");
        return Err(error.expected("http:// or https://", url));
    }
    if entry.webhook.is_none() && entry.webhook_secret_file.is_some() {
        let what = "webhook-secret-file needs the key 'webhook'";
        return Err(table.error("webhook-secret-file", what));
    }
    if entry.mail_to.is_none() && !entry.mail_command.is_empty() {
        return Err(table.error("mail-command", "mail-command needs the key 'mail-to'"));
    }
    table.finish()?;
    Ok(entry)
}
