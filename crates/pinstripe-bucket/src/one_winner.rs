//! Guarantees one winner of a name in buckets that keep versions since their member was created.
//!
//! Some endpoints, such as Ceph's gateway, create an object only once in a plain bucket, but
//! several times in one that keeps versions: each creation adds a version. The facts in the label
//! may have been found before versions were kept, so they are tested again when an answer has a
//! version id.

use object_store::PutPayload;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_member::label::MemberAbility;

use crate::fault::Fault;
use crate::inner::Inner;
use crate::key;

impl Inner {
    /// [`Kind::NoOneWinner`] if the bucket keeps versions since its member was created, and
    /// therefore creates several objects with one name; the errors of the endpoint.
    ///
    /// # Errors
    /// Fails with [`Kind::NoOneWinner`] if the bucket keeps versions since its member was created,
    /// and therefore creates several objects with one name; with the errors of the endpoint.
    pub(crate) fn require_one_winner(&self) -> Result<()> {
        let versions = &self.session.versions;
        let facts = self.facts();
        if facts.has_one_writer() {
            return Ok(());
        }
        let had_none = facts.knows(MemberAbility::Versions) == Some(false);
        if !had_none || !versions.are_kept() {
            return Ok(());
        }
        let makes_once = match versions.makes_once.get() {
            Some(known) => *known,
            None => {
                let tried = self.runtime.block_on(self.makes_once());
                let found = tried.map_err(|fault| self.error(&fault, "probe", ""))?;
                *versions.makes_once.get_or_init(|| found)
            }
        };
        if makes_once {
            return Ok(());
        }
        let what = "versioning was enabled on this bucket after the member was created, and with \
                    versioning this endpoint lets several writers create the same object";
        Err(Error::new(Kind::NoOneWinner, what).at(self.place.path()).advice(
            "backups of two writers could overwrite each other in this bucket, but the store can \
             still be read; move the member to a bucket without versioning with 'pinstripe member \
             replace', or create a new store in such a bucket",
        ))
    }

    /// Whether the endpoint refuses to create an object that exists.
    async fn makes_once(&self) -> Result<bool, Fault> {
        let key = key::fresh(&self.place);
        let make = |bytes: &'static [u8]| {
            let payload = PutPayload::from_static(bytes);
            let key = &key;
            async move { self.session.create(key, &payload, None).await }
        };
        make(b"one").await?;
        let again = make(b"two").await;
        self.session.delete(&key).await?;
        match again {
            Ok(_) => Ok(false),
            Err(Fault::Exists) => Ok(true),
            Err(fault) => Err(fault),
        }
    }
}
