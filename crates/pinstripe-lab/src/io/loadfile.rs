//! Operations of office programs on a file server, as the load files of dbench (client.txt) list
//! them: one operation on each line, with the server's answer at the end of the line.
//!
//! ```text
//! NTCreateX "\clients\client1\filler.000" 0x40 0x2 9938 NT_STATUS_OK
//! WriteX 9938 65534 1 1 NT_STATUS_OK
//! Close 9938 NT_STATUS_OK
//! ```

use pinstripe_base::error::{Error, Kind, Result};

/// Sorts of operations, in the order in which they are shown.
pub const KINDS: [&str; 16] = [
    "NTCreateX",
    "Close",
    "Rename",
    "Unlink",
    "Deltree",
    "Mkdir",
    "Qpathinfo",
    "Qfileinfo",
    "Qfsinfo",
    "Sfileinfo",
    "Find",
    "WriteX",
    "ReadX",
    "LockX",
    "UnlockX",
    "Flush",
];

/// One operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LoadOperation {
    /// The sort of the operation: an index in [`KINDS`].
    pub kind: usize,
    /// The operation.
    pub act: FileAction,
    /// Whether the operation is expected to succeed.
    pub succeeds: bool,
}

/// The operation. An action on a file; paths are relative, and handles are the numbers in the load
/// file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FileAction {
    /// Opens or creates a file or directory.
    Open {
        /// What.
        path: String,
        /// A directory.
        is_directory: bool,
        /// Whether it is created if it is missing.
        makes: bool,
        /// Whether the content is truncated.
        truncates: bool,
        /// The new name.
        handle: u32,
    },
    /// Closes.
    Close(u32),
    /// Renames a path, and replaces a file that has the new name.
    Rename(String, String),
    /// Removes a file.
    Unlink(String),
    /// Removes a directory with its content.
    Deltree(String),
    /// Makes a directory.
    Mkdir(String),
    /// Reads the attributes of a path.
    Look(String),
    /// Reads the attributes of an open file.
    LookAt(u32),
    /// Reads the free space.
    Room,
    /// Sets times.
    Touch(u32),
    /// Searches a directory for names that match a pattern, which may have wildcards.
    Find(String, String),
    /// Writes this many bytes at an offset.
    Write(u32, u64, usize),
    /// Reads this many bytes at an offset.
    Read(u32, u64, usize),
    /// Locks or unlocks a range (start, bytes).
    Lock(u32, u64, u64, bool),
    /// Makes durable.
    Flush(u32),
}

/// Values of NTCreateX, as in SMB: the option for a directory, the dispositions that create a
/// missing file, and the dispositions that truncate.
const DIRECTORY: u64 = 1;
const MAKES: [u64; 3] = [2, 3, 5];
const TRUNCATES: [u64; 2] = [4, 5];

/// Reads a load file.
///
/// # Errors
/// [`Kind::Corrupt`] with the number of an invalid line.
pub fn parse(text: &str) -> Result<Vec<LoadOperation>> {
    let mut operations = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let refuse = || {
            Error::new(
                Kind::Corrupt,
                format!("line {} of the load file is not a valid operation: {line}", number + 1),
            )
            .advice("a load file must have the format of the file client.txt of dbench")
        };
        operations.push(operation(line).ok_or_else(refuse)?);
    }
    match operations.is_empty() {
        true => Err(Error::new(Kind::Corrupt, "the load file contains no operations")),
        false => Ok(operations),
    }
}

fn operation(line: &str) -> Option<LoadOperation> {
    let mut words = split(line);
    // Some files say first when it was.
    if words.first()?.parse::<f64>().is_ok() {
        words.remove(0);
    }
    let status = words.pop().filter(|it| it.starts_with("NT_STATUS_") || it.starts_with("0x"))?;
    let succeeds = status == "NT_STATUS_OK" || status == "0x00000000";
    let mut words = words.into_iter();
    let name = words.next()?;
    let rest: Vec<String> = words.collect();
    let path = |at: usize| rest.get(at).map(|it| relative(it));
    let number = |at: usize| rest.get(at).and_then(|it| integer(it));
    let handle = |at: usize| number(at).map(|it| it as u32);
    let (kind, act) = match name.as_str() {
        "NTCreateX" => {
            let (options, disposition) = (number(1)?, number(2)?);
            (
                "NTCreateX",
                FileAction::Open {
                    path: path(0)?,
                    is_directory: options & DIRECTORY != 0,
                    makes: MAKES.contains(&disposition),
                    truncates: TRUNCATES.contains(&disposition),
                    // An operation that is expected to fail has no handle, or a meaningless one.
                    handle: handle(3).unwrap_or(u32::MAX),
                },
            )
        }
        "Close" => ("Close", FileAction::Close(handle(0)?)),
        "Rename" => ("Rename", FileAction::Rename(path(0)?, path(1)?)),
        "Unlink" => ("Unlink", FileAction::Unlink(path(0)?)),
        "Deltree" => ("Deltree", FileAction::Deltree(path(0)?)),
        "Mkdir" | "Rmdir" => ("Mkdir", FileAction::Mkdir(path(0)?)),
        "QUERY_PATH_INFORMATION" => ("Qpathinfo", FileAction::Look(path(0)?)),
        "QUERY_FILE_INFORMATION" => ("Qfileinfo", FileAction::LookAt(handle(0)?)),
        "QUERY_FS_INFORMATION" => ("Qfsinfo", FileAction::Room),
        "SET_FILE_INFORMATION" => ("Sfileinfo", FileAction::Touch(handle(0)?)),
        "FIND_FIRST" => {
            let path = path(0)?;
            let (folder, pattern) = path.rsplit_once('/').unwrap_or(("", &path));
            ("Find", FileAction::Find(folder.to_owned(), pattern.to_owned()))
        }
        "WriteX" => ("WriteX", FileAction::Write(handle(0)?, number(1)?, number(2)? as usize)),
        "ReadX" => ("ReadX", FileAction::Read(handle(0)?, number(1)?, number(2)? as usize)),
        "LockX" => ("LockX", FileAction::Lock(handle(0)?, number(1)?, number(2)?, true)),
        "UnlockX" => ("UnlockX", FileAction::Lock(handle(0)?, number(1)?, number(2)?, false)),
        "Flush" => ("Flush", FileAction::Flush(handle(0)?)),
        _ => return None,
    };
    let kind = KINDS.iter().position(|it| *it == kind)?;
    Some(LoadOperation { kind, act, succeeds })
}

/// Words separated by blanks; a quoted text is one word.
fn split(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (number, part) in line.split('"').enumerate() {
        match number % 2 {
            0 => words.extend(part.split_whitespace().map(str::to_owned)),
            _ => words.push(part.to_owned()),
        }
    }
    words
}

fn integer(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Returns a path below the client's own directory; no path of the load file leads out of it.
fn relative(path: &str) -> String {
    let parts = path.split(['\\', '/']).filter(|it| !matches!(*it, "" | "." | ".."));
    parts.collect::<Vec<_>>().join("/")
}

/// A load for users without a load file: documents that are created, written, listed, saved and
/// renamed.
pub fn made_up() -> String {
    let mut text = String::from(
        "Deltree \"\\clients\\client1\" NT_STATUS_OK\nMkdir \"\\clients\" NT_STATUS_OK\n\
         Mkdir \"\\clients\\client1\" NT_STATUS_OK\n",
    );
    for number in 0..40_u64 {
        let folder = format!("\\clients\\client1\\folder{}", number % 4);
        let (path, saved) =
            (format!("{folder}\\work{number}.tmp"), format!("{folder}\\text{}.doc", number % 13));
        let handle = 100 + number;
        if number < 4 {
            text += &format!("Mkdir \"{folder}\" NT_STATUS_OK\n");
        }
        text += &format!(
            "QUERY_PATH_INFORMATION \"{path}\" 1004 NT_STATUS_OBJECT_NAME_NOT_FOUND\n\
             FIND_FIRST \"{folder}\\*\" 260 1366 0 NT_STATUS_OK\n\
             NTCreateX \"{path}\" 0x40 0x2 {handle} NT_STATUS_OK\nQUERY_FS_INFORMATION 1 NT_STATUS_OK\n"
        );
        for block in 0..4 + number % 9 {
            text += &format!("WriteX {handle} {} 16384 16384 NT_STATUS_OK\n", block * 16384);
            text += &format!("ReadX {handle} {} 4096 4096 NT_STATUS_OK\n", block * 16384);
            text += &format!("QUERY_FILE_INFORMATION {handle} 258 NT_STATUS_OK\n");
        }
        text += &format!(
            "LockX {handle} 0 512 NT_STATUS_OK\nUnlockX {handle} 0 512 NT_STATUS_OK\n\
             SET_FILE_INFORMATION {handle} 1004 NT_STATUS_OK\nFlush {handle} NT_STATUS_OK\n\
             Close {handle} NT_STATUS_OK\nRename \"{path}\" \"{saved}\" NT_STATUS_OK\n"
        );
        if number % 5 == 4 {
            text += &format!("Unlink \"{saved}\" NT_STATUS_OK\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_load_file_are_read() {
        let text = "# nothing\n\n\
            NTCreateX \"\\clients\\client1\\~dm tmp\\A.DOC\" 0x40 0x2 9938 NT_STATUS_OK\n\
            12.5 WriteX 9938 65534 1 1 NT_STATUS_OK\n\
            FIND_FIRST \"\\clients\\client1\\FILLER.*\" 260 1366 0 NT_STATUS_NO_SUCH_FILE\n\
            Unlink \"\\..\\..\\etc\\passwd\" 0x16 NT_STATUS_OK\n";
        let found = parse(text).unwrap();
        let path = "clients/client1/~dm tmp/A.DOC".to_owned();
        assert_eq!(
            found[0].act,
            FileAction::Open {
                path,
                is_directory: false,
                makes: true,
                truncates: false,
                handle: 9938
            }
        );
        assert_eq!(found[1].act, FileAction::Write(9938, 65534, 1));
        assert_eq!(
            (&found[2].act, found[2].succeeds),
            (&FileAction::Find("clients/client1".to_owned(), "FILLER.*".to_owned()), false)
        );
        assert_eq!(found[3].act, FileAction::Unlink("etc/passwd".to_owned()), "nothing leads out");
        assert_eq!(KINDS[found[2].kind], "Find");
    }

    #[test]
    fn a_line_that_is_none_is_named() {
        for bad in ["", "# only", "Close 1", "Fly 1 NT_STATUS_OK", "WriteX 1 NT_STATUS_OK"] {
            assert_eq!(parse(bad).unwrap_err().kind(), Kind::Corrupt, "{bad}");
        }
        let error = parse("Close 1 NT_STATUS_OK\nClose x NT_STATUS_OK\n").unwrap_err();
        assert!(error.to_string().contains("line 2"), "{error}");
    }

    #[test]
    fn what_is_made_up_has_nearly_every_sort() {
        let found = parse(&made_up()).unwrap();
        for (kind, name) in KINDS.iter().enumerate() {
            assert!(found.iter().any(|it| it.kind == kind), "{name}");
        }
    }
}
