//! The shortest part of a story that still fails: fewer operations, and ends that come earlier.

use std::fmt;

use pinstripe_sim::{Cut, End, Operation, Story};

/// Plays of one story while it is shortened, at most.
const PLAYS: usize = 500;

/// A part of a story: which of its operations as drawn, some of them with another end.
#[derive(Clone)]
pub struct Short {
    drawn: Story,
    kept: Vec<(usize, Operation)>,
}

impl Short {
    /// Leaves out operations, halves first, and then lets what is cut off end whole or earlier, as
    /// long as the story fails.
    pub fn of(story: &Story, fails: impl Fn(&Story) -> bool) -> Short {
        let kept = story.operations.iter().cloned().enumerate().collect();
        let mut short = Short { drawn: story.clone(), kept };
        let mut plays = 0;
        let mut fails = |tried: &Short| {
            plays += 1;
            plays <= PLAYS && fails(&tried.story())
        };
        let mut piece = short.kept.len().div_ceil(2);
        while piece > 0 {
            let (mut at, before) = (0, short.kept.len());
            while at < short.kept.len() {
                let mut tried = short.clone();
                tried.kept.drain(at..(at + piece).min(short.kept.len()));
                if fails(&tried) { short = tried } else { at += piece }
            }
            // Once more with single ones, until none can be left out.
            if piece > 1 || short.kept.len() == before {
                piece /= 2;
            }
        }
        for at in 0..short.kept.len() {
            while let Some(tried) = short.earlier(at).into_iter().find(|tried| fails(tried)) {
                short = tried;
            }
        }
        short
    }

    /// Reads what `Display` wrote.
    pub fn parse(story: &Story, text: &str) -> Option<Short> {
        let mut kept = Vec::new();
        for part in text.split(',') {
            let (number, end) =
                part.split_once('=').map_or((part, None), |(number, end)| (number, Some(end)));
            let number: usize = number.parse().ok()?;
            let mut operation = story.operations.get(number)?.clone();
            if let Some(text) = end {
                let end = end_of(&mut operation)?;
                *end = match text {
                    "whole" => End::Whole,
                    steps => after(*end, steps.parse().ok()?),
                };
            }
            kept.push((number, operation));
        }
        Some(Short { drawn: story.clone(), kept })
    }

    pub fn story(&self) -> Story {
        let operations = self.kept.iter().map(|(_, operation)| operation.clone()).collect();
        Story { operations, ..self.drawn.clone() }
    }

    /// The same with one operation that ends whole, or after fewer steps.
    fn earlier(&self, at: usize) -> Vec<Short> {
        let mut operation = self.kept[at].1.clone();
        let Some(end) = end_of(&mut operation).copied() else { return Vec::new() };
        let (End::Killed(cut) | End::PowerCut(cut, _)) = end else { return Vec::new() };
        let steps = cut.after;
        let fewer = [0, steps / 2, steps.saturating_sub(1)].into_iter().filter(|it| *it < steps);
        let ends = std::iter::once(End::Whole).chain(fewer.map(|steps| after(end, steps)));
        let with = |end: End| {
            let mut tried = self.clone();
            *end_of(&mut tried.kept[at].1).expect("it has one") = end;
            tried
        };
        ends.map(with).collect()
    }
}

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (number, operation)) in self.kept.iter().enumerate() {
            write!(f, "{}{number}", if at > 0 { "," } else { "" })?;
            let mut operation = operation.clone();
            let is_as_drawn = operation == self.drawn.operations[*number];
            match end_of(&mut operation).filter(|_| !is_as_drawn) {
                Some(End::Whole) => write!(f, "=whole")?,
                Some(End::Killed(cut) | End::PowerCut(cut, _)) => write!(f, "={}", cut.after)?,
                None => {}
            }
        }
        Ok(())
    }
}

/// The same end after so many of the steps that count for it.
fn after(end: End, after: u64) -> End {
    match end {
        End::PowerCut(cut, seed) => End::PowerCut(Cut { after, ..cut }, seed),
        End::Killed(cut) => End::Killed(Cut { after, ..cut }),
        End::Whole => End::Killed(Cut::after(after)),
    }
}

fn end_of(operation: &mut Operation) -> Option<&mut End> {
    match operation {
        Operation::Backup { end, .. }
        | Operation::Together { end, .. }
        | Operation::Replace { end }
        | Operation::Repair { end }
        | Operation::Scrub { end, .. }
        | Operation::Forget { end, .. }
        | Operation::ForgetByRule { end, .. }
        | Operation::Undelete { end, .. }
        | Operation::Collect { end, .. }
        | Operation::CollectBeside { end, .. }
        | Operation::AddMember { end }
        | Operation::RemoveMember { end, .. }
        | Operation::SwapMember { end, .. }
        | Operation::Rebalance { end }
        | Operation::Keys { end, .. } => Some(end),
        _ => None,
    }
}

#[test]
fn a_story_is_shortened_to_what_fails() {
    use pinstripe_member::ExtentKind;
    let backup = |end| Operation::Backup { source: 0, end };
    let operations = vec![
        Operation::Check,
        backup(End::Whole),
        backup(End::PowerCut(Cut::within(ExtentKind::Index, 100), 7)),
        Operation::KeepMember,
        Operation::Check,
        backup(End::Killed(Cut::after(50))),
    ];
    let story = Story { seed: 0, members: 2, parity: 1, operations };
    let fails = |tried: &Story| {
        let is_cut = |it: &Operation| {
            matches!(
                it,
                Operation::Backup { end: End::PowerCut(Cut { after: 12.., kind: Some(_) }, 7), .. }
            )
        };
        tried.operations.iter().any(is_cut) && tried.operations.contains(&Operation::KeepMember)
    };
    let short = Short::of(&story, fails);
    assert_eq!(short.to_string(), "2=12,3");
    assert!(fails(&short.story()));
    let again = Short::parse(&story, &short.to_string()).unwrap();
    assert_eq!(again.story().operations, short.story().operations);
    assert!(Short::parse(&story, "9").is_none() && Short::parse(&story, "0=3").is_none());
}
