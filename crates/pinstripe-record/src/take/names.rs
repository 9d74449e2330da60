//! The names of stream files, which are created and recognized only by this module.
//!
//! `017-piano.wav`. The name of a second copy ends with `.mirror`. The name of a later file of a
//! stream ends with `@`, its first frame and its number: `@` sorts after `.` in ASCII and in the
//! collations of file managers, so that the files of a stream are in order by name. In file names,
//! the name of a stream never contains `@`.

use crate::header::HeadFacts;

/// The greatest number of letters of a stream's name in a file name.
const LETTERS: usize = 60;
const MIRROR: &str = ".mirror";
const LATER: char = '@';

/// Returns the name of a file of a copy. A later file also has its first frame and its number in
/// the name, which distinguishes two files that begin with the same frame.
pub(crate) fn stream_file_name(facts: &HeadFacts, copy: u32, later: Option<(u64, u32)>) -> String {
    let mirror = if copy > 0 { MIRROR } else { "" };
    let later = later.map_or(String::new(), |(frame, piece)| format!("{LATER}{frame:012}-{piece}"));
    format!("{}{mirror}{later}.{}", stem(facts), facts.extension())
}

/// Whether [`stream_file_name`] can return this name for this stream.
pub(crate) fn is_stream_file_name(name: &str, facts: &HeadFacts) -> bool {
    let rest = name.strip_prefix(&stem(facts));
    let rest = rest.and_then(|it| it.strip_suffix(facts.extension())?.strip_suffix('.'));
    let Some(rest) = rest.map(|it| it.strip_prefix(MIRROR).unwrap_or(it)) else { return false };
    let is_number = |it: &str| !it.is_empty() && it.bytes().all(|it| it.is_ascii_digit());
    let is_later = |it: &str| {
        let numbers = it.strip_prefix(LATER).and_then(|it| it.split_once('-'));
        numbers.is_some_and(|(frame, piece)| is_number(frame) && is_number(piece))
    };
    rest.is_empty() || is_later(rest)
}

fn stem(facts: &HeadFacts) -> String {
    let digits = facts.total.to_string().len().max(2);
    let plain = |it: char| if it.is_alphanumeric() || "-_.+".contains(it) { it } else { '_' };
    let name: String = facts.name.chars().map(plain).take(LETTERS).collect();
    format!("{:0digits$}-{name}", facts.index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::{FileKind, LocalTime};
    use crate::sample::{SampleFormat, StreamShape};

    fn facts(name: &str) -> HeadFacts {
        HeadFacts {
            kind: FileKind::Wav,
            shape: StreamShape { format: SampleFormat::S24, channels: 1, rate: 48_000 },
            name: name.to_owned(),
            take: "t".to_owned(),
            scene: String::new(),
            tape: String::new(),
            started: LocalTime { seconds: 0, nanos: 0 },
            start_frame: 0,
            index: 6,
            total: 120,
            uid: "ab".to_owned(),
        }
    }

    #[test]
    fn files_of_a_stream_are_in_order_by_name() {
        let name = |copy, later| stream_file_name(&facts("kick @1"), copy, later);
        assert_eq!(name(0, None), "007-kick__1.wav");
        assert_eq!(name(0, Some((95_629, 3))), "007-kick__1@000000095629-3.wav");
        let later = [None, Some((9, 40)), Some((95_629, 3)), Some((48_000_000, 11))];
        for copy in [0, 1] {
            let names: Vec<String> = later.iter().map(|it| name(copy, *it)).collect();
            assert!(names.is_sorted(), "{names:?}");
            assert!(names.iter().all(|it| is_stream_file_name(it, &facts("kick @1"))));
            assert!(!names.iter().any(|it| is_stream_file_name(it, &facts("kick"))));
        }
        for other in ["007-kick__1.wav.bak", "007-kick__1@9.wav", "007-kick__1-2.wav", "notes.txt"]
        {
            assert!(!is_stream_file_name(other, &facts("kick @1")), "{other}");
        }
    }
}
