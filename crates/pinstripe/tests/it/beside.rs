//! What the table of meetings (`ops::beside`) says, verb by verb: what is held by another process, and
//! how each verb ends that begins then.

use std::sync::Arc;
use std::time::Duration;

use pinstripe::beside::{Meeting, VERBS, VerbRole, beside};
use pinstripe::forget::{ForgetChoice, ForgetOptions};
use pinstripe::sessions::OpenSession;
use pinstripe::tag::{TagEdit, TagOptions};
use pinstripe::{
    Claim, FailureDetector, Store, forget, gc, key, member, repair, scrub, sessions, snapshots,
    tag, upgrade,
};
use pinstripe_base::error::{Kind, Result};
use pinstripe_member::session::Work;

use pinstripe_sim::{Ledger, NoWait, Site, backup, check, limits, new_slot, small_tree};

/// What another process has put on the members.
struct Held<'a> {
    session: Option<OpenSession<'a>>,
    _claim: Option<Claim>,
}

fn hold(store: &Store, role: VerbRole) -> Held<'_> {
    let work = match role {
        VerbRole::Writer => Work::Backup,
        VerbRole::Undeleter => Work::Undelete,
        VerbRole::Collector => Work::Collect,
        _ => return Held { session: None, _claim: Some(store.claim().unwrap()) },
    };
    let session = sessions::begin(store, work, [5; 16], Vec::new()).unwrap();
    Held { session: Some(session), _claim: None }
}

/// Runs a verb of the table.
fn run(site: &Site, verb: &str, store: &mut Store, forgotten: &str) -> Result<()> {
    let ledger = Ledger::new();
    let (monitor, limits) = (&ledger.monitor, limits());
    match verb {
        "backup" => backup(store, &site.source(), &ledger).map(drop),
        "forget" => {
            let names = ["latest".to_owned()];
            let choice = ForgetChoice::Named(&names);
            let options = ForgetOptions { allow_empty: true, ..ForgetOptions::new(choice) };
            forget::run(store, &options, monitor).map(drop)
        }
        "undelete" => forget::undelete(store, forgotten, monitor).map(drop),
        "gc" => {
            let options = gc::GcOptions {
                max_waste: 0.0,
                dry_run: false,
                wait: Duration::ZERO,
                limits,
                detector: Arc::new(FailureDetector::default()),
            };
            gc::run(store, &options, monitor).map(drop)
        }
        "scrub" => {
            let budget = scrub::Budget::default();
            let options = scrub::ScrubOptions { budget, rate: None, save_bytes: 1 << 30, limits };
            scrub::run(store, &options, monitor, &|_| {}).map(drop)
        }
        "repair" => repair::run(store, limits, monitor).map(drop),
        "member add" => member::add(store, &site.path("new"), true, monitor).map(drop),
        "member remove" => member::remove(store, 3, &limits, monitor).map(drop),
        "member replace" => {
            member::replace(store, 3, &site.path("new"), true, &limits, monitor).map(drop)
        }
        "member rebalance" => member::rebalance(store, false, &limits, monitor).map(drop),
        "upgrade" => upgrade::run(store, upgrade::Direction::Forward).map(drop),
        "tag" => {
            let tags = ["tagged".to_owned()];
            let options = TagOptions { tags: TagEdit::Add(&tags), comment: None, dry_run: false };
            tag::run(store, "latest", &options, &limits, monitor).map(drop)
        }
        "key add" => key::add(store, &new_slot()).map(drop),
        "key remove" => {
            key::add(store, &pinstripe_stripe::NewSlot { label: "gone".into(), ..new_slot() })?;
            key::remove(store, "gone").map(drop)
        }
        "key rotate" => key::rotate(store, &new_slot()).map(drop),
        "check" => {
            check(store, true, &ledger);
            Ok(())
        }
        "snapshots" => snapshots::run(store, monitor).map(drop),
        // Of the readers two are enough; a merge takes another half.
        _ => Ok(()),
    }
}

fn meets(at_work: VerbRole) {
    let site = Site::new(4, 1);
    small_tree(&site.source(), 1);
    let first = site.save().id.to_string();
    small_tree(&site.source(), 2);
    site.save();
    run(&site, "forget", &mut site.store(), "").unwrap();
    let forgotten = snapshots::run(&site.store(), &Ledger::new().monitor).unwrap();
    assert_eq!(forgotten.len(), 1, "{first} is kept");
    let image = site.image();
    for (verb, role) in VERBS {
        // A store of the newest format has nothing to upgrade.
        if role == VerbRole::Upgrader && at_work != VerbRole::Mover {
            continue;
        }
        site.put_image(&image);
        let other = site.open_elsewhere(0, Arc::new(NoWait)).unwrap();
        let held = hold(&other, at_work);
        let ended = run(&site, verb, &mut site.store(), "latest").map_err(|error| error.kind());
        match beside(at_work, role) {
            // It lays packs anew as a gc does, and this writer answers nothing.
            Meeting::OneMayEnd if (at_work, verb) == (VerbRole::Writer, "member remove") => {
                assert_eq!(ended, Err(Kind::Busy), "{verb}");
            }
            Meeting::Both | Meeting::OneMayEnd => assert_eq!(ended, Ok(()), "{verb}"),
            Meeting::Refused | Meeting::Waits => assert_eq!(ended, Err(Kind::Busy), "{verb}"),
            Meeting::EndsOther => {
                assert_eq!(ended, Ok(()), "{verb}");
                if let Some(session) = &held.session {
                    assert!(!session.stands(), "{verb} left the session");
                }
                assert_eq!(other.confirm_keys().unwrap_err().kind(), Kind::KeysChanged);
            }
        }
    }
}

#[test]
#[ignore = "with --all: it waits for 70 s"]
fn every_verb_beside_a_backup_ends_as_the_table_says() {
    meets(VerbRole::Writer);
}

#[test]
#[ignore = "with --all: it waits for 10 s"]
fn every_verb_beside_an_undelete_ends_as_the_table_says() {
    meets(VerbRole::Undeleter);
}

#[test]
fn every_verb_beside_a_gc_ends_as_the_table_says() {
    meets(VerbRole::Collector);
}

#[test]
fn every_verb_beside_a_mover_ends_as_the_table_says() {
    meets(VerbRole::Mover);
}
