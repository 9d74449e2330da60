//! Defects that are known and not mended yet: a story that fails by one of them is counted, and is
//! no failure. Each entry goes with its defect.

use super::story::{Story, Trouble};
use super::verb::Verb;

/// The defect by which a story failed, if it is a known one.
pub fn defect(story: &Story, wrong: &str) -> Option<&'static str> {
    let has = |text: &str| wrong.contains(text);
    let acts = || story.scenes.iter().flat_map(|scene| &scene.acts);
    let troubled = |is_it: fn(&Trouble) -> bool| story.scenes.iter().any(|it| is_it(&it.trouble));
    let rotates = story.shape.is_sealed && acts().any(|act| act.verb == Verb::KeyRotate);
    let is_plain = !story.shape.is_sealed;
    let fails = troubled(|it| matches!(it, Trouble::Fails { .. } | Trouble::Hangs { .. }));
    let leaves = troubled(|it| {
        use Trouble::{Leaves, Returns, Stale};
        matches!(it, Leaves { .. } | Returns { .. } | Stale { .. })
    });
    let is_full = troubled(|it| matches!(it, Trouble::Full { .. }));
    let is_rotten = troubled(|it| matches!(it, Trouble::DiesBesideRot { .. }));
    let has_junk = troubled(|it| matches!(it, Trouble::Junk { .. }));
    let is_alone = story.shape.members == 1;
    let replaces = acts().any(|act| {
        matches!(act.verb, Verb::ReplaceLiving | Verb::ReplaceDead | Verb::RepairReplace)
    });
    let collects = acts().any(|act| act.verb == Verb::Gc);
    let is_undone = has("was forgotten, and is listed") || has("is gone");
    Some(match () {
        () if is_plain && has("deleted, and there again") => "H2 tombstones lose votes",
        () if is_plain && collects && has("reports a loss") => "H2 tombstones lose votes",
        () if is_plain && is_undone => "A7 marks lose votes",
        () if has("gc object") || has("session object") => "M3 junk in gc/ or sessions/",
        () if is_alone && replaces => "the only member is replaced beside others",
        () if is_rotten => "A3 a dead member and a rotten strip",
        () if is_full => "A2 a full member",
        () if has("ends with Unanswered") => "H1 a member that hangs",
        () if fails && has("ends with Io") => "H1 a member that fails",
        () if leaves && has("ends with NotFound") => "a member's directory goes away",
        () if has_junk && has("Corrupt") => "M3 junk in gc/ or sessions/",
        () if has_junk && (has("gc object") || has("session object")) => {
            "M3 junk in gc/ or sessions/"
        }
        () if has_junk && has("reports a loss") => "M1 junk on one member",
        () if has("'key add' ends with Exists") => "key add beside others",
        () if rotates => "A1 key rotate beside others",
        () => return None,
    })
}
