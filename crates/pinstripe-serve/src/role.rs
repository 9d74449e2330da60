//! What a token may do: by its role, the kind of the object, and who put the object.
//!
//! `forget`, voids, merges of index runs and answers to deletions are puts: the content of a new
//! object decides, not only its kind.

use std::fmt;
use std::str::FromStr;

use pinstripe_base::error::{Error, Kind};
use pinstripe_member::{ExtentKind, ExtentName};
use serde::{Deserialize, Serialize};

/// The role of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TokenRole {
    /// Adds snapshots; reads only what its host has put, and what a backup needs.
    Append,
    /// Adds snapshots and restores those of its host.
    AppendRestore,
    /// Restores, and changes nothing.
    Restore,
    /// Everything.
    Admin,
}

const ROLES: [(TokenRole, &str); 4] = [
    (TokenRole::Append, "append"),
    (TokenRole::AppendRestore, "append-restore"),
    (TokenRole::Restore, "restore"),
    (TokenRole::Admin, "admin"),
];

impl fmt::Display for TokenRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(ROLES.iter().find(|(role, _)| role == self).map_or("", |(_, name)| name))
    }
}

impl FromStr for TokenRole {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        // `append+restore` is accepted, too.
        let wanted = text.replace('+', "-");
        let found = ROLES.iter().find(|(_, name)| *name == wanted).map(|(role, _)| *role);
        found.ok_or_else(|| {
            Error::new(Kind::Usage, format!("'{text}' is not a role"))
                .expected(ROLES.map(|(_, name)| name).join(", "), text)
        })
    }
}

/// What a request would do with an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deed {
    /// Reads it, or its length.
    Read,
    /// Puts it under a free name.
    Create,
    /// Puts it in place of one of the same name.
    Replace,
    /// Deletes it.
    Delete,
}

/// The host that put an object, relative to the token's host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ownership {
    /// The token's host put it.
    Own,
    /// Another host put it, or it was not put through this server.
    Other,
}

impl TokenRole {
    /// Whether tokens of this role add snapshots.
    pub fn appends(self) -> bool {
        matches!(self, TokenRole::Append | TokenRole::AppendRestore | TokenRole::Admin)
    }

    /// Whether a request may do this. The content of a new object is judged in addition
    /// (`extent::judge_new`).
    pub(crate) fn may(
        self,
        deed: Deed,
        name: ExtentName,
        ownership: Ownership,
        sees_all: bool,
    ) -> bool {
        let is_own = ownership == Ownership::Own;
        let kind = match name {
            _ if self == TokenRole::Admin => return true,
            ExtentName::Label => return deed == Deed::Read,
            ExtentName::In(kind, _) => kind,
        };
        match deed {
            Deed::Read => match kind {
                ExtentKind::Packs => self != TokenRole::Append || is_own,
                ExtentKind::Snapshots => is_own || sees_all && self != TokenRole::Append,
                ExtentKind::Checkpoints => is_own && self.appends(),
                ExtentKind::Index
                | ExtentKind::Keys
                | ExtentKind::Sessions
                | ExtentKind::Forgotten
                | ExtentKind::Gc
                | ExtentKind::Heartbeats => true,
                ExtentKind::Scrub | ExtentKind::Strays => false,
            },
            Deed::Create => match kind {
                ExtentKind::Packs
                | ExtentKind::Index
                | ExtentKind::Snapshots
                | ExtentKind::Sessions
                | ExtentKind::Gc
                | ExtentKind::Checkpoints
                | ExtentKind::Heartbeats => self.appends(),
                ExtentKind::Keys
                | ExtentKind::Forgotten
                | ExtentKind::Scrub
                | ExtentKind::Strays => false,
            },
            Deed::Replace => false,
            Deed::Delete => match kind {
                ExtentKind::Sessions | ExtentKind::Checkpoints | ExtentKind::Heartbeats => {
                    self.appends() && is_own
                }
                _ => false,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn each(mut act: impl FnMut(Deed, ExtentName, Ownership)) {
        let kinds = ExtentKind::ALL.map(|kind| ExtentName::In(kind, [0; 16]));
        for name in kinds.into_iter().chain([ExtentName::Label]) {
            for deed in [Deed::Read, Deed::Create, Deed::Replace, Deed::Delete] {
                for ownership in [Ownership::Own, Ownership::Other] {
                    act(deed, name, ownership);
                }
            }
        }
    }

    #[test]
    fn only_an_admin_replaces_or_deletes_what_is_not_its_own() {
        each(|deed, name, ownership| {
            for role in [TokenRole::Append, TokenRole::AppendRestore, TokenRole::Restore] {
                let may = role.may(deed, name, ownership, true);
                if deed == Deed::Replace || deed == Deed::Delete && ownership == Ownership::Other {
                    assert!(!may, "{role} {deed:?} {name}");
                }
                if role == TokenRole::Restore && deed != Deed::Read {
                    assert!(!may, "{role} {deed:?} {name}");
                }
            }
            assert!(TokenRole::Admin.may(deed, name, ownership, false));
        });
    }

    #[test]
    fn a_role_that_only_appends_reads_no_content_of_others() {
        for kind in [ExtentKind::Packs, ExtentKind::Snapshots, ExtentKind::Checkpoints] {
            let name = ExtentName::In(kind, [0; 16]);
            assert!(TokenRole::Append.may(Deed::Read, name, Ownership::Own, false), "{kind:?}");
            assert!(!TokenRole::Append.may(Deed::Read, name, Ownership::Other, true), "{kind:?}");
        }
    }

    #[test]
    fn names_of_roles_are_read_as_they_are_printed() {
        for (role, name) in ROLES {
            assert_eq!(name.parse::<TokenRole>().unwrap(), role);
            assert_eq!(role.to_string(), name);
        }
        assert!("root".parse::<TokenRole>().is_err());
    }
}
