//! What an endpoint can, found out by trying: the properties that the store's commits stand on.

use futures_util::future::{join_all, join5};
use object_store::path::Path as Key;
use object_store::{GetRange, PutPayload};
use pinstripe::format::label::{MemberAbility, MemberFacts};
use pinstripe_base::error::{Error, Kind, Result};

use crate::endpoint::Load;
use crate::fault::Fault;
use crate::key;
use crate::member::Inner;
use crate::session::Session;
use crate::signed::Ask;

/// Racers of one name.
const RACERS: usize = 8;
/// Races of a whole probe, and of the short one that stands before a new member.
const ROUNDS: usize = 30;
const ROUNDS_SHORT: usize = 3;
/// Puts and deletes that are looked for in a listing.
const LOOKS: usize = 20;
const LOOKS_SHORT: usize = 2;

/// One thing that an endpoint can or cannot do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ability {
    /// In a few words.
    pub what: &'static str,
    /// Whether it does.
    pub is_there: bool,
    /// Whether a store that several hosts write needs it.
    pub is_needed: bool,
    /// What was seen, as in `30 of 30 races had one winner`.
    pub seen: String,
}

/// What an endpoint can.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeReport {
    /// One line for each thing tried.
    pub abilities: Vec<Ability>,
}

impl ProbeReport {
    /// The first needed thing that is missing.
    #[must_use]
    pub fn missing(&self) -> Option<&Ability> {
        self.abilities.iter().find(|ability| ability.is_needed && !ability.is_there)
    }
}

/// Finds out what stands in the label of a new member, in a few requests, and makes sure that of
/// several that make one object the endpoint lets one win; where it `allows_one_writer`, that is no
/// error, and writers find each other by listings.
///
/// # Errors
/// [`Kind::NoOneWinner`] when it does not; those of the endpoint.
pub fn survey(member: &Inner, allows_one_writer: bool) -> Result<MemberFacts> {
    let tried = member.runtime.block_on(async {
        let (raced, listed) = (races(member, ROUNDS_SHORT), listing(member, LOOKS_SHORT));
        let all = join5(raced, listed, suffix(member), versions(member), locks(member));
        let (raced, listed, ended, versions, locks) = all.await;
        Ok((raced?, listed?, ended?, versions?, locks?))
    });
    let (raced, [put, delete], ended, versions, locks) =
        tried.map_err(|fault: Fault| failed(member, &fault))?;
    let has_one_winner = raced == ROUNDS_SHORT;
    if !has_one_winner && !allows_one_writer {
        return Err(no_one_winner(member, raced));
    }
    if !has_one_winner && !put.is_there {
        return Err(no_lists(member, &put));
    }
    let facts = MemberFacts::default()
        .with(MemberAbility::CreateIfAbsent, has_one_winner)
        .with(MemberAbility::ListAfterPut, put.is_there)
        .with(MemberAbility::ListAfterDelete, delete.is_there)
        .with(MemberAbility::RangesFromTheEnd, ended.is_there);
    let said = [(MemberAbility::Versions, versions), (MemberAbility::ObjectLock, locks)];
    let said = said.into_iter().filter_map(|(ability, is_there)| Some((ability, is_there?)));
    Ok(said.fold(facts, |facts, (ability, is_there)| facts.with(ability, is_there)))
}

fn no_one_winner(member: &Inner, raced: usize) -> Error {
    let what = "this endpoint lets several writers make the same object (no create-if-absent)";
    Error::new(Kind::NoOneWinner, what)
        .at(member.place.path())
        .expected("one winner in each race", format!("{raced} of {ROUNDS_SHORT} races had one"))
        .advice(
            "backups of two writers could overwrite each other there: use another endpoint, or let \
             only one at a time write, with --one-writer",
        )
}

fn no_lists(member: &Inner, put: &Ability) -> Error {
    let what = "this endpoint has no create-if-absent, and its listings lack what was just put";
    Error::new(Kind::NoOneWinner, what)
        .at(member.place.path())
        .expected("that each put is listed", &put.seen)
        .advice("a writer could not see that another one is at work: use another endpoint")
}

/// Whether the bucket keeps versions; `None` where it does not say.
async fn versions(member: &Inner) -> Result<Option<bool>, Fault> {
    said(member, "versioning", "<Status>Enabled</Status>").await
}

/// Whether objects of the bucket can be locked.
async fn locks(member: &Inner) -> Result<Option<bool>, Fault> {
    said(member, "object-lock", "<ObjectLockEnabled>Enabled</ObjectLockEnabled>").await
}

/// Whether a setting of the bucket says this.
async fn said(member: &Inner, setting: &'static str, words: &str) -> Result<Option<bool>, Fault> {
    let ask = Ask { method: "GET", query: vec![(setting, String::new())], ..Ask::default() };
    match member.session.ask(Load::default(), &ask).await {
        Ok(text) => Ok(Some(text.contains(words))),
        Err(Fault::Missing) => Ok(Some(false)),
        // Not every endpoint knows of it, nor every key may ask.
        Err(Fault::Unknown | Fault::Refused(_) | Fault::Odd(_)) => Ok(None),
        Err(fault) => Err(fault),
    }
}

/// Tries everything.
///
/// # Errors
/// Those of the endpoint.
pub fn run(member: &Inner) -> Result<ProbeReport> {
    let tried = member.runtime.block_on(async {
        let won = races(member, ROUNDS).await?;
        let mut abilities = vec![Ability {
            what: "create if absent, raced 8 ways",
            is_there: won == ROUNDS,
            is_needed: true,
            seen: format!("{won} of {ROUNDS} races had one winner"),
        }];
        abilities.extend(listing(member, LOOKS).await?);
        abilities.push(suffix(member).await?);
        abilities.push(setting("old versions", versions(member).await?));
        abilities.push(setting("object lock", locks(member).await?));
        Ok(abilities)
    });
    Ok(ProbeReport { abilities: tried.map_err(|fault| failed(member, &fault))? })
}

fn failed(member: &Inner, fault: &Fault) -> Error {
    member.session.error(fault, "probe", member.place.path())
}

/// The number of races that had one winner, whose bytes were there afterwards.
async fn races(member: &Inner, rounds: usize) -> Result<usize, Fault> {
    let mut sound = 0;
    for _ in 0..rounds {
        let key = key::fresh(&member.place);
        let raced = race(&member.session, &key).await;
        member.session.delete(&key).await?;
        sound += usize::from(raced?);
    }
    Ok(sound)
}

async fn race(session: &Session, key: &Key) -> Result<bool, Fault> {
    let bytes = |racer: usize| vec![racer as u8; 64];
    let racers = (0..RACERS).map(|racer| async move {
        session.create(key, &PutPayload::from(bytes(racer)), None).await
    });
    let mut winners = Vec::new();
    for (racer, put) in join_all(racers).await.into_iter().enumerate() {
        match put {
            Ok(_) => winners.push(racer),
            Err(Fault::Exists) => {}
            // It does not know the condition.
            Err(Fault::Refused(refusal)) if refusal.is_not_implemented() => return Ok(false),
            Err(fault) => return Err(fault),
        }
    }
    let there = match session.get(key, None, 64).await {
        Ok(got) => got.bytes,
        // It said that it was made.
        Err(Fault::Missing) => return Ok(false),
        Err(fault) => return Err(fault),
    };
    Ok(matches!(winners[..], [winner] if there == bytes(winner)))
}

/// Whether what was put and deleted is so in the next listing.
async fn listing(member: &Inner, looks: usize) -> Result<[Ability; 2], Fault> {
    let Inner { session, place, .. } = member;
    let prefix = Key::from(place.prefix());
    let (mut seen_put, mut seen_delete) = (0, 0);
    for _ in 0..looks {
        let key = key::fresh(&member.place);
        session.put(&key, &PutPayload::from(b"probe".to_vec()), None).await?;
        let is_listed = |found: Vec<()>| !found.is_empty();
        let find = || session.list(&prefix, usize::MAX, |it| (it.location == key).then_some(()));
        let listed = find().await;
        let deleted = session.delete(&key).await;
        seen_put += usize::from(is_listed(listed?));
        deleted?;
        let mut is_gone = !is_listed(find().await?);
        // A put that was sent twice may have landed once more, after the deletion: then the listing
        // was right.
        if !is_gone && session.get(&key, None, 64).await.is_ok() {
            session.delete(&key).await?;
            is_gone = !is_listed(find().await?);
        }
        seen_delete += usize::from(is_gone);
    }
    let ability = |what, seen| Ability {
        what,
        is_there: seen == looks,
        is_needed: true,
        seen: format!("{seen} of {looks} listings knew"),
    };
    Ok([ability("list after put", seen_put), ability("list after delete", seen_delete)])
}

/// What a bucket is set to.
fn setting(what: &'static str, said: Option<bool>) -> Ability {
    let seen = match said {
        Some(true) => "the bucket is set so",
        Some(false) => "the bucket is not set so",
        None => "the endpoint does not say",
    };
    Ability { what, is_there: said == Some(true), is_needed: false, seen: seen.to_owned() }
}

async fn suffix(member: &Inner) -> Result<Ability, Fault> {
    let session = &member.session;
    let key = key::fresh(&member.place);
    session.put(&key, &PutPayload::from(b"0123456789".to_vec()), None).await?;
    let got = session.get(&key, Some(GetRange::Suffix(4)), 4).await;
    session.delete(&key).await?;
    let is_there = got.is_ok_and(|got| got.bytes == b"6789" && got.object_bytes == 10);
    let seen = if is_there { "the end of an object in one request" } else { "refused" };
    Ok(Ability { what: "ranges from the end", is_there, is_needed: false, seen: seen.to_owned() })
}
