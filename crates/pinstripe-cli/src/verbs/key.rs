//! `pinstripe key`: manages the passwords and key files that open an encrypted store.

use std::path::PathBuf;

use clap::ValueHint;
use pinstripe::key::{self, Slot};
use pinstripe_base::clock;
use pinstripe_base::error::Result;
use pinstripe_base::units::KIB;
use pinstripe_member::key_ring::KdfCosts;
use pinstripe_stripe::{Credential, NewSlot};

use crate::args::{Size, size};
use crate::credential::{CredentialArgs, ask_new, key_file_advice, remove_key_file};
use crate::escape;
use crate::event::Event;
use crate::message::counted;
use crate::run::{Ending, Run};
use crate::table::{self, Side};
use crate::time;

/// Add, remove and list the passwords and key files that open the store, or change the store's keys
///
/// An encrypted store has one or more key slots, each opened by one password or key file.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe key list
  pinstripe key add --label laptop
  pinstripe key add --new-key-file /root/store.key
  pinstripe key remove laptop
  pinstripe key rotate --new-password-file /root/new-password")]
pub struct KeyArgs {
    #[command(subcommand)]
    act: KeyVerb,
}

#[derive(clap::Subcommand)]
enum KeyVerb {
    /// List the key slots; this command needs no password and no key file
    List,
    /// Add a password or a key file that opens the store
    Add(NewKeyArgs),
    /// Remove a key slot
    ///
    /// A person who knew the password of a removed slot may have kept the keys of the store. To
    /// protect later backups from a person who knew a removed password, use 'key rotate'. The last
    /// key slot cannot be removed.
    Remove {
        /// Label of the key slot, or the beginning of its id
        #[arg(value_name = "SLOT")]
        slot: String,
    },
    /// Give the store new keys, which only one password or key file can open
    ///
    /// Data that is already stored is not rewritten, and can still be read; new data is encrypted
    /// with the new keys. 'key rotate' removes all other key slots, which 'key add' can add again.
    /// If no new password or key file is given, the present password or key file opens the new
    /// keys.
    Rotate(NewKeyArgs),
}

/// Options of a new slot.
#[derive(clap::Args)]
#[group(skip)]
struct NewKeyArgs {
    /// Read the new password from the first line of this file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath,
          conflicts_with_all = ["new_password_command", "new_key_file"])]
    new_password_file: Option<PathBuf>,

    /// Run this shell command, and use the first line of its output as the new password
    #[arg(long, value_name = "COMMAND", value_hint = ValueHint::CommandString,
          conflicts_with = "new_key_file")]
    new_password_command: Option<String>,

    /// Let this key file open the store; the file is created if it is missing
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    new_key_file: Option<PathBuf>,

    /// Label of the new key slot
    #[arg(long, value_name = "TEXT")]
    label: Option<String>,

    /// Memory that is needed to try one password: 64K to 4G
    #[arg(long, value_name = "SIZE", value_parser = kdf_memory, default_value_t = KDF_MEMORY)]
    kdf_memory: Size,
}

/// Default of `--kdf-memory`.
pub const KDF_MEMORY: Size = Size(KdfCosts::DEFAULT.memory_kib as u64 * KIB);

/// Reads `--kdf-memory`.
pub fn kdf_memory(text: &str) -> Result<Size, String> {
    let size = size(text)?;
    costs(size).map_err(crate::args::one_line).map(|_| size)
}

/// The costs of a password with this amount of memory.
///
/// # Errors
/// Fails with [`Kind::Usage`](pinstripe_base::error::Kind::Usage) for too much or too little
/// memory.
pub fn costs(memory: Size) -> Result<KdfCosts> {
    let memory_kib = u32::try_from(memory.0 / KIB).unwrap_or(u32::MAX);
    let lanes = KdfCosts::DEFAULT.lanes.min((memory_kib / 8).max(1));
    KdfCosts { memory_kib, lanes, ..KdfCosts::DEFAULT }.validate()
}

/// A new slot, with a default label unless one is given.
///
/// # Errors
/// Fails with the errors of [`costs`].
pub fn new_slot(credential: Credential, label: Option<&str>, memory: Size) -> Result<NewSlot> {
    let usual = match credential {
        Credential::Password(_) => "password",
        Credential::KeyFile(_) => "key file",
    };
    Ok(NewSlot {
        credential,
        costs: costs(memory)?,
        label: label.unwrap_or(usual).to_owned(),
        now_seconds: clock::now().0,
    })
}

const HEAD: [(&str, Side); 5] = [
    ("slot", Side::Left),
    ("made", Side::Left),
    ("opens with", Side::Left),
    ("memory", Side::Right),
    ("label", Side::Left),
];

impl KeyArgs {
    /// Runs the verb.
    ///
    /// # Errors
    /// Fails with the errors of [`key`], and of opening the store.
    pub fn run(&self, run: &Run) -> Result<Ending> {
        match &self.act {
            KeyVerb::List => list(run),
            KeyVerb::Add(new) => {
                let store = run.open_store()?;
                store.keys()?;
                let made = new.key().make_key_file()?;
                let credential = match new.key().of_options(&run.monitor)? {
                    Some(given) => given,
                    None => ask_new(NEW_WAYS)?,
                };
                let slot = new_slot(credential, new.label.as_deref(), new.kdf_memory)?;
                let added =
                    key::add(&store, &slot).inspect_err(|_| remove_key_file(made.as_deref()))?;
                run.screen.say(&format!(
                    "added key slot {}, which is opened by a {}",
                    &added.slot[..8],
                    added.way
                ));
                if let Some(file) = made {
                    run.screen.say(&key_file_advice(&file));
                }
                run.screen.event(&event(&added))?;
                Ok(Ending::done(Event::default().with("slot", added.slot)))
            }
            KeyVerb::Remove { slot } => {
                let store = run.open_store()?;
                let (removed, sound) = key::remove(&store, slot)?;
                run.screen.say(&format!("removed key slot {}", &removed[..8]));
                run.screen.say(
                    "to protect later backups from anyone who knows the removed password or key \
                     file, run 'pinstripe key rotate'",
                );
                if let Some(slot) = sound {
                    run.screen.event(&event(&slot))?;
                }
                Ok(Ending::done(Event::default().with("slot", removed)))
            }
            KeyVerb::Rotate(new) => rotate(run, new),
        }
    }
}

const NEW_WAYS: &str = "give --new-password-file FILE, --new-password-command COMMAND or \
                        --new-key-file FILE, or run this command at a terminal";

fn list(run: &Run) -> Result<Ending> {
    let store = run.open_locked()?;
    let slots = key::list(&store, &run.monitor)?;
    for slot in &slots {
        run.screen.event(&event(slot))?;
    }
    let rows: Vec<_> = slots.iter().map(row).collect();
    for line in table::lines(&HEAD, &rows) {
        run.screen.row(&line)?;
    }
    Ok(Ending::done(Event::default().with("slots", slots.len())))
}

fn rotate(run: &Run, new: &NewKeyArgs) -> Result<Ending> {
    let (mut store, used) = run.open_with_credential()?;
    // A new key file stays whatever happens: it may be what opens the store now.
    let made = new.key().make_key_file()?;
    let credential = match new.key().of_options(&run.monitor)?.or(used) {
        Some(credential) => credential,
        None => ask_new(NEW_WAYS)?,
    };
    let slot = new_slot(credential, new.label.as_deref(), new.kdf_memory)?;
    let (slot, gone) = key::rotate(&mut store, &slot)?;
    let short = &slot.slot[..8];
    run.screen.say(&format!("the store has new keys; only key slot {short} opens the store"));
    run.screen.say(&format!(
        "removed {}; 'pinstripe key add' adds more key slots",
        counted(gone as u64, "earlier slot")
    ));
    if let Some(file) = made {
        run.screen.say(&key_file_advice(&file));
    }
    run.screen.event(&event(&slot))?;
    Ok(Ending::done(Event::default().with("slot", slot.slot).with("removed_slots", gone)))
}

impl NewKeyArgs {
    fn key(&self) -> CredentialArgs {
        CredentialArgs {
            password_file: self.new_password_file.clone(),
            password_command: self.new_password_command.clone(),
            key_file: self.new_key_file.clone(),
            key_slot: None,
        }
    }
}

fn row(slot: &Slot) -> Vec<String> {
    let memory =
        slot.memory_kib.map(|kib| pinstripe_base::units::format_size(u64::from(kib) * KIB));
    vec![
        slot.slot[..8].to_owned(),
        time::date(slot.created_seconds),
        slot.way.to_owned(),
        memory.unwrap_or_else(|| "-".to_owned()),
        escape::text(&slot.label),
    ]
}

fn event(slot: &Slot) -> Event {
    Event::new("key_slot").with_fields(slot)
}
