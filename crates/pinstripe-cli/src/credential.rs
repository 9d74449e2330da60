//! The sources of passwords and key files: options, the environment, the user's own key files, and
//! a prompt.
//!
//! Invariants: a secret is never an argument, never printed and never in an event; a key file is
//! durable before anything is sealed that only this file can open.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{IsTerminal, Write, stderr, stdin};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::ValueHint;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::StoreId;
use pinstripe_base::monitor::Monitor;
use pinstripe_stripe::Credential;
use zeroize::Zeroizing;

use crate::escape;
use crate::system;
use crate::xdg;

/// The environment variable that holds the password.
const VARIABLE: &str = "PINSTRIPE_PASSWORD";
/// The environment variables that name the place of the password or key file, like the options of
/// the same names.
const FILE_VARIABLE: &str = "PINSTRIPE_PASSWORD_FILE";
const COMMAND_VARIABLE: &str = "PINSTRIPE_PASSWORD_COMMAND";
const KEY_FILE_VARIABLE: &str = "PINSTRIPE_KEY_FILE";
/// A longer file is neither a password file nor a key file.
const FILE_MAX_BYTES: u64 = 64 << 10;

/// Options for the place of the key of an encrypted store.
#[derive(clap::Args, Clone, Default)]
#[group(skip)]
pub struct CredentialArgs {
    /// Read the password from the first line of this file
    #[arg(long, global = true, value_name = "FILE", value_hint = ValueHint::FilePath,
          conflicts_with_all = ["password_command", "key_file"])]
    pub password_file: Option<PathBuf>,

    /// Run this shell command, and use the first line of its output as the password
    #[arg(long, global = true, value_name = "COMMAND", value_hint = ValueHint::CommandString,
          conflicts_with = "key_file")]
    pub password_command: Option<String>,

    /// Open the store with this key file
    ///
    /// A key file contains a random key; 'pinstripe init' and 'pinstripe key add' create key files.
    /// If no password option and no --key-file is given, pinstripe uses the first of the following
    /// that exists: the environment variable PINSTRIPE_PASSWORD, PINSTRIPE_PASSWORD_FILE,
    /// PINSTRIPE_PASSWORD_COMMAND or PINSTRIPE_KEY_FILE; the password or key file of the store in
    /// the config file; the key file $XDG_CONFIG_HOME/pinstripe/keys/STORE or
    /// ~/.config/pinstripe/keys/STORE. Otherwise, pinstripe asks for the password at the terminal.
    #[arg(long, global = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub key_file: Option<PathBuf>,

    /// Try only the key slot with this label, or with an id that begins with this text
    ///
    /// By default, pinstripe tries a password on the key slot that opened the store last time, and
    /// then on the other key slots. pinstripe begins with the key slots that need the least
    /// computing time and memory, and stops when the total cost of all tries exceeds a limit. The
    /// limit does not apply to the key slot that --key-slot names; it must only fit into memory.
    #[arg(long, global = true, value_name = "SLOT", hide_short_help = true)]
    pub key_slot: Option<String>,
}

impl CredentialArgs {
    /// Whether one of the options was given.
    pub fn is_given(&self) -> bool {
        self.password_file.is_some() || self.password_command.is_some() || self.key_file.is_some()
    }

    /// The credential that the options or the environment give.
    ///
    /// # Errors
    /// Fails with the errors of [`of_options`](Self::of_options).
    pub fn read(&self, monitor: &Monitor) -> Result<Option<Credential>> {
        if let Some(given) = self.of_options(monitor)? {
            return Ok(Some(given));
        }
        match xdg::set(VARIABLE) {
            Some(value) => Credential::password(value.as_bytes()).map(Some),
            None => Self::of_variables().of_options(monitor),
        }
    }

    /// The options that the environment variables give; only the first variable that is set is
    /// used.
    fn of_variables() -> Self {
        let password_file = xdg::set(FILE_VARIABLE).map(PathBuf::from);
        let command = xdg::set(COMMAND_VARIABLE).and_then(|it| it.into_string().ok());
        let password_command = command.filter(|_| password_file.is_none());
        let key_file = xdg::set(KEY_FILE_VARIABLE).map(PathBuf::from);
        let is_first = password_file.is_none() && password_command.is_none();
        let key_file = key_file.filter(|_| is_first);
        CredentialArgs { password_file, password_command, key_file, key_slot: None }
    }

    /// The credential that the options give.
    ///
    /// # Errors
    /// Fails when a file cannot be read or is not a key file, or the command fails.
    pub fn of_options(&self, monitor: &Monitor) -> Result<Option<Credential>> {
        if let Some(file) = &self.password_file {
            return password(&read_file(file, monitor)?).map_err(|error| error.at(file)).map(Some);
        }
        if let Some(command) = &self.password_command {
            return password(&output_of(command)?).map(Some);
        }
        self.key_file.as_deref().map(|file| key_file(file, monitor)).transpose()
    }

    /// Creates the key file that the options name, if it does not exist; used for a new store or
    /// slot.
    ///
    /// # Errors
    /// Fails when the key file cannot be created.
    pub fn make_key_file(&self) -> Result<Option<PathBuf>> {
        let Some(file) = self.key_file.as_ref().filter(|file| !file.exists()) else {
            return Ok(None);
        };
        write_key_file(file, &Credential::generate()?)?;
        Ok(Some(file.clone()))
    }
}

/// The first environment variable that is set of those that name a password or a key file.
pub fn variable_at_hand() -> Option<&'static str> {
    let variables = [VARIABLE, FILE_VARIABLE, COMMAND_VARIABLE, KEY_FILE_VARIABLE];
    variables.into_iter().find(|variable| xdg::set(variable).is_some())
}

/// Asks for a new password twice.
///
/// # Errors
/// Fails with [`Kind::Usage`] when there is no terminal, when the password is empty, or when the
/// two answers differ.
pub fn ask_new(without: &str) -> Result<Credential> {
    if !is_terminal() {
        return Err(Error::new(Kind::Usage, "a password or a key file is needed").advice(without));
    }
    let first = ask("New password: ")?;
    let credential = Credential::password(first.clone())?;
    if ask("Repeat the password: ")? != first {
        return Err(Error::new(Kind::Usage, "the two passwords differ"));
    }
    Ok(credential)
}

/// Whether there is a terminal to ask for a password.
pub fn is_terminal() -> bool {
    stdin().is_terminal() && stderr().is_terminal()
}

/// Asks for a password; what is typed is not shown.
///
/// # Errors
/// Fails with the errors of the terminal.
pub fn ask(question: &str) -> Result<Vec<u8>> {
    rpassword::prompt_password(question)
        .map(String::into_bytes)
        .map_err(|error| Error::io("cannot ask for the password", "/dev/tty", error))
}

/// The user's own key file of a store.
pub fn own_key_file(store: StoreId) -> Option<PathBuf> {
    Some(xdg::config_dir()?.join("pinstripe/keys").join(store.to_string()))
}

/// Writes a key file, durably. An existing file is never changed.
///
/// # Errors
/// Fails with [`Kind::Exists`] if the file exists; with the errors of the system.
pub fn write_key_file(file: &Path, credential: &Credential) -> Result<()> {
    let text = credential.key_file_text().expect("only keys of key files are written");
    let told = |what: &str| {
        let (what, file) = (what.to_owned(), file.to_path_buf());
        move |error| Error::io(what, file, error)
    };
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(parent)
        .map_err(told("cannot create the directory of the key file"))?;
    let mut out = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file)
        .map_err(told("cannot create the key file"))?;
    out.write_all(text.as_bytes())
        .and_then(|()| out.sync_all())
        .and_then(|()| File::open(parent)?.sync_all())
        // The incomplete file opens nothing, and would block the next attempt.
        .inspect_err(|_| remove_key_file(Some(file)))
        .map_err(told("cannot write the key file"))
}

/// The advice about a new key file.
pub fn key_file_advice(file: &Path) -> String {
    format!(
        "the key file is {}: keep a copy of this file on a disk that has no member; without the \
         key file, nothing in the store can be read",
        escape::path(file)
    )
}

/// Reads a key file.
///
/// # Errors
/// Fails when the file cannot be read or is not a key file.
pub fn key_file(file: &Path, monitor: &Monitor) -> Result<Credential> {
    Credential::of_key_file(&read_file(file, monitor)?).map_err(|error| error.at(file))
}

/// Reads a file with a secret; warns if other users can read it, too.
fn read_file(file: &Path, monitor: &Monitor) -> Result<Zeroizing<Vec<u8>>> {
    use std::io::Read;
    let told = |error| Error::of_named("cannot read the password or key", file, error);
    let opened = File::open(file).map_err(told)?;
    let about = opened.metadata().map_err(told)?;
    if let Some(what) = exposed(&about, system::owner().0) {
        let advice = "run 'chmod 600' on this file, and make the user who runs pinstripe its \
                      owner; if other users may have read the file, run 'pinstripe key rotate'";
        monitor.warning(file, Error::new(Kind::Usage, what).advice(advice));
    }
    // Growing would leave copies behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(FILE_MAX_BYTES as usize));
    opened.take(FILE_MAX_BYTES).read_to_end(&mut bytes).map_err(told)?;
    Ok(bytes)
}

/// The other users that can read a file, if any. File modes are meaningful only for regular files.
fn exposed(file: &Metadata, user: u32) -> Option<String> {
    if !file.is_file() {
        return None;
    }
    let mode = file.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Some(format!("other users can read or change this secret file (mode {mode:04o})"));
    }
    let is_others = file.uid() != user && file.uid() != 0;
    is_others.then(|| format!("this secret file belongs to another user (user id {})", file.uid()))
}

fn output_of(command: &str) -> Result<Vec<u8>> {
    let failed =
        |why: String| Error::new(Kind::Usage, format!("the command of --password-command {why}"));
    let output = Command::new("/bin/sh")
        .args(["-c", command])
        .stdin(Stdio::inherit())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| failed(format!("cannot be executed: {error}")))?;
    if !output.status.success() {
        return Err(failed(format!("ended with {}", output.status)));
    }
    Ok(output.stdout)
}

/// Takes the first line as the password.
fn password(bytes: &[u8]) -> Result<Credential> {
    Credential::password(first_line(bytes))
}

/// The first line of a file with a secret.
pub fn first_line(bytes: &[u8]) -> &[u8] {
    let line = bytes.split(|&byte| byte == b'\n').next().unwrap_or_default();
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Removes a key file that was created for an operation that then failed.
pub fn remove_key_file(made: Option<&Path>) {
    if let Some(file) = made {
        let _ = fs::remove_file(file);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_the_first_line() {
        for text in ["secret", "secret\n", "secret\r\n", "secret\nnot this\n"] {
            let Credential::Password(found) = password(text.as_bytes()).unwrap() else { panic!() };
            assert_eq!(*found, *b"secret");
        }
        assert_eq!(password(b"\nx").unwrap_err().kind(), Kind::Usage);
    }

    #[test]
    fn a_key_file_is_private_and_never_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("new/key");
        let key = Credential::generate().unwrap();
        write_key_file(&file, &key).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(file.parent().unwrap()).unwrap().mode() & 0o777, 0o700);
        assert_eq!(
            key_file(&file, &Monitor::default()).unwrap().key_file_text(),
            key.key_file_text()
        );
        let other = Credential::generate().unwrap();
        assert_eq!(write_key_file(&file, &other).unwrap_err().kind(), Kind::Exists);
        assert_eq!(
            key_file(&file, &Monitor::default()).unwrap().key_file_text(),
            key.key_file_text()
        );
    }
}
