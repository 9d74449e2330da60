//! Label, keys, snapshot, session, steps of deletion, marks, scrub state, removed key slots and
//! heartbeats: any bytes, and any body in a sound frame. What is read is written again as it was.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pinstripe_member::envelope::{self, Object};
use pinstripe_member::forgotten::Mark;
use pinstripe_member::gc::GcObject;
use pinstripe_member::heartbeat::Heartbeat;
use pinstripe_member::keys::Keys;
use pinstripe_member::label::Label;
use pinstripe_member::removed_slot::RemovedSlot;
use pinstripe_member::scrub::ScrubState;
use pinstripe_member::session::Session;
use pinstripe_member::snapshot::Snapshot;

fuzz_target!(|input: (bool, u8, &[u8])| {
    let (framed, kind, bytes) = input;
    let objects = [
        Object::Label,
        Object::Keys,
        Object::Snapshot,
        Object::Session,
        Object::Gc,
        Object::Forgotten,
        Object::Scrub,
        Object::RemovedSlot,
        Object::Heartbeat,
    ];
    let object = objects[usize::from(kind) % objects.len()];
    let bytes = if framed { envelope::close(object, bytes) } else { bytes.to_vec() };
    let again = match object {
        Object::Label => Label::decode(&bytes).map(|label| label.encode()),
        Object::Keys => Keys::decode(&bytes).map(|keys| keys.encode()),
        Object::Snapshot => Snapshot::decode(&bytes).map(|snapshot| snapshot.encode()),
        Object::Session => Session::decode(&bytes).map(|session| session.encode()),
        Object::Gc => GcObject::decode(&bytes).map(|object| object.encode()),
        Object::Forgotten => Mark::decode(&bytes).map(|mark| mark.encode()),
        Object::Scrub => ScrubState::decode(&bytes).map(|state| state.encode()),
        Object::RemovedSlot => RemovedSlot::decode(&bytes).map(|removed| removed.encode()),
        Object::Heartbeat => Heartbeat::decode(&bytes).map(|heartbeat| heartbeat.encode()),
        _ => return,
    };
    assert!(again.is_err() || again.is_ok_and(|again| again == bytes));
});
