//! POSIX access control lists as Linux keeps them in extended attributes (linux/posix_acl_xattr.h).
//!
//! ```text
//! attribute: version u32 (2), then entries: tag u16, permissions u16 (rwx as 4, 2, 1), id u32
//! ```
//! A value that is not of this form is left as it is: the system judges it.

use super::meta::ACL_PREFIX;

/// The list of an entry itself.
pub const ACCESS: &[u8] = b"system.posix_acl_access";
/// The list that a directory hands down to entries made in it.
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

const VERSION: [u8; 4] = [2, 0, 0, 0];
const ENTRY_BYTES: usize = 8;

const OWNER: u16 = 1;
const USER: u16 = 2;
const OWNING_GROUP: u16 = 4;
const GROUP: u16 = 8;
const MASK: u16 = 16;
const OTHER: u16 = 32;

/// Whether an extended attribute of this name is an access control list.
pub fn is_acl(name: &[u8]) -> bool {
    name.starts_with(ACL_PREFIX)
}

/// One entry.
#[derive(Debug, Clone, Copy)]
struct AclEntry {
    tag: u16,
    permissions: u16,
    id: u32,
}

/// The entries of a list; `None` if the value is not one.
fn entries(value: &[u8]) -> Option<Vec<AclEntry>> {
    let entries = value.strip_prefix(&VERSION)?.chunks(ENTRY_BYTES).map(|entry| {
        let &[t0, t1, p0, p1, i0, i1, i2, i3] = entry else { return None };
        let (tag, permissions) = (u16::from_le_bytes([t0, t1]), u16::from_le_bytes([p0, p1]));
        Some(AclEntry { tag, permissions, id: u32::from_le_bytes([i0, i1, i2, i3]) })
    });
    entries.collect()
}

/// Replaces the users and groups that a list names.
pub fn map(value: &mut Vec<u8>, user: impl Fn(u32) -> u32, group: impl Fn(u32) -> u32) {
    let Some(mut entries) = entries(value) else { return };
    for entry in &mut entries {
        match entry.tag {
            USER => entry.id = user(entry.id),
            GROUP => entry.id = group(entry.id),
            _ => {}
        }
    }
    // The system wants the users, and the groups, in the order of their numbers.
    entries.sort_by_key(|entry| (entry.tag, entry.id));
    // Two may have become one: the narrower of both.
    entries.dedup_by(|later, earlier| {
        let is_same = (later.tag, later.id) == (earlier.tag, earlier.id);
        earlier.permissions &= if is_same { later.permissions } else { u16::MAX };
        is_same
    });
    value.truncate(VERSION.len());
    for AclEntry { tag, permissions, id } in entries {
        value.extend(tag.to_le_bytes());
        value.extend(permissions.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
}

/// The permissions of the owning group, as the list limits them: those that it has in the mode of
/// a file without the list.
pub fn group_permissions(value: &[u8]) -> Option<u32> {
    let entries = entries(value)?;
    let of = |tag| entries.iter().find(|entry| entry.tag == tag).map(|entry| entry.permissions);
    Some(u32::from(of(OWNING_GROUP)? & of(MASK).unwrap_or(7)))
}

/// The list as text with numbers (acl(5)), as in `user::rw-,user:1000:r--,group::r--,other::---`.
pub fn text(value: &[u8]) -> Option<String> {
    let word = |entry: &AclEntry| {
        let (who, named) = match entry.tag {
            OWNER => ("user", false),
            USER => ("user", true),
            OWNING_GROUP => ("group", false),
            GROUP => ("group", true),
            MASK => ("mask", false),
            OTHER => ("other", false),
            _ => return None,
        };
        let id = if named { entry.id.to_string() } else { String::new() };
        let letter = |bit, letter| if entry.permissions & bit != 0 { letter } else { '-' };
        Some(format!("{who}:{id}:{}{}{}", letter(4, 'r'), letter(2, 'w'), letter(1, 'x')))
    };
    let words = entries(value)?.iter().map(word).collect::<Option<Vec<_>>>()?;
    Some(words.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: u32 = u32::MAX;

    fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut value = VERSION.to_vec();
        for (tag, permissions, id) in entries {
            value.extend(tag.to_le_bytes());
            value.extend(permissions.to_le_bytes());
            value.extend(id.to_le_bytes());
        }
        value
    }

    #[test]
    fn names_are_mapped_and_stay_in_order() {
        let mut value = list(&[(1, 6, NONE), (2, 6, 1000), (2, 4, 1500), (4, 4, NONE), (8, 6, 9)]);
        map(&mut value, |id| if id == 1000 { 2000 } else { id }, |id| id + 1);
        assert_eq!(
            text(&value).unwrap(),
            "user::rw-,user:1500:r--,user:2000:rw-,group::r--,group:10:rw-"
        );
        map(&mut value, |_| 7, |id| id);
        assert_eq!(text(&value).unwrap(), "user::rw-,user:7:r--,group::r--,group:10:rw-");
    }

    #[test]
    fn the_group_has_what_the_mask_leaves_it() {
        let masked = list(&[(1, 6, NONE), (2, 6, 1), (4, 6, NONE), (16, 4, NONE), (32, 0, NONE)]);
        assert_eq!(group_permissions(&masked), Some(4));
        assert_eq!(group_permissions(&list(&[(4, 5, NONE)])), Some(5));
    }

    #[test]
    fn what_is_no_list_is_left() {
        for bytes in [&b""[..], b"\x01\0\0\0", b"\x02\0\0\0\x01"] {
            let mut value = bytes.to_vec();
            map(&mut value, |_| 0, |_| 0);
            assert_eq!(
                (value.as_slice(), text(bytes), group_permissions(bytes)),
                (bytes, None, None)
            );
        }
    }
}
