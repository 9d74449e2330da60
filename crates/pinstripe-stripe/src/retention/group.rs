//! Groups of snapshots: the rules are applied to each group separately.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use super::Candidate;

/// The properties that the snapshots of one group have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupBy {
    /// The host.
    pub host: bool,
    /// The list of paths.
    pub paths: bool,
    /// The set of tags.
    pub tags: bool,
}

/// The word for [`GroupBy::NOTHING`]: an empty text would be a variable that a script did not set.
const NONE: &str = "none";

impl GroupBy {
    /// All snapshots are one group.
    pub const NOTHING: GroupBy = GroupBy { host: false, paths: false, tags: false };
}

impl Default for GroupBy {
    fn default() -> Self {
        GroupBy { host: true, paths: true, tags: false }
    }
}

impl FromStr for GroupBy {
    type Err = String;

    /// Reads words separated by commas; `none` is [`GroupBy::NOTHING`].
    fn from_str(text: &str) -> Result<Self, String> {
        let mut by = GroupBy::NOTHING;
        if text == NONE {
            return Ok(by);
        }
        for word in text.split(',') {
            match word {
                "host" | "hosts" => by.host = true,
                "path" | "paths" => by.paths = true,
                "tag" | "tags" => by.tags = true,
                _ => {
                    return Err(format!(
                        "snapshots cannot be grouped by '{word}'; write host, paths and tags, \
                         separated by commas, or {NONE}"
                    ));
                }
            }
        }
        Ok(by)
    }
}

impl fmt::Display for GroupBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = [(self.host, "host"), (self.paths, "paths"), (self.tags, "tags")];
        let words: Vec<_> = words.iter().filter(|(is_in, _)| *is_in).map(|(_, it)| *it).collect();
        f.write_str(&if words.is_empty() { NONE.to_owned() } else { words.join(",") })
    }
}

/// What the snapshots of a group have in common; `None` is a property that may differ.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupKey {
    /// The host that was backed up.
    pub host: Option<Vec<u8>>,
    /// The paths that were backed up.
    pub sources: Option<Vec<Vec<u8>>>,
    /// The tags, sorted, each once.
    pub tags: Option<Vec<String>>,
}

impl GroupKey {
    fn of(candidate: &Candidate, by: GroupBy) -> GroupKey {
        let tags = || {
            let mut tags = candidate.tags.clone();
            tags.sort_unstable();
            tags.dedup();
            tags
        };
        GroupKey {
            host: by.host.then(|| candidate.host.clone()),
            sources: by.paths.then(|| candidate.sources.clone()),
            tags: by.tags.then(tags),
        }
    }
}

/// The snapshots of each group, by their position in a list.
pub type Groups = BTreeMap<GroupKey, Vec<usize>>;

/// Groups snapshots by some of their properties.
pub fn groups(candidates: &[Candidate], by: GroupBy) -> Groups {
    let mut groups = Groups::new();
    for (at, candidate) in candidates.iter().enumerate() {
        groups.entry(GroupKey::of(candidate, by)).or_default().push(at);
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(host: &str, path: &str, tags: &[&str]) -> Candidate {
        Candidate {
            created: (0, 0),
            host: host.into(),
            sources: vec![path.into()],
            tags: tags.iter().map(|&tag| tag.to_owned()).collect(),
            is_behind: false,
        }
    }

    fn grouped(by: &str, candidates: &[Candidate]) -> Vec<Vec<usize>> {
        groups(candidates, by.parse().unwrap()).into_values().collect()
    }

    #[test]
    fn each_subset_of_the_properties_makes_its_groups() {
        let all = [
            candidate("a", "etc", &["x", "y"]),
            candidate("a", "home", &["y", "x", "x"]),
            candidate("b", "etc", &[]),
            candidate("a", "etc", &[]),
        ];
        assert_eq!(grouped("none", &all), [[0, 1, 2, 3]]);
        assert_eq!(grouped("host", &all), [vec![0, 1, 3], vec![2]]);
        assert_eq!(grouped("paths", &all), [vec![0, 2, 3], vec![1]]);
        // The order of tags, and how often one was given, do not count.
        assert_eq!(grouped("tags", &all), [[2, 3], [0, 1]]);
        assert_eq!(grouped("host,paths", &all), [vec![0, 3], vec![1], vec![2]]);
        assert_eq!(grouped("tags,host", &all), [vec![3], vec![0, 1], vec![2]]);
        assert_eq!(grouped("host,paths,tags", &all).len(), 4);
        assert_eq!(groups(&all, GroupBy::default()), groups(&all, "host,paths".parse().unwrap()));
    }

    #[test]
    fn words_are_read_and_written_and_others_are_refused() {
        for text in ["none", "host", "paths", "tags", "host,paths", "host,tags", "host,paths,tags"]
        {
            assert_eq!(text.parse::<GroupBy>().unwrap().to_string(), text);
        }
        // As restic reads them.
        assert_eq!("tag,path,hosts".parse::<GroupBy>().unwrap().to_string(), "host,paths,tags");
        for wrong in ["hst", "host,", ",", "host paths", "Host", "", "none,host"] {
            let error = wrong.parse::<GroupBy>().unwrap_err();
            assert!(error.contains("separated by commas"), "{error}");
        }
    }
}
