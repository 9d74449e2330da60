//! `backup --explain PATH`: reports which rule decides whether a path is saved.

use std::path::Path;

use pinstripe::{Explanation, Reason, RuleOrigin, backup};
use pinstripe_base::error::Result;

use crate::escape;
use crate::event::Event;
use crate::run::{Ending, Run};

/// Explains what a backup with these options would do with a path.
///
/// # Errors
/// Fails with the errors of [`backup::explain`].
pub(super) fn run(run: &Run, options: &backup::BackupOptions, path: &Path) -> Result<Ending> {
    let found = backup::explain(options, path, &run.monitor)?;
    let word = if found.is_saved { "saved" } else { "excluded" };
    run.screen.row(&format!("{word}: {}", sentence(&found)))?;
    run.screen.event(&event(&found))?;
    Ok(Ending::done(Event::default().with("saved", found.is_saved)))
}

fn sentence(found: &Explanation) -> String {
    let at = escape::name(if found.at.is_empty() { b"/" } else { &found.at });
    match &found.reason {
        Reason::Nothing => format!("no rule matches {at}"),
        Reason::Named => format!("{at} is one of the given paths"),
        Reason::OnTheWay => {
            format!("{at} leads to one of the given paths, so only the directory itself is saved")
        }
        Reason::Rule(rule) => match &rule.origin {
            RuleOrigin::Own(reason) => format!("{at}: {reason}"),
            origin => {
                let place = escape::name(origin.to_string().as_bytes());
                format!("{at} matches '{}' ({place})", escape::name(&rule.text))
            }
        },
        Reason::Tag(name) => {
            format!("{at} contains {}, so only this is saved in it", escape::name(name.to_bytes()))
        }
        Reason::FileSystem => format!("{at} is a mount point, and --one-file-system is given"),
        Reason::Loop => format!("{at} contains itself through a mount"),
        Reason::Larger => format!("{at} is larger than --exclude-larger-than allows"),
        Reason::Older => format!("{at} is older than --exclude-older-than allows"),
    }
}

fn event(found: &Explanation) -> Event {
    let event = Event::new("explanation").with("saved", found.is_saved);
    let at: &[u8] = if found.at.is_empty() { b"/" } else { &found.at };
    let event = event.with("reason", found.reason.word()).with_name("at", at);
    match &found.reason {
        Reason::Tag(name) => event.with_name("tag", name.to_bytes()),
        Reason::Rule(rule) => {
            let event = event.with_name("rule", &rule.text).with("ignores_case", rule.ignores_case);
            match &rule.origin {
                RuleOrigin::Option(name) => event.with("option", *name),
                RuleOrigin::Config(key) => event.with("key", *key),
                RuleOrigin::Own(reason) => event.with("why", *reason),
                RuleOrigin::List(file, line) => event.with_path("file", file).with("line", *line),
                RuleOrigin::Ignore(file, line) => {
                    event.with_path("ignore_file", file).with("line", *line)
                }
            }
        }
        _ => event,
    }
}
