//! Ignore files: files of a given name with rules for what is at and below their directory, as
//! `.gitignore` is for git.
//!
//! The rules of a directory have precedence over those of the directories above it, and the rules
//! of options over both. A file that is not a regular file, or too long, has no rules, and neither
//! has an invalid line; both are reported, because more is saved than was meant.

use std::ffi::{CStr, CString};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_member::PatternPlace;
use rustix::fs::FileType;
use rustix::io::Errno;

use super::rules::{Deciders, Rule, RuleOrigin, RuleSet, WrittenRule, path_of, pattern_lines};
use super::tagged::{checked_name, open_file, read_up_to};

/// A longer file was probably not meant as an ignore file.
const FILE_MAX_BYTES: usize = 1 << 20;

/// A name of ignore files.
#[derive(Debug)]
pub struct IgnoreFile {
    name: CString,
    is_met: AtomicBool,
}

impl IgnoreFile {
    /// Parses a name.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`] if no directory can have an entry with this name.
    pub fn parse(name: &[u8]) -> Result<Self> {
        let name = checked_name(name).ok_or_else(|| {
            let shown = String::from_utf8_lossy(name);
            Error::new(Kind::Usage, format!("'{shown}' is not the name of a file"))
                .advice("give a name without slashes, for example .gitignore")
        })?;
        Ok(IgnoreFile { name, is_met: AtomicBool::new(false) })
    }

    /// The name.
    pub fn name(&self) -> &CStr {
        &self.name
    }

    /// Whether a walk found an ignore file of this name.
    pub fn is_met(&self) -> bool {
        self.is_met.load(Ordering::Relaxed)
    }
}

/// The rules of one ignore file, below those of the directories above it.
#[derive(Debug)]
pub(super) struct IgnoreRules {
    rules: RuleSet,
    /// The length of the path of the file's directory.
    base: usize,
    above: Option<Arc<IgnoreRules>>,
}

/// Why an ignore file, or some of its lines, have no effect.
pub(super) enum IgnoreFault {
    /// The system refused to open or read the file.
    System(Errno),
    /// The file or a line of it cannot have rules.
    Text(Error),
}

impl IgnoreRules {
    /// Reads the ignore file `file` in a directory, which has an entry of this name, and passes
    /// faults to `report`. `path` is the absolute path of the directory, and `above` has the rules
    /// in force in it.
    pub fn read(
        file: &IgnoreFile,
        directory: BorrowedFd<'_>,
        path: &[u8],
        above: Option<Arc<IgnoreRules>>,
        report: &mut dyn FnMut(IgnoreFault),
    ) -> Option<Arc<IgnoreRules>> {
        file.is_met.store(true, Ordering::Relaxed);
        let text = match read(directory, file.name()) {
            Ok(text) => text,
            Err(fault) => {
                report(fault);
                return above;
            }
        };
        let place = path_of(&[path, b"/", file.name().to_bytes()].concat());
        let mut rules = Vec::new();
        for (line, text) in pattern_lines(&text) {
            let origin = RuleOrigin::Ignore(place.clone(), line);
            let written = WrittenRule { text: text.to_vec(), ignores_case: false, origin };
            match Rule::parse("ignore pattern", written, PatternPlace::Directory) {
                Ok(rule) => rules.push(rule),
                Err(error) => {
                    let what =
                        format!("line {line} of this ignore file has no effect: {}", error.what());
                    let advice = error.advice_text().unwrap_or_default();
                    report(IgnoreFault::Text(Error::new(Kind::Usage, what).advice(advice)));
                }
            }
        }
        if rules.is_empty() {
            return above;
        }
        Some(Arc::new(IgnoreRules { rules: RuleSet::new(rules), base: path.len(), above }))
    }

    /// These rules, and those of the directories above, in order of precedence.
    pub(crate) fn and_above(first: Option<&IgnoreRules>) -> impl Iterator<Item = &IgnoreRules> {
        std::iter::successors(first, |rules| rules.above.as_deref())
    }

    /// The rules of this file that decide about an absolute path below its directory.
    pub fn decide(&self, path: &[u8]) -> Deciders<'_> {
        self.rules.decide(&path[self.base..])
    }
}

impl Drop for IgnoreRules {
    /// Frees a long chain in a loop, because recursion could exhaust the stack.
    fn drop(&mut self) {
        let mut above = self.above.take();
        while let Some(mut rules) = above.and_then(Arc::into_inner) {
            above = rules.above.take();
        }
    }
}

fn read(directory: BorrowedFd<'_>, name: &CStr) -> Result<Vec<u8>, IgnoreFault> {
    let useless = |what: String| {
        let advice = "everything that this file should exclude is backed up";
        IgnoreFault::Text(Error::new(Kind::Usage, what).advice(advice))
    };
    let irregular =
        || useless("this ignore file is not a regular file, so it has no rules".to_owned());
    let file = match open_file(directory, name) {
        Ok(file) => file,
        // A symlink; a socket.
        Err(Errno::LOOP | Errno::NXIO) => return Err(irregular()),
        Err(errno) => return Err(IgnoreFault::System(errno)),
    };
    let mode = rustix::fs::fstat(&file).map_err(IgnoreFault::System)?.st_mode;
    if FileType::from_raw_mode(mode) != FileType::RegularFile {
        return Err(irregular());
    }
    let text = read_up_to(&file, FILE_MAX_BYTES + 1).map_err(IgnoreFault::System)?;
    if text.len() > FILE_MAX_BYTES {
        let what =
            format!("this ignore file has more than {FILE_MAX_BYTES} bytes, so it is not used");
        return Err(useless(what));
    }
    Ok(text)
}
