//! Seals records and snapshots, so that without the store's keys nobody can read or forge them.
//!
//! [`Sealer`] is made once per run that writes, with a random salt; its subkey is derived from the
//! newest master key and that salt, and its nonces are a counter. [`Opener`] reads objects that any
//! run sealed with any generation of the master keys. A sealed object is a *blob*:
//!
//! ```text
//!  0  generation of the master key  4
//!  4  salt of the run              16
//! 20  counter                       8   the nonce: four zero bytes, then this
//! 28  ciphertext
//!     tag                          16
//! ```
//!
//! Invariants: each pair of salt and counter is used once, so no nonce is ever used twice with one
//! key. In an encrypted store, an unsealed object is refused. Bytes that fail authentication are an
//! error, never a result. Secrets are wiped from memory when dropped, and nothing prints them.
//!
//! Small objects that control the store and hold no secrets are not sealed but authenticated:
//! [`Voucher`] appends a MAC.
//!
//! Not in this module: input or output, threads, and the meaning of sealed bytes except records and
//! snapshots.

mod cipher;
mod opener;
mod padding;
mod sealer;
mod slot;
#[cfg(test)]
mod tests;
mod voucher;

pub use opener::{OpenedRecord, Opener};
pub use padding::padded_bytes;
pub use sealer::Sealer;
pub use slot::{Credential, NewSlot, RootKey, succeeds, unwrap_key};
pub use voucher::Voucher;

use pinstripe_base::error::{Error, Kind};

/// Bytes of a blob before the ciphertext.
pub(crate) const BLOB_HEAD_BYTES: usize = 28;
/// Bytes of a blob after the ciphertext.
pub(crate) const TAG_BYTES: usize = 16;

/// The error for a process that lacks the newest keys, because they were rotated since it opened
/// the store.
pub fn keys_changed() -> Error {
    Error::new(Kind::KeysChanged, "the keys of this store were changed while this command ran")
        .advice(
            "run this command again; if the password or key file was changed too, give the new \
             one; data that was already stored is kept",
        )
}

/// The error for an operation that needs the store's keys when they were not given.
pub fn locked() -> Error {
    Error::new(
        Kind::Locked,
        "this store is encrypted, and neither a password nor a key file was given",
    )
    .advice(
        "give a password or key file with --password-file FILE, --password-command COMMAND, \
         --key-file FILE, or the variable PINSTRIPE_PASSWORD",
    )
}
