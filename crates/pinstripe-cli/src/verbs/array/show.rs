//! The display of arrays as aligned fields and as events.

use pinstripe_array::Detail;
use pinstripe_base::units::{KIB, format_size};

use crate::event::Event;

/// Formats `Name : value` lines with aligned colons, as mdadm does.
pub fn fields(fields: &[(&str, String)]) -> Vec<String> {
    let width = fields.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    fields.iter().map(|(name, value)| format!("{name:>width$} : {value}")).collect()
}

/// Formats a size as `1048576 (1.0 GiB)`: in KiB, as mdadm does, and in a readable unit.
pub fn blocks(bytes: u64) -> String {
    format!("{} ({})", bytes / KIB, format_size(bytes))
}

/// Adds all details of an array to an event.
pub fn event(event: Event, detail: &Detail) -> Event {
    event
        .with_fields(detail)
        .with("state", detail.state())
        .with("degraded", detail.degraded())
        .with("picture", detail.picture())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colons_stand_below_each_other() {
        let lines = fields(&[("Level", "raid5".into()), ("Chunk Size", "64K".into())]);
        assert_eq!(lines, ["     Level : raid5", "Chunk Size : 64K"]);
        assert_eq!(blocks(3 << 20), "3072 (3.0 MiB)");
    }
}
