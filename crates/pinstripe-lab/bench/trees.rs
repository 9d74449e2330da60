//! Trees on disk: how big, read them warm, remove them, and whether two are the same.

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Result;
use crate::child;

/// Bytes read at one time.
const BUFFER_BYTES: usize = 1 << 18;
const TARBALL: &str = "/usr/src/linux-source-6.1.tar.xz";

/// Unpacks Debian's kernel source below `work`, once.
pub fn kernel_source(work: &Path) -> Result<PathBuf> {
    let (tree, done) = (work.join("linux-source-6.1"), work.join("linux-source-6.1.complete"));
    if done.exists() {
        return Ok(tree);
    }
    if !Path::new(TARBALL).exists() {
        let advice = "apt-get install linux-source-6.1 restic, or name a tree with --source";
        return Err(format!("no {TARBALL}: {advice}"));
    }
    remove(&tree)?;
    eprintln!("unpacking {TARBALL}");
    let mut tar = Command::new("tar");
    tar.arg("-xJf").arg(TARBALL).arg("-C").arg(work);
    child::run(&mut tar, &work.join("logs"), "unpack")?;
    fs::write(&done, "").map_err(|error| format!("cannot write {}: {error}", done.display()))?;
    Ok(tree)
}

/// Entries at and below `root`, and the bytes of its regular files.
pub fn measure(root: &Path) -> Result<(u64, u64)> {
    let (mut entries, mut bytes) = (0, 0);
    visit(root, &mut |_, metadata| {
        entries += 1;
        bytes += if metadata.is_file() { metadata.len() } else { 0 };
        Ok(())
    })?;
    Ok((entries, bytes))
}

/// Reads everything once, so that the page cache has it.
pub fn warm(root: &Path) -> Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    visit(root, &mut |path, metadata| {
        if metadata.is_file() {
            let mut file = File::open(path)?;
            while file.read(&mut buffer)? > 0 {}
        }
        Ok(())
    })
}

/// Removes a tree, if it is there.
pub fn remove(root: &Path) -> Result<()> {
    match fs::remove_dir_all(root) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(format!("cannot remove {}: {error}", root.display()))
        }
        _ => Ok(()),
    }
}

/// Calls `each` for `root` and all below it, a directory before what is in it, names sorted.
pub fn visit(root: &Path, each: &mut dyn FnMut(&Path, &Metadata) -> io::Result<()>) -> Result<()> {
    let told = |path: &Path, error: io::Error| format!("{}: {error}", path.display());
    let mut waiting = vec![root.to_path_buf()];
    while let Some(path) = waiting.pop() {
        let metadata = path.symlink_metadata().map_err(|error| told(&path, error))?;
        each(&path, &metadata).map_err(|error| told(&path, error))?;
        if metadata.is_dir() {
            // Last name first: the stack gives them back in order.
            let names = names(&path).map_err(|error| told(&path, error))?;
            waiting.extend(names.into_iter().rev().map(|name| path.join(name)));
        }
    }
    Ok(())
}

fn names(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut names = fs::read_dir(folder)?
        .map(|entry| Ok(PathBuf::from(entry?.file_name())))
        .collect::<io::Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

/// Whether `copy` has all that `original` has and nothing else: names, types, content, link
/// targets, modes, owners, times to the nanosecond, extended attributes, numbers of hard links.
///
/// # Errors
/// The first difference, with its path.
pub fn compare(original: &Path, copy: &Path) -> Result<()> {
    visit(original, &mut |path, metadata| {
        let inner = path.strip_prefix(original).unwrap_or(path);
        let there = if inner.as_os_str().is_empty() { copy.into() } else { copy.join(inner) };
        match difference(path, metadata, &there)? {
            Some(what) => Err(io::Error::other(format!("{what} differs in {}", there.display()))),
            None => Ok(()),
        }
    })
}

/// The differences between an entry and its copy, the children of a directory by name only.
fn difference(path: &Path, a: &Metadata, copy: &Path) -> io::Result<Option<&'static str>> {
    let b = &copy.symlink_metadata()?;
    let kind = |metadata: &Metadata| metadata.file_type();
    let is_device = kind(a).is_block_device() || kind(a).is_char_device();
    let links = |metadata: &Metadata| if a.is_dir() { 0 } else { metadata.nlink() };
    let cheap = [
        ("type", kind(a) == kind(b)),
        ("mode", a.mode() == b.mode()),
        ("owner", (a.uid(), a.gid()) == (b.uid(), b.gid())),
        ("time", (a.mtime(), a.mtime_nsec()) == (b.mtime(), b.mtime_nsec())),
        ("number of hard links", links(a) == links(b)),
        ("device", !is_device || a.rdev() == b.rdev()),
        ("size", !a.is_file() || a.len() == b.len()),
    ];
    if let Some((what, _)) = cheap.into_iter().find(|(_, same)| !same) {
        return Ok(Some(what));
    }
    let same_inside = if a.is_dir() {
        names(path)? == names(copy)?
    } else if a.is_symlink() {
        fs::read_link(path)? == fs::read_link(copy)?
    } else {
        !a.is_file() || same_content(path, copy)?
    };
    if !same_inside {
        return Ok(Some("content"));
    }
    let same_attributes = attributes(path)? == attributes(copy)?;
    Ok((!same_attributes).then_some("an extended attribute"))
}

fn same_content(a: &Path, b: &Path) -> io::Result<bool> {
    let (mut a, mut b) = (File::open(a)?, File::open(b)?);
    let (mut left, mut right) = (vec![0; BUFFER_BYTES], vec![0; BUFFER_BYTES]);
    loop {
        let read = a.read(&mut left)?;
        if read == 0 {
            return Ok(b.read(&mut right)? == 0);
        }
        match b.read_exact(&mut right[..read]) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
            done => done?,
        }
        if left[..read] != right[..read] {
            return Ok(false);
        }
    }
}

/// Extended attributes, sorted by name; none where the file system has none.
fn attributes(path: &Path) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    // The kernel allows no list and no value longer than this.
    const MOST_BYTES: usize = 1 << 16;
    let mut buffer = vec![0; MOST_BYTES];
    let length = match rustix::fs::llistxattr(path, buffer.as_mut_slice()) {
        Err(rustix::io::Errno::NOTSUP) => return Ok(Vec::new()),
        length => length?,
    };
    let list = buffer[..length].to_vec();
    let mut found = Vec::new();
    for name in list.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let length = rustix::fs::lgetxattr(path, name, buffer.as_mut_slice())?;
        found.push((name.to_vec(), buffer[..length].to_vec()));
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::time::{Duration, SystemTime};

    fn make(root: &Path) {
        fs::create_dir_all(root.join("d/e")).unwrap();
        fs::write(root.join("d/file"), vec![7; BUFFER_BYTES + 3]).unwrap();
        fs::hard_link(root.join("d/file"), root.join("d/twin")).unwrap();
        symlink("file", root.join("d/link")).unwrap();
        let when = SystemTime::UNIX_EPOCH + Duration::new(1_600_000_000, 123_456_789);
        visit(root, &mut |path, metadata| {
            if metadata.is_symlink() {
                use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};
                let time = Timespec { tv_sec: 1_600_000_000, tv_nsec: 123_456_789 };
                let times = Timestamps { last_access: time, last_modification: time };
                return Ok(utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?);
            }
            File::open(path)?.set_modified(when)
        })
        .unwrap();
    }

    #[test]
    fn equal_trees_are_equal_and_each_change_is_seen() {
        type Change = fn(&Path) -> io::Result<()>;
        let changes: [(&str, Change); 6] = [
            ("mode", |root| {
                fs::set_permissions(root.join("d/e"), fs::Permissions::from_mode(0o700))
            }),
            ("time", |root| File::open(root.join("d/e"))?.set_modified(SystemTime::now())),
            ("size", |root| {
                let path = root.join("d/file");
                let time = path.metadata()?.modified()?;
                let file = File::options().write(true).open(&path)?;
                file.set_len(3)?;
                file.set_modified(time)
            }),
            ("content", |root| {
                let path = root.join("d/file");
                let time = path.metadata()?.modified()?;
                let file = File::options().write(true).open(&path)?;
                std::os::unix::fs::FileExt::write_at(&file, b"x", BUFFER_BYTES as u64 + 1)?;
                file.set_modified(time)
            }),
            ("content", |root| {
                let folder = root.join("d/e");
                let time = folder.metadata()?.modified()?;
                fs::write(folder.join("more"), "")?;
                File::open(&folder)?.set_modified(time)
            }),
            ("number of hard links", |root| {
                fs::hard_link(root.join("d/file"), root.with_extension("extra"))
            }),
        ];
        for (what, change) in changes {
            let place = tempfile::tempdir().unwrap();
            let (a, b) = (place.path().join("a"), place.path().join("b"));
            make(&a);
            make(&b);
            assert_eq!(compare(&a, &b), Ok(()));
            change(&b).unwrap();
            let error = compare(&a, &b).unwrap_err();
            assert!(error.contains(&format!("{what} differs")), "{what}: {error}");
        }
    }

    #[test]
    fn a_missing_entry_and_another_target_are_seen() {
        let place = tempfile::tempdir().unwrap();
        let (a, b) = (place.path().join("a"), place.path().join("b"));
        make(&a);
        assert!(compare(&a, &b).is_err());
        make(&b);
        fs::remove_file(b.join("d/link")).unwrap();
        assert!(compare(&a, &b).is_err());
    }

    #[test]
    fn trees_are_measured_in_order() {
        let place = tempfile::tempdir().unwrap();
        make(place.path());
        assert_eq!(measure(place.path()).unwrap(), (6, 2 * (BUFFER_BYTES as u64 + 3)));
        let mut seen = Vec::new();
        visit(place.path(), &mut |path, _| {
            seen.push(path.strip_prefix(place.path()).unwrap_or(path).to_path_buf());
            Ok(())
        })
        .unwrap();
        let names = ["", "d", "d/e", "d/file", "d/link", "d/twin"];
        assert_eq!(seen, names.map(PathBuf::from));
        warm(place.path()).unwrap();
    }
}
