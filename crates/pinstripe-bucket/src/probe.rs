//! Tests whether an endpoint has the properties on which the store's commits depend.

use futures_util::future::{join_all, join5};
use object_store::path::Path as Key;
use object_store::{GetRange, PutPayload};
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_member::label::{MemberAbility, MemberFacts};

use crate::endpoint::Load;
use crate::fault::Fault;
use crate::inner::Inner;
use crate::key;
use crate::locks::{BucketLock, RankedMutex};
use crate::session::Session;
use crate::signed::Ask;

/// The number of concurrent creations of one name in a race.
const RACERS: usize = 8;
/// The number of races of a full probe.
const ROUNDS: usize = 30;
/// The number of races of the short probe before a member joins.
const ROUNDS_SHORT: usize = 3;
/// The number of puts and deletes that are checked in a listing.
const LOOKS: usize = 20;
const LOOKS_SHORT: usize = 2;

/// One property of an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ability {
    /// The name of the property, in a few words.
    pub what: &'static str,
    /// Whether the endpoint has the property.
    pub is_there: bool,
    /// Whether a store with several writing hosts needs the property.
    pub is_needed: bool,
    /// The observation, such as `30 of 30 races had one winner`.
    pub seen: String,
}

/// The properties of an endpoint.
#[derive(Debug)]
pub struct ProbeReport {
    /// The tested properties, one for each test.
    pub abilities: Vec<Ability>,
    /// The error about missing permissions, if these prevented some tests.
    pub refused: Option<Error>,
}

impl ProbeReport {
    /// The first property that is needed and that the endpoint lacks.
    #[must_use]
    pub fn missing(&self) -> Option<&Ability> {
        self.abilities.iter().find(|ability| ability.is_needed && !ability.is_there)
    }
}

/// Finds the facts for the label of a new member in a few requests. Verifies that exactly one of
/// several concurrent creations of an object succeeds. With `allows_one_writer`, it is not an error
/// if several succeed: writers then detect each other by listings.
///
/// # Errors
/// Fails with [`Kind::NoOneWinner`] when several succeed; with the errors of the endpoint.
pub fn survey(member: &Inner, allows_one_writer: bool) -> Result<MemberFacts> {
    let trial = Trial::new(member);
    let tried = member.runtime.block_on(async {
        let (raced, listed) = (trial.races(ROUNDS_SHORT), trial.listing(LOOKS_SHORT));
        let all = join5(raced, listed, trial.ranges(), versions(member), locks(member));
        let (raced, listed, ranges, versions, locks) = all.await;
        Ok((raced?.0, listed?, ranges?, versions?, locks?))
    });
    let tried = tried.map_err(|fault: Fault| trial.failed(&fault))?;
    if let Some(refused) = trial.refused() {
        return Err(refused);
    }
    let (raced, [put, delete], [plain, ended], versions, locks) = tried;
    let has_one_winner = raced == ROUNDS_SHORT;
    if !has_one_winner && !allows_one_writer {
        return Err(no_one_winner(member, raced));
    }
    if !has_one_winner && !put.is_there {
        return Err(no_lists(member, &put));
    }
    if !plain.is_there {
        return Err(no_ranges(member));
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
    let what =
        "this endpoint lets several writers create the same object (it lacks create-if-absent)";
    Error::new(Kind::NoOneWinner, what)
        .at(member.place.path())
        .expected(
            "one successful writer in each race",
            format!("{raced} of {ROUNDS_SHORT} races had one successful writer"),
        )
        .advice(
            "backups of two writers could overwrite each other at this endpoint: use another \
             endpoint, or allow only one writer at a time with --one-writer",
        )
}

fn no_ranges(member: &Inner) -> Error {
    let what = "this endpoint does not return the requested part of an object";
    Error::new(Kind::NoOneWinner, what)
        .at(member.place.path())
        .expected("the requested 4 bytes of an object of 10 bytes", "another answer")
        .advice(
            "backups at this endpoint could not be restored: use another endpoint, or check the \
             cache or proxy in front of this endpoint",
        )
}

fn no_lists(member: &Inner, put: &Ability) -> Error {
    let what = "this endpoint lacks create-if-absent, and its listings omit objects that were just \
                written";
    Error::new(Kind::NoOneWinner, what)
        .at(member.place.path())
        .expected("every written object in the listing that follows", &put.seen)
        .advice("at this endpoint, a writer could not detect another writer: use another endpoint")
}

/// Whether the bucket keeps versions; `None` if the endpoint does not report it.
async fn versions(member: &Inner) -> Result<Option<bool>, Fault> {
    said(member, "versioning", "<Status>Enabled</Status>").await
}

/// Whether objects of the bucket can be locked.
async fn locks(member: &Inner) -> Result<Option<bool>, Fault> {
    said(member, "object-lock", "<ObjectLockEnabled>Enabled</ObjectLockEnabled>").await
}

/// Whether a setting of the bucket contains these words.
async fn said(member: &Inner, setting: &'static str, words: &str) -> Result<Option<bool>, Fault> {
    let ask = Ask { method: "GET", query: vec![(setting, String::new())], ..Ask::default() };
    match member.session.ask(Load::default(), &ask).await {
        Ok(text) => Ok(Some(text.contains(words))),
        Err(Fault::Missing) => Ok(Some(false)),
        // Some endpoints do not support the request, and some keys may not send it.
        Err(Fault::Unknown | Fault::Refused(_) | Fault::Odd(_)) => Ok(None),
        Err(fault) => Err(fault),
    }
}

/// Runs all tests. Makes all tests; missing permissions are reported in a line of their own.
///
/// # Errors
/// Fails with the errors of the endpoint.
pub fn run(member: &Inner) -> Result<ProbeReport> {
    let trial = Trial::new(member);
    let tried = member.runtime.block_on(async {
        let raced = trial.races(ROUNDS).await;
        let mut abilities = vec![trial.line(
            RACED,
            true,
            raced.map(|(won, of)| Ability {
                what: RACED,
                is_there: won == of,
                is_needed: true,
                seen: format!("{won} of {of} races had one successful writer"),
            }),
        )?];
        match trial.listing(LOOKS).await {
            Ok(both) => abilities.extend(both),
            refused => {
                let line = refused.map(|[put, _]| put);
                abilities.push(trial.line(LISTED, true, line)?);
            }
        }
        match trial.ranges().await {
            Ok(both) => abilities.extend(both),
            refused => {
                let line = refused.map(|[plain, _]| plain);
                abilities.push(trial.line(PLAIN, true, line)?);
            }
        }
        abilities.push(setting("old versions", versions(member).await?));
        abilities.push(setting("object lock", locks(member).await?));
        Ok(abilities)
    });
    let abilities = tried.map_err(|fault: Fault| trial.failed(&fault))?;
    Ok(ProbeReport { abilities, refused: trial.refused() })
}

const RACED: &str = "create-if-absent with 8 concurrent writers";
const LISTED: &str = "listings after a put";
const PLAIN: &str = "ranges of an object";
const ENDED: &str = "ranges counted from the end of an object";

/// The tests on a member, and the objects that they left behind because nothing may be deleted.
struct Trial<'a> {
    member: &'a Inner,
    left: RankedMutex<Vec<Key>>,
    /// The first refusal.
    refused: RankedMutex<Option<Fault>>,
}

impl<'a> Trial<'a> {
    fn new(member: &'a Inner) -> Self {
        Trial {
            member,
            left: RankedMutex::new(BucketLock::Left, Vec::new()),
            refused: RankedMutex::new(BucketLock::Refused, None),
        }
    }

    /// Makes a line of the report; a refusal of the endpoint becomes a missing property.
    fn line(
        &self,
        what: &'static str,
        is_needed: bool,
        tried: Result<Ability, Fault>,
    ) -> Result<Ability, Fault> {
        match tried {
            Err(Fault::Refused(refusal)) => {
                let seen = format!("refused: {refusal}");
                self.refused.lock().get_or_insert(Fault::Refused(refusal));
                Ok(Ability { what, is_there: false, is_needed, seen })
            }
            tried => tried,
        }
    }

    /// Removes an object; records an object that may not be removed.
    async fn remove(&self, key: &Key) -> Result<(), Fault> {
        match self.member.session.delete(key).await {
            Err(fault @ Fault::Refused(_)) => {
                self.left.lock().push(key.clone());
                self.refused.lock().get_or_insert(fault);
                Ok(())
            }
            done => done,
        }
    }

    fn has_left(&self) -> bool {
        !self.left.lock().is_empty()
    }

    /// The error about a refused request, with the objects that were left behind.
    fn refused(&self) -> Option<Error> {
        let refused = self.refused.lock().clone();
        refused.map(|fault| self.failed(&fault))
    }

    fn failed(&self, fault: &Fault) -> Error {
        let error = self.member.session.error(fault, "probe", self.member.place.path());
        let left = self.left.lock();
        let Some(first) = left.first() else { return error };
        let advice = error.advice_text().unwrap_or_default().to_owned();
        let count = left.len();
        error.advice_instead(format!(
            "{advice}; test objects that the probe could not remove are still in the bucket \
             ({count}, for example {first}): remove these objects"
        ))
    }

    /// The number of races with exactly one winner whose bytes were stored, and the number of all
    /// races.
    async fn races(&self, rounds: usize) -> Result<(usize, usize), Fault> {
        let mut sound = 0;
        for round in 1..=rounds {
            let key = key::fresh(&self.member.place);
            let raced = race(&self.member.session, &key).await;
            self.remove(&key).await?;
            sound += usize::from(raced?);
            // Each further race would leave an object.
            if self.has_left() {
                return Ok((sound, round));
            }
        }
        Ok((sound, rounds))
    }

    /// Whether the next listing shows each put and each deletion.
    async fn listing(&self, looks: usize) -> Result<[Ability; 2], Fault> {
        let Inner { session, place, .. } = self.member;
        let prefix = Key::from(place.prefix());
        let (mut seen_put, mut seen_delete, mut puts) = (0, 0, 0);
        for _ in 0..looks {
            let key = key::fresh(place);
            session.put(&key, &PutPayload::from(b"probe".to_vec()), None).await?;
            let is_listed = |found: Vec<()>| !found.is_empty();
            let find =
                || session.list(&prefix, usize::MAX, |it| (it.location == key).then_some(()));
            let listed = find().await;
            let deleted = self.remove(&key).await;
            (puts, seen_put) = (puts + 1, seen_put + usize::from(is_listed(listed?)));
            deleted?;
            if self.has_left() {
                break;
            }
            let mut is_gone = !is_listed(find().await?);
            // A PUT that was sent twice may have been stored once more, after the deletion: then
            // the listing was right.
            if !is_gone && session.get(&key, None, 64).await.is_ok() {
                session.delete(&key).await?;
                is_gone = !is_listed(find().await?);
            }
            seen_delete += usize::from(is_gone);
        }
        let ability = |what, seen, of| Ability {
            what,
            is_there: seen == of,
            is_needed: true,
            seen: format!("{seen} of {of} listings were complete"),
        };
        let mut deleted = ability("listings after a delete", seen_delete, looks);
        if self.has_left() {
            deleted.seen = "not tested: deletion is not permitted".to_owned();
        }
        Ok([ability(LISTED, seen_put, puts), deleted])
    }

    /// Whether a request gets a range of an object, and one counted from its end.
    async fn ranges(&self) -> Result<[Ability; 2], Fault> {
        let session = &self.member.session;
        let key = key::fresh(&self.member.place);
        session.put(&key, &PutPayload::from(b"0123456789".to_vec()), None).await?;
        let plain = session.get(&key, Some(GetRange::Bounded(2..6)), 4).await;
        let ended = session.get(&key, Some(GetRange::Suffix(4)), 4).await;
        self.remove(&key).await?;
        if let Err(fault) = &plain
            && (fault.is_silence() || matches!(fault, Fault::Refused(_)))
        {
            return Err(fault.clone());
        }
        let is_plain = plain.is_ok_and(|got| got.bytes == b"2345" && got.object_bytes == 10);
        let is_ended = ended.is_ok_and(|got| got.bytes == b"6789" && got.object_bytes == 10);
        let seen = if is_plain {
            "the requested bytes were returned"
        } else {
            "the requested bytes were not returned"
        };
        let plain =
            Ability { what: PLAIN, is_there: is_plain, is_needed: true, seen: seen.to_owned() };
        let seen =
            if is_ended { "the end of an object was returned by one request" } else { "refused" };
        let ended =
            Ability { what: ENDED, is_there: is_ended, is_needed: false, seen: seen.to_owned() };
        Ok([plain, ended])
    }
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
            // The endpoint does not support the condition.
            Err(Fault::Refused(refusal)) if refusal.is_not_implemented() => return Ok(false),
            Err(fault) => return Err(fault),
        }
    }
    let there = match session.get(key, None, 64).await {
        Ok(got) => got.bytes,
        // The endpoint reported success, but the object is missing.
        Err(Fault::Missing) => return Ok(false),
        Err(fault) => return Err(fault),
    };
    Ok(matches!(winners[..], [winner] if there == bytes(winner)))
}

/// A line of the report for a setting of the bucket.
fn setting(what: &'static str, said: Option<bool>) -> Ability {
    let seen = match said {
        Some(true) => "the bucket has this setting",
        Some(false) => "the bucket does not have this setting",
        None => "the endpoint does not report this setting",
    };
    Ability { what, is_there: said == Some(true), is_needed: false, seen: seen.to_owned() }
}
