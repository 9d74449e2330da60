//! Defects that are known and not mended yet: a story that fails by one of them is counted, and is
//! no failure. Each entry goes with its defect.

use super::story::{Story, Trouble};
use super::verb::Verb;

/// The defect by which a story failed, if it is a known one.
pub fn defect(story: &Story, wrong: &str) -> Option<&'static str> {
    let has = |text: &str| wrong.contains(text);
    let acts = || story.scenes.iter().flat_map(|scene| &scene.acts);
    let troubled = |is_it: fn(&Trouble) -> bool| story.scenes.iter().any(|it| is_it(&it.trouble));
    let fails = troubled(|it| matches!(it, Trouble::Fails { .. }));
    let hangs = troubled(|it| matches!(it, Trouble::Hangs { .. }));
    let leaves = troubled(|it| {
        use Trouble::{Leaves, Returns, Stale};
        matches!(it, Leaves { .. } | Returns { .. } | Stale { .. })
    });
    let has_junk = troubled(|it| matches!(it, Trouble::Junk { is_on_all: true, .. }));
    let is_plain = !story.shape.is_sealed;
    let is_junk = troubled(|it| matches!(it, Trouble::Junk { .. }));
    let is_full = troubled(|it| matches!(it, Trouble::Full { .. }));
    let replaces = acts().any(|act| {
        matches!(act.verb, Verb::ReplaceLiving | Verb::ReplaceDead | Verb::RepairReplace)
    });
    Some(match () {
        () if replaces && has("' reports a loss") && !is_junk => {
            "a reader from before a member was replaced"
        }
        () if fails && has("ends with Io") => "a member that fails ends a verb with 1",
        () if hangs && has("ends with Unanswered") => "a member that hangs ends a verb with 1",
        () if leaves && has("ends with NotFound") => "a member's directory goes away: 11",
        () if has_junk && has("session object") => "junk in sessions/ of all members",
        () if is_plain && has("was forgotten, and is listed without") => {
            "a forget with a member away, when others are away later"
        }
        () if is_junk && has("reports a loss") => "junk that appears while the catalog is made",
        () if is_full && has("'backup") && has("ends with NoSpace") => "a full member, later",
        () => return None,
    })
}
