//! What a server acknowledged is there after a power cut at any step of its disk.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pinstripe_base::error::{Kind, Result};
use pinstripe_member::{ExtentKind, ExtentName, Places, PowerCut, Replace, SharedMember};
use pinstripe_serve::TokenRole;

use crate::roles::name;
use crate::setup::{directory, start, volume};

/// The content of each extent that was acknowledged, and `None` for one that was deleted durably.
type Acknowledged = Vec<(ExtentName, Option<Vec<u8>>)>;

fn put_and_delete(member: &SharedMember) -> Acknowledged {
    let mut acknowledged = Acknowledged::new();
    let mut note = |done: Result<()>, name: ExtentName, content: Option<Vec<u8>>| {
        // A deletion without an answer may have happened.
        acknowledged.retain(|(known, _)| *known != name);
        if done.is_ok() {
            acknowledged.push((name, content));
        }
    };
    let pack = |byte: u8, bytes: usize| {
        let content = vec![byte; bytes];
        let mut writer = member.create(name(ExtentKind::Packs, byte), Replace::Never)?;
        content.chunks(70_000).try_for_each(|part| writer.append(part))?;
        writer.seal()
    };
    for kind in [ExtentKind::Sessions, ExtentKind::Snapshots, ExtentKind::Heartbeats] {
        note(member.put(name(kind, 1), b"small"), name(kind, 1), Some(b"small".to_vec()));
    }
    note(pack(2, 200_000), name(ExtentKind::Packs, 2), Some(vec![2; 200_000]));
    note(pack(3, 10), name(ExtentKind::Packs, 3), Some(vec![3; 10]));
    let gone = name(ExtentKind::Sessions, 1);
    note(member.delete(gone).and_then(|()| member.sync()), gone, None);
    acknowledged
}

fn check(place: &Path, acknowledged: Acknowledged, what: &str) {
    let member = directory(place);
    for (name, content) in acknowledged {
        match content {
            Some(content) => {
                let mut read = vec![0; content.len()];
                member
                    .read_at(name, 0, &mut read)
                    .unwrap_or_else(|error| panic!("{what}: {error}"));
                assert!(read == content, "{what}: {name}");
            }
            None => {
                assert_eq!(member.len(name).unwrap_err().kind(), Kind::NotFound, "{what}: {name}")
            }
        }
    }
}

#[test]
fn acknowledged_objects_survive_a_power_cut_at_every_step() {
    for step in 0.. {
        let state = tempfile::tempdir().unwrap();
        let place = state.path().join("member");
        Places::default().create(&place).unwrap();
        let power = Arc::new(PowerCut::new(step));
        let places = Places { steps: Some(power.clone()), ..Places::default() };
        let served = volume(false, vec![places.open(&place).unwrap()]);
        let server = start(state, served, "127.0.0.1:0".parse().unwrap());
        let (_, connection) = server.token("ant", TokenRole::Admin);
        let client = server.member_within(&connection, 0, Duration::ZERO);
        let acknowledged = put_and_delete(&client);
        let is_complete = !power.is_off();
        let state = server.stop();
        power.after_power_cut(step).unwrap();
        check(&place, acknowledged.clone(), &format!("step {step}"));
        drop(state);
        if is_complete {
            assert!(step > 20 && acknowledged.len() == 5, "{step} {}", acknowledged.len());
            return;
        }
    }
}
