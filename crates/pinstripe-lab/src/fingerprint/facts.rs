//! A fingerprint as named facts, so that two fingerprints can be compared.

use std::collections::BTreeMap;

use pinstripe_base::units::format_size;

use super::{DiskDescription, Fingerprint, Place};

/// The facts that may affect measured values, by name: `kernel`, `scheduler`, `mount options`. From
/// the second place on, the name ends with the number of the place: `scheduler (2)`.
pub type Facts = BTreeMap<String, String>;

/// The prefix of the facts about a place: its path.
pub const PLACE: &str = "place";

impl Fingerprint {
    /// All known facts except those that change by themselves, such as free space.
    pub fn facts(&self) -> Facts {
        let machine = &self.machine;
        let mut facts = Facts::from([
            ("processor".to_owned(), machine.processor.clone()),
            ("processors".to_owned(), machine.cores.to_string()),
            ("memory".to_owned(), format_size(machine.memory_bytes)),
            ("kernel".to_owned(), machine.kernel.clone()),
        ]);
        let known = [("host", &self.host), ("governor", &self.governor)];
        facts.extend(
            known.into_iter().filter_map(|(name, it)| Some((name.to_owned(), it.clone()?))),
        );
        facts.extend(self.page_cache.clone());
        for (at, place) in self.places.iter().enumerate() {
            let named = |(name, value): (&str, String)| match at {
                0 => (name.to_owned(), value),
                _ => (format!("{name} ({})", at + 1), value),
            };
            facts.extend(of_place(place).into_iter().map(named));
        }
        facts
    }
}

fn of_place(place: &Place) -> Vec<(&str, String)> {
    let mut facts = vec![(PLACE, place.path.clone())];
    let known = [("file system", &place.file_system), ("mount options", &place.mount_options)];
    facts.extend(known.into_iter().filter_map(|(name, it)| Some((name, it.clone()?))));
    facts.extend(place.disk.iter().flat_map(of_disk));
    facts
}

fn of_disk(disk: &DiskDescription) -> Vec<(&str, String)> {
    let DiskDescription { name, model, firmware, identity, bytes, settings, is_rotational: _ } =
        disk;
    let known = [
        ("disk", Some(name.clone())),
        ("model", model.clone()),
        ("firmware", firmware.clone()),
        ("disk's identity", identity.clone()),
        ("disk's size", bytes.map(format_size)),
    ];
    let known = known.into_iter().filter_map(|(name, it)| Some((name, it?)));
    let settings = settings.iter().map(|(name, value)| (name.as_str(), value.clone()));
    known.chain(settings).collect()
}

/// Describes the differences for people, for example `kernel: before 6.1, now 6.12`.
pub fn differences(before: &Facts, now: &Facts) -> Vec<String> {
    let new = now.keys().filter(|name| !before.contains_key(*name));
    let names = before.keys().chain(new).filter(|name| before.get(*name) != now.get(*name));
    let shown = |it: Option<&String>| it.map_or("nothing".to_owned(), String::clone);
    names
        .map(|name| {
            format!("{name}: before {}, now {}", shown(before.get(name)), shown(now.get(name)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_of_several_places_are_told_apart_and_compared() {
        let print = Fingerprint::take(&[std::env::temp_dir(), "/".into()]);
        let facts = print.facts();
        assert_eq!(facts["place (2)"], "/");
        assert_eq!(facts["kernel"], print.machine.kernel);
        assert_eq!(differences(&facts, &facts), [] as [&str; 0]);
        let mut other = facts.clone();
        other.insert("kernel".to_owned(), "9.9".to_owned());
        other.insert("governor".to_owned(), "made up".to_owned());
        other.remove("place (2)");
        let found = differences(&facts, &other);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found.iter().any(|it| it.ends_with(", now 9.9")), "{found:?}");
        assert!(found.contains(&"place (2): before /, now nothing".to_owned()), "{found:?}");
    }
}
