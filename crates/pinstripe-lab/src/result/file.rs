//! Results in a file: JSON, written to a temporary file and renamed, so that a file is complete or
//! absent.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use pinstripe_base::error::{Error, Kind, Result};
use serde_json::Value;

use super::{FORMAT, Results, VERSION, page};

/// Saves results in a file, which replaces an existing file; the file is durable on return.
///
/// # Errors
/// Returns errors as the system reports them; an existing file is then unchanged.
pub fn save(results: &Results, path: &Path) -> Result<()> {
    let mut text = serde_json::to_vec(results)
        .map_err(|error| Error::new(Kind::Io, format!("cannot write results as JSON: {error}")))?;
    text.push(b'\n');
    put(&text, path)
}

/// Writes the text of results or of a page to a file, which replaces an existing file; the file is
/// durable on return.
///
/// # Errors
/// Returns errors as the system reports them; an existing file is then unchanged.
pub fn put(text: &[u8], path: &Path) -> Result<()> {
    let name = path.file_name().ok_or_else(|| {
        Error::new(Kind::Usage, "a file of results cannot have this name").at(path)
    })?;
    let mut beside = name.to_owned();
    beside.push(".part");
    let beside = path.with_file_name(beside);
    let write = || {
        let mut file = File::create(&beside)?;
        file.write_all(text)?;
        file.sync_data()?;
        fs::rename(&beside, path)?;
        let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    };
    write().map_err(|error| {
        let _ = fs::remove_file(&beside);
        Error::io("cannot save the results", path, error)
    })
}

/// Reads saved results from their file, or from a page that contains the results of one case.
///
/// # Errors
/// The errors of [`load_all`]; [`Kind::Usage`] for a page that contains several results.
pub fn load(path: &Path) -> Result<Results> {
    let mut all = load_all(path)?;
    match (all.pop(), all.len()) {
        (Some(only), 0) => Ok(only),
        (_, more) => {
            let what =
                format!("the file contains {} results, but only one is expected here", more + 1);
            Err(Error::new(Kind::Usage, what)
                .at(path)
                .advice("give a file with only one of these results"))
        }
    }
}

/// Reads saved results: one result from its file, or one or several from a page.
///
/// # Errors
/// [`Kind::Unsupported`] for results of a newer version; [`Kind::Corrupt`] if the file is damaged
/// or has another format, with the line; otherwise as the system reports.
pub fn load_all(path: &Path) -> Result<Vec<Results>> {
    let bytes = fs::read(path).map_err(|error| Error::of_named("cannot read", path, error))?;
    let all = match page::is_page(&bytes) {
        true => page::parse(&bytes),
        false => parse(&bytes).map(|one| vec![one]),
    };
    all.map_err(|error| error.at(path))
}

/// Reads results from the text of a file.
///
/// # Errors
/// The errors of [`load`].
pub(super) fn parse(bytes: &[u8]) -> Result<Results> {
    let damaged = |error: serde_json::Error| {
        Error::new(Kind::Corrupt, format!("the results cannot be read: {error}"))
            .advice("the file of results is incomplete or was changed: measure again")
    };
    if bytes.trim_ascii_start().first() != Some(&b'{') {
        let what = if bytes.is_empty() { "is empty" } else { "this is not a file of results" };
        return Err(Error::new(Kind::Corrupt, what).advice(
            "'pinstripe lab run' writes files of results, and 'pinstripe lab report' writes pages \
             that contain results",
        ));
    }
    let value: Value = serde_json::from_slice(bytes).map_err(damaged)?;
    if value["format"] != FORMAT {
        let found = value["format"].as_str().unwrap_or("something else").to_owned();
        return Err(Error::new(Kind::Corrupt, "this is not a file of results")
            .expected(FORMAT, found)
            .advice("'pinstripe lab import' reads results of fio"));
    }
    match value["version"].as_u64() {
        Some(version) if version > u64::from(VERSION) => {
            let error = Error::new(
                Kind::Unsupported,
                "the results were written by a newer version of pinstripe",
            );
            Err(error.expected(VERSION, version).advice("use a newer version of pinstripe"))
        }
        Some(1) => {
            let mut results: Results = serde_json::from_slice(bytes).map_err(damaged)?;
            results.command = super::without_serial(&results.command);
            // The rules of older versions were others; the runs are the same.
            results.judge();
            Ok(results)
        }
        _ => Err(Error::new(Kind::Corrupt, "the results have no version")),
    }
}
