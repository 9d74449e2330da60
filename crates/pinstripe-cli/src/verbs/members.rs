//! `pinstripe members`: lists the members of the store, their places and their content.

use pinstripe::members::MemberStatus;
use pinstripe::{MemberSlot, members};
use pinstripe_base::error::Result;
use pinstripe_base::units::{format_count, format_size};
use pinstripe_member::label::MemberAbility;

use super::init;
use crate::escape;
use crate::event::Event;
use crate::message::{counted, facts};
use crate::run::unlock::SHOWS_LESS;
use crate::run::{Ending, Run};
use crate::table::{self, Side};

/// List the members of the store, with their state, their amount of data and their location
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe members
  pinstripe members --store /mnt/b/store --json")]
pub struct MembersArgs {}

const HEAD: [(&str, Side); 6] = [
    ("member", Side::Right),
    ("state", Side::Left),
    ("packs", Side::Right),
    ("stored", Side::Right),
    ("free", Side::Right),
    ("place", Side::Left),
];

impl MembersArgs {
    /// Prints the list.
    ///
    /// # Errors
    /// Fails with the errors of [`members::run`].
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let store = run.open_keyless(SHOWS_LESS)?;
        let states = members::run(&store)?;
        let left = members::redundancy(&store, &run.monitor)?;
        for state in &states {
            run.screen.event(&event(state, &store.member_slots[state.member]))?;
        }
        let short = store.config.store.short();
        let members = counted(states.len() as u64, "member");
        let parity = match store.config.parity {
            0 => "without parity".to_owned(),
            parity => format!("with parity {parity}"),
        };
        let settings = init::settings(&store.config);
        run.screen.row(&format!("store {short}: {members} {parity}; {settings}"))?;
        let row = |state| row(state, &store.member_slots[state.member]);
        let rows: Vec<_> = states.iter().map(row).collect();
        for line in table::lines(&HEAD, &rows) {
            run.screen.row(&line)?;
        }
        if store.config.parity > 0 {
            run.screen.row(&match left {
                Some(left) => left.describe(),
                None => {
                    "it can be determined only with the key how many members may be lost".to_owned()
                }
            })?;
        }
        let absent = states.iter().filter(|state| !state.present).count();
        Ok(Ending::done(init::facts(&store.config, states.len()).with("absent", absent)))
    }
}

fn row(state: &MemberStatus, slot: &MemberSlot) -> Vec<String> {
    let mut place = escape::path(&state.place);
    let unknown = || "-".to_owned();
    if !state.present {
        if let Some(absence) = &slot.absence {
            place += &format!(" ({})", facts(absence));
        }
        let number = state.member.to_string();
        return vec![number, "absent".to_owned(), unknown(), unknown(), unknown(), place];
    }
    vec![
        state.member.to_string(),
        match (state.leaving, state.full) {
            (true, _) => "leaving",
            (false, true) => "full",
            (false, false) => "present",
        }
        .to_owned(),
        format_count(state.packs),
        format_size(state.stored_bytes),
        state.free_bytes.map_or_else(unknown, format_size),
        place,
    ]
}

fn event(state: &MemberStatus, slot: &MemberSlot) -> Event {
    let facts = slot.row.as_ref().map(|row| row.facts).unwrap_or_default();
    let found = |is_there: bool| -> Vec<_> {
        let all = MemberAbility::ALL.into_iter();
        all.filter(|it| facts.knows(*it) == Some(is_there)).map(MemberAbility::name).collect()
    };
    let (able, unable) = (found(true), found(false));
    Event::new("member")
        .with("member", state.member)
        .with_path("place", &state.place)
        .with("present", state.present)
        .with("leaving", state.leaving)
        .with("full", state.full)
        .with_some("absence", state.absence.as_deref())
        .with("packs", state.packs)
        .with("stored_bytes", state.stored_bytes)
        .with_some("free_bytes", state.free_bytes)
        .with_some("able", (!able.is_empty()).then_some(able))
        .with_some("unable", (!unable.is_empty()).then_some(unable))
        .with_some("retain_seconds", facts.retention.map(|retention| retention.seconds))
}
