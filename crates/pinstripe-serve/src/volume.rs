//! What a server serves: the members of a store, or one exported directory that can become a member
//! of a store over several servers.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::StoreId;
use pinstripe_member::SharedMember;
use pinstripe_remote::VolumeFacts;

/// The members of a volume, by number.
#[derive(Clone)]
pub struct ServedVolume {
    /// The store's id, or that of the exported directory.
    pub id: StoreId,
    /// Whether the volume is a store, all of ownership members belong to this server.
    pub is_store: bool,
    /// The members that are present.
    pub members: BTreeMap<u16, SharedMember>,
    /// The places of the members that are absent.
    pub absent: BTreeMap<u16, PathBuf>,
}

impl ServedVolume {
    /// The members by number, as a reader of stripe sets takes them.
    pub(crate) fn by_number(&self) -> Vec<Option<SharedMember>> {
        let count = self.members.keys().last().map_or(0, |last| usize::from(*last) + 1);
        let mut all = vec![None; count];
        for (number, member) in &self.members {
            all[usize::from(*number)] = Some(Arc::clone(member));
        }
        all
    }

    /// The member with a number.
    ///
    /// # Errors
    /// The errors never say that something is not found: that would be a statement about an extent
    /// of the member.
    pub(crate) fn member(&self, number: u16) -> Result<&SharedMember> {
        self.members.get(&number).ok_or_else(|| match self.absent.contains_key(&number) {
            true => Error::new(Kind::Io, format!("member {number} is absent at the server")),
            false => Error::new(Kind::WrongMember, "this server has no such member"),
        })
    }

    pub(crate) fn facts(&self) -> VolumeFacts {
        VolumeFacts {
            id: self.id.to_string(),
            members: self.members.keys().copied().collect(),
            is_store: self.is_store,
        }
    }
}

/// The id of an exported directory: it follows from the path, so that join strings stay valid.
#[must_use]
pub fn export_id(directory: &Path) -> StoreId {
    let hash = blake3::derive_key(
        "pinstripe 2026 id of an exported directory",
        directory.as_os_str().as_bytes(),
    );
    let mut id = [0; 16];
    id.copy_from_slice(&hash[..16]);
    StoreId(id)
}
