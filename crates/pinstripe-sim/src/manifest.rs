//! Describes a tree as seen from outside, as text: one line for each entry, sorted by path.
//!
//! Columns: path, kind, mode, mtime, links, size, content, user.note. A path, a link's target and
//! an attribute are written as escaped ASCII without spaces; a file's content is written as its
//! BLAKE3 hash. `-` means no value, or a value that a file system would not restore.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// The only extended attribute of the trees.
pub const XATTR: &str = "user.note";

/// Returns the lines of a tree, including the root as `.`.
pub fn describe_tree(root: &Path) -> Vec<String> {
    let mut lines = vec![line(root, root)];
    let mut open = vec![root.to_path_buf()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            lines.push(line(root, &path));
            if fs::symlink_metadata(&path).unwrap().is_dir() {
                open.push(path);
            }
        }
    }
    lines.sort();
    lines
}

fn line(root: &Path, path: &Path) -> String {
    let found = fs::symlink_metadata(path).unwrap();
    let kind = found.file_type();
    let none = || "-".to_owned();
    let (links, size) = match kind.is_file() {
        true => (found.nlink().to_string(), found.size().to_string()),
        false => (none(), none()),
    };
    let (kind, content) = match kind {
        _ if kind.is_file() => ("file", blake3::hash(&fs::read(path).unwrap()).to_string()),
        _ if kind.is_dir() => ("dir", none()),
        _ if kind.is_symlink() => {
            ("symlink", escaped(fs::read_link(path).unwrap().as_os_str().as_bytes()))
        }
        _ if kind.is_fifo() => ("fifo", none()),
        _ => panic!("the trees have no {kind:?}"),
    };
    let mode = if kind == "symlink" { none() } else { format!("{:04o}", found.mode() & 0o7777) };
    let mtime = format!("{}.{:09}", found.mtime(), found.mtime_nsec());
    let mut note = [0; 64];
    let note = match rustix::fs::lgetxattr(path, XATTR, &mut note) {
        Ok(len) => escaped(&note[..len]),
        Err(_) => none(),
    };
    let name = match path.strip_prefix(root).unwrap().as_os_str().as_bytes() {
        b"" => ".".to_owned(),
        name => escaped(name),
    };
    [name, kind.to_owned(), mode, mtime, links, size, content, note].join(" ")
}

fn escaped(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string().replace(' ', "\\x20")
}

/// Returns the path and the BLAKE3 hash of every file below `root`, sorted, to show that nothing
/// was changed.
pub fn file_hashes(root: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                let hash = blake3::hash(&fs::read(&path).unwrap());
                lines.push(format!("{hash} {}", path.strip_prefix(root).unwrap().display()));
            }
        }
    }
    lines.sort_by(|left, right| left[65..].cmp(&right[65..]));
    lines
}
