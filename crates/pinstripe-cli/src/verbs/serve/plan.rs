//! Jobs and alarms as the config file describes them, for the server.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_io::paths;
use pinstripe_serve::{
    AlarmTargets, DatabaseTarget, JobPlan, JobPlans, MailCommand, ReplacePlan, Webhook,
};

use crate::config::{AlarmEntry, JobEntry, ServeEntry};
use crate::credential::first_line;

/// A longer file is not a secret.
const SECRET_MAX_BYTES: u64 = 4096;
/// The program that sends mails, unless the config file names another.
const SENDMAIL: [&str; 2] = ["sendmail", "-t"];

/// The command of a verb that uses the members of a store: this program, with the places.
pub fn program(config: Option<&Path>, places: &[PathBuf]) -> Result<Vec<OsString>> {
    let program = std::env::current_exe()
        .map_err(|error| Error::io("cannot find this program", "/proc/self/exe", error))?;
    let mut command = vec![program.into_os_string(), "--json".into()];
    if let Some(config) = config {
        command.extend(["--config".into(), config.as_os_str().to_owned()]);
    }
    for place in places {
        command.extend(["--store".into(), place.as_os_str().to_owned()]);
    }
    Ok(command)
}

/// The jobs, as processes.
pub fn jobs(entry: &ServeEntry, program: &[OsString]) -> JobPlans {
    let timed = entry.jobs.iter().map(|(name, job)| JobPlan {
        name: name.clone(),
        every: job.every.time,
        command: [program, &arguments(name, job)].concat(),
    });
    let replace = entry.replace.as_ref().map(|it| {
        let verb = ["member", "replace"].into_iter().chain(it.same_fate.then_some("--same-fate"));
        ReplacePlan {
            after: it.after.time,
            spares: it.spares.iter().map(|place| place.as_os_str().to_owned()).collect(),
            command: program.iter().cloned().chain(verb.map(OsString::from)).collect(),
        }
    });
    JobPlans { timed: timed.collect(), replace }
}

fn arguments(name: &str, job: &JobEntry) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = vec![name.into()];
    let mut option = |name: &str, value: Option<OsString>| {
        arguments.extend(value.into_iter().flat_map(|value| [name.into(), value]));
    };
    let path = |path: &Option<PathBuf>| path.clone().map(PathBuf::into_os_string);
    option("--budget", job.budget.clone().map(OsString::from));
    option("--limit", job.limit.clone().map(OsString::from));
    option("--key-file", path(&job.key_file));
    option("--password-file", path(&job.password_file));
    if job.read_data {
        arguments.push("--read-data".into());
    }
    arguments
}

/// The channels of alarms.
///
/// # Errors
/// Fails if the file with the secret of the webhook cannot be read.
pub fn alarms(entry: Option<&AlarmEntry>) -> Result<AlarmTargets> {
    let Some(entry) = entry else { return Ok(AlarmTargets::default()) };
    let secret = entry.webhook_secret_file.as_deref().map(secret).transpose()?;
    let words = |words: &[String]| words.iter().map(OsString::from).collect::<Vec<_>>();
    let mail_command = match entry.mail_command.is_empty() {
        true => SENDMAIL.map(OsString::from).to_vec(),
        false => words(&entry.mail_command),
    };
    Ok(AlarmTargets {
        webhook: entry.webhook.clone().map(|url| Webhook { url, secret }),
        mail: entry.mail_to.clone().map(|to| MailCommand { to, command: mail_command }),
        command: (!entry.command.is_empty()).then(|| words(&entry.command)),
    })
}

/// The database of the shared catalog: of the command line, or else of the config file.
///
/// # Errors
/// Fails with [`Kind::Usage`] for an invalid URL or one with a password on the command line, or if
/// the file with the password cannot be read.
pub fn database(
    url: Option<&str>,
    password_file: Option<&Path>,
    entry: &ServeEntry,
) -> Result<Option<DatabaseTarget>> {
    if let Some(url) = url
        && DatabaseTarget::parse(url, None)?.has_password()
    {
        let what = "other users can see a password in the URL of --catalog";
        return Err(Error::new(Kind::Usage, what)
            .advice("remove it, and use --catalog-password-file, PGPASSWORD or the config file"));
    }
    let Some(url) = url.or(entry.catalog.as_ref().map(|it| it.0.as_str())) else {
        return Ok(None);
    };
    let file = password_file.or(entry.catalog_password_file.as_deref());
    let password = match file {
        Some(file) => Some(secret_in(file, "password of the database")?),
        None => std::env::var_os("PGPASSWORD").map(OsString::into_vec),
    };
    DatabaseTarget::parse(url, password.as_deref()).map(Some)
}

fn secret(path: &Path) -> Result<Vec<u8>> {
    secret_in(path, "secret of the webhook")
}

/// The secret in the first line of a file.
fn secret_in(path: &Path, what: &str) -> Result<Vec<u8>> {
    let failed = |error| Error::of_named(format!("cannot read the {what}"), path, error);
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(SECRET_MAX_BYTES).read_to_end(&mut bytes))
        .map_err(failed)?;
    let line = first_line(&bytes);
    match line.is_empty() {
        true => Err(Error::new(Kind::Usage, format!("the {what} is empty")).at(path)),
        false => Ok(line.to_vec()),
    }
}

/// Refuses files and programs of the settings that are missing.
///
/// # Errors
/// Fails with [`Kind::NotFound`] and the name of the first one.
pub fn check(entry: &ServeEntry) -> Result<()> {
    let keys = entry.jobs.values().flat_map(|job| [&job.key_file, &job.password_file]);
    for key in keys.flatten() {
        File::open(key).map_err(|error| Error::of_named("cannot read", key, error))?;
    }
    let targets = alarms(entry.alarm.as_ref())?;
    let programs = targets.command.iter().chain(targets.mail.iter().map(|it| &it.command));
    for program in programs.map(|words| PathBuf::from(&words[0])) {
        if !is_program(&program) {
            let what = "a program that the config file names for alarms is missing";
            return Err(Error::new(Kind::NotFound, what).at(program));
        }
    }
    Ok(())
}

fn is_program(name: &Path) -> bool {
    if name.components().count() > 1 {
        return paths::exists(name);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| paths::exists(&dir.join(name)))
}
