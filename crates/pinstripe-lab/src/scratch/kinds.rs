//! The supported file systems as data, and the check which of them this machine can create and
//! mount.

use std::fs;
use std::path::{Path, PathBuf};

use pinstripe_base::error::{Error, Kind, Result};

/// A file system.
#[derive(Debug, PartialEq, Eq)]
pub struct FileSystem {
    /// The name for users and for the kernel.
    pub name: &'static str,
    /// The program that creates the file system.
    pub program: &'static str,
    /// The package of that program, as most distributions name it.
    pub package: &'static str,
    /// The options that make the program ask nothing and print nothing, whatever the device
    /// contained.
    pub quietly: &'static [&'static str],
    /// The options that prevent the program from discarding the blocks of an image, which would
    /// create holes in its file.
    pub keeping_blocks: &'static [&'static str],
    /// Mount options without which the file system would continue its initialization during the
    /// measurement.
    pub settled: &'static [&'static str],
    /// Mount options that prevent the file system from discarding the blocks of an image.
    pub without_discard: &'static [&'static str],
    /// The size below which the program refuses to work.
    pub least_bytes: u64,
}

const MIB: u64 = 1 << 20;

/// All file systems, in the order in which they are measured.
///
/// The options are as in the manual pages of e2fsprogs 1.47, xfsprogs 6.1, btrfs-progs 6.2,
/// f2fs-tools 1.15, nilfs-utils 2.2.9, jfsutils 1.1.15, reiserfsprogs 3.6.27 and bcachefs-tools
/// 1.3.
pub(crate) const FILE_SYSTEMS: &[FileSystem] = &[
    FileSystem {
        name: "ext3",
        program: "mkfs.ext3",
        package: "e2fsprogs",
        quietly: &["-q", "-F"],
        keeping_blocks: &["-E", "nodiscard"],
        settled: &[],
        without_discard: &[],
        least_bytes: 8 * MIB,
    },
    FileSystem {
        name: "ext4",
        program: "mkfs.ext4",
        package: "e2fsprogs",
        quietly: &["-q", "-F"],
        keeping_blocks: &["-E", "nodiscard"],
        // Otherwise a thread of the kernel writes inode tables for minutes after the first mount.
        settled: &["noinit_itable"],
        without_discard: &[],
        least_bytes: 8 * MIB,
    },
    FileSystem {
        name: "xfs",
        program: "mkfs.xfs",
        package: "xfsprogs",
        quietly: &["-q", "-f"],
        keeping_blocks: &["-K"],
        settled: &[],
        without_discard: &[],
        least_bytes: 300 * MIB,
    },
    FileSystem {
        name: "btrfs",
        program: "mkfs.btrfs",
        package: "btrfs-progs",
        quietly: &["-q", "-f"],
        keeping_blocks: &["-K"],
        settled: &[],
        without_discard: &["nodiscard"],
        least_bytes: 114 * MIB,
    },
    FileSystem {
        name: "f2fs",
        program: "mkfs.f2fs",
        package: "f2fs-tools",
        quietly: &["-q", "-f"],
        keeping_blocks: &["-t", "0"],
        settled: &[],
        without_discard: &["nodiscard"],
        least_bytes: 64 * MIB,
    },
    FileSystem {
        name: "nilfs2",
        program: "mkfs.nilfs2",
        package: "nilfs-tools (nilfs-utils)",
        quietly: &["-q", "-f"],
        keeping_blocks: &["-K"],
        settled: &[],
        without_discard: &[],
        least_bytes: 129 * MIB,
    },
    FileSystem {
        name: "jfs",
        program: "mkfs.jfs",
        package: "jfsutils",
        quietly: &["-q"],
        keeping_blocks: &[],
        settled: &[],
        without_discard: &[],
        least_bytes: 16 * MIB,
    },
    FileSystem {
        name: "reiserfs",
        program: "mkfs.reiserfs",
        package: "reiserfsprogs",
        quietly: &["-q", "-f", "-f"],
        keeping_blocks: &[],
        settled: &[],
        without_discard: &[],
        least_bytes: 34 * MIB,
    },
    FileSystem {
        name: "bcachefs",
        program: "mkfs.bcachefs",
        package: "bcachefs-tools",
        quietly: &["-q", "-f"],
        keeping_blocks: &[],
        settled: &[],
        without_discard: &[],
        least_bytes: 128 * MIB,
    },
];

/// The names.
pub const NAMES: [&str; FILE_SYSTEMS.len()] = {
    let mut names = [""; FILE_SYSTEMS.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = FILE_SYSTEMS[at].name;
        at += 1;
    }
    names
};

/// Returns the file system with this name.
///
/// # Errors
/// [`Kind::Usage`], with the known names.
pub fn find(name: &str) -> Result<&'static FileSystem> {
    FILE_SYSTEMS.iter().find(|it| it.name == name).ok_or_else(|| {
        let error = Error::new(
            Kind::Usage,
            format!(
                "'{name}' is not a file system that this case can \
                                             create"
            ),
        );
        error.advice(format!("the file systems are {}", NAMES.join(", ")))
    })
}

/// The directories in which programs and the kernel's tables are found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct System {
    /// The directories in which programs are searched, in this order.
    pub programs: Vec<PathBuf>,
    /// The directory that contains `proc` and `lib`.
    pub root: PathBuf,
}

impl Default for System {
    fn default() -> Self {
        let programs = [
            "/usr/local/sbin",
            "/usr/sbin",
            "/sbin",
            "/usr/local/bin",
            "/usr/bin",
            "/bin",
            "/run/current-system/sw/bin",
        ];
        System { programs: programs.map(PathBuf::from).to_vec(), root: PathBuf::from("/") }
    }
}

impl System {
    /// Returns the mkfs program of a file system, if this kernel can mount the file system.
    ///
    /// # Errors
    /// [`Kind::NotFound`] without the program, [`Kind::Unsupported`] if the kernel cannot mount the
    /// file system.
    pub fn maker(&self, of: &FileSystem) -> Result<PathBuf> {
        let places = self.programs.iter().map(|place| place.join(of.program));
        let Some(found) = places.into_iter().find(|place| place.is_file()) else {
            let error = Error::new(Kind::NotFound, format!("{} is not installed", of.program));
            return Err(error.advice(format!("install {}", of.package)));
        };
        match self.can_mount(of.name) {
            true => Ok(found),
            false => {
                let what = format!("this kernel cannot mount {}", of.name);
                let advice = format!(
                    "load its kernel module with 'modprobe {}', if the module exists",
                    of.name
                );
                Err(Error::new(Kind::Unsupported, what).advice(advice))
            }
        }
    }

    /// Whether the kernel contains the file system, or has a module for it that it loads on demand.
    fn can_mount(&self, name: &str) -> bool {
        let text = |path: &str| fs::read_to_string(self.root.join(path)).unwrap_or_default();
        let is_it = |line: &str| line.split_whitespace().next_back() == Some(name);
        if text("proc/filesystems").lines().any(is_it) {
            return true;
        }
        let release = text("proc/sys/kernel/osrelease");
        let modules = Path::new("lib/modules").join(release.trim()).join("modules.alias");
        let alias = format!("alias fs-{name} ");
        text(&modules.to_string_lossy()).lines().any(|line| line.starts_with(&alias))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lacks_its_program_or_the_kernel_is_told_apart() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        for (path, text) in [
            ("sbin/mkfs.ext4", ""),
            ("sbin/mkfs.jfs", ""),
            ("sbin/mkfs.f2fs", ""),
            ("proc/filesystems", "nodev\tproc\n\text3\n\text4\n"),
            ("proc/sys/kernel/osrelease", "6.1.0\n"),
            ("lib/modules/6.1.0/modules.alias", "alias fs-jfs jfs\nalias fs-f2fsx f2fsx\n"),
        ] {
            fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
            fs::write(root.join(path), text).unwrap();
        }
        let system = System { programs: vec![root.join("sbin")], root: root.to_path_buf() };
        let maker = |name: &str| system.maker(find(name).unwrap()).map_err(|it| it.kind());
        assert_eq!(maker("ext4").unwrap(), root.join("sbin/mkfs.ext4"));
        assert_eq!(maker("jfs").unwrap(), root.join("sbin/mkfs.jfs"));
        assert_eq!(maker("ext3"), Err(Kind::NotFound));
        assert_eq!(maker("f2fs"), Err(Kind::Unsupported));
        assert_eq!(find("ext5").unwrap_err().kind(), Kind::Usage);
    }
}
