//! The memory of a host about stores: it finds them by their other members, and never takes a store
//! in the clear for an encrypted one.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use pinstripe_member::keys::Keys;
use pinstripe_member::label::{Encryption, Label};

use crate::stand::{Ran, Stand, assert_same_tree};

/// A backup with a member away.
const DEGRADED: [i32; 2] = [3, 4];

fn run_with(stand: &Stand, line: &str, variables: &[(&str, &str)]) -> Ran {
    let mut command = stand.command(line);
    command.envs(variables.iter().copied());
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
}

/// The directory in which the stand's host keeps its memory.
fn memory(stand: &Stand) -> PathBuf {
    stand.path("home/.local/state/pinstripe/stores")
}

fn damage_label(stand: &Stand, member: &str) {
    let label = stand.path(member).join("pinstripe.member");
    let mut bytes = fs::read(&label).unwrap();
    bytes[40] ^= 1;
    fs::write(label, bytes).unwrap();
}

/// All that goes on daily, while the member that is named is not there.
#[track_caller]
fn assert_goes_on(stand: &Stand, variables: &[(&str, &str)], is_absent: bool) {
    let told = |ran: &Ran| {
        assert!(ran.err.contains("member 0"), "{}", ran.err);
        let advice = if is_absent { "member replace 0" } else { "pinstripe repair" };
        assert!(ran.err.contains(advice) && !ran.err.contains("init"), "{}", ran.err);
    };
    let backup = run_with(stand, "backup src", variables);
    let codes: &[i32] = if is_absent { &DEGRADED } else { &[0] };
    assert!(codes.contains(&backup.code), "{}: {}", backup.code, backup.err);
    told(&backup);
    let listed = run_with(stand, "snapshots", variables);
    assert_eq!(listed.code, 0, "{}", listed.err);
    told(&listed);
    let restored = run_with(stand, "restore latest:{}/src --to out", variables);
    assert_eq!(restored.code, 0, "{}", restored.err);
    told(&restored);
    assert_same_tree(&stand.path("src"), &stand.path("out"));
    fs::remove_dir_all(stand.path("out")).unwrap();
    let checked = run_with(stand, "check", variables);
    assert_eq!(checked.code, 10, "{}", checked.err);
    told(&checked);
}

/// The named member was a single point of failure: exit 11, and advice to make a new store.
#[test]
fn the_named_member_may_be_gone_empty_or_damaged() {
    let stand = Stand::with_store();
    let named = [("PINSTRIPE_STORE", "m0")];
    assert_eq!(run_with(&stand, "backup src -q", &named).code, 0);
    let (member, away) = (stand.path("m0"), stand.path("away"));
    fs::rename(&member, &away).unwrap();
    assert_goes_on(&stand, &named, true);
    // A mount point without its disk.
    fs::create_dir(&member).unwrap();
    assert_goes_on(&stand, &named, true);
    fs::remove_dir(&member).unwrap();
    fs::rename(&away, &member).unwrap();
    damage_label(&stand, "m0");
    assert_goes_on(&stand, &named, false);
    assert_eq!(run_with(&stand, "repair", &named).code, 0);
    let whole = run_with(&stand, "check --read-data", &named);
    assert_eq!((whole.code, whole.err.as_str()), (0, ""));
}

/// Without anything remembered, several places are enough: options, a list, the config file.
#[test]
fn a_store_is_named_by_several_members() {
    let stand = Stand::with_store();
    assert_eq!(stand.run("backup src --store m0 -q").code, 0);
    fs::remove_dir_all(memory(&stand)).unwrap();
    fs::rename(stand.path("m0"), stand.path("away")).unwrap();
    let dir = stand.path("").canonicalize().unwrap();
    let config = format!("[store.x]\nmember = ['{0}/m0', '{0}/m2']\n", dir.display());
    fs::write(stand.path("c.toml"), config).unwrap();
    let list = format!("{0}/m0:{0}/m3", dir.display());
    for (line, variables) in [
        ("snapshots --json --store m0 --store m1", &[][..]),
        ("snapshots --json", &[("PINSTRIPE_STORE", "m0:m1")]),
        ("snapshots --json", &[("PINSTRIPE_STORE", list.as_str())]),
        ("snapshots --json --config c.toml --store x", &[]),
        // Without a home nothing is remembered, and all else is the same.
        ("snapshots --json", &[("PINSTRIPE_STORE", "m0:m1"), ("HOME", "")]),
    ] {
        // One place alone is none, as long as nothing is remembered.
        let alone = run_with(&stand, "snapshots --store m0", variables);
        assert_eq!(alone.code, 11, "{}", alone.err);
        let listed = run_with(&stand, line, variables);
        assert_eq!(listed.code, 0, "{line}: {}", listed.err);
        assert_eq!(listed.events_of("snapshot").len(), 1, "{line}");
        assert!(listed.err.contains("member replace 0"), "{}", listed.err);
        let _ = fs::remove_dir_all(memory(&stand));
    }
    assert_eq!(stand.run("config show --config c.toml").out.matches("m2").count(), 1);
}

/// A store found elsewhere must be the same store.
#[test]
fn a_remembered_place_with_another_store_is_passed_over() {
    let stand = Stand::with_store();
    assert_eq!(stand.run("backup src --store m0 -q").code, 0);
    assert_eq!(stand.run("init --encryption none --member x -q").code, 0);
    fs::rename(stand.path("m0"), stand.path("away0")).unwrap();
    fs::rename(stand.path("m1"), stand.path("away1")).unwrap();
    fs::rename(stand.path("x"), stand.path("m1")).unwrap();
    // Two of four are gone: the store does not open, and the other one is not taken for it.
    let refused = stand.run("backup src --store m0");
    assert_eq!(refused.code, 12, "{}", refused.err);
    assert!(!refused.err.contains("init"), "{}", refused.err);
    assert_eq!(stand.run("snapshots --store m1 --json").events_of("snapshot").len(), 0);
    fs::rename(stand.path("m1"), stand.path("x")).unwrap();
    fs::rename(stand.path("away1"), stand.path("m1")).unwrap();
    let listed = stand.run("snapshots --store m0 --json");
    assert_eq!(listed.events_of("snapshot").len(), 1, "{}", listed.err);
    assert_eq!(stand.run("init --encryption none --member y -q").code, 0);
    assert_eq!(stand.run("snapshots --store m2 --store y").code, 12, "two stores");
}

#[test]
fn a_store_that_was_here_is_not_made_anew() {
    let stand = Stand::new();
    stand.make_tree();
    assert_eq!(stand.run("backup src -q").code, 0);
    let place = stand.path("home/.local/share/pinstripe/store");
    fs::rename(&place, stand.path("away")).unwrap();
    for line in ["backup src", "snapshots"] {
        let refused = stand.run(line);
        assert_eq!(refused.code, 11, "{}", refused.err);
        assert!(refused.err.contains("attach") && !refused.err.contains("init"), "{}", refused.err);
    }
    assert!(!place.exists(), "no new store is made where the disk is away");
    fs::rename(stand.path("away"), &place).unwrap();
    assert_eq!(stand.run("snapshots --json").events_of("snapshot").len(), 1);
}

#[test]
fn members_that_join_and_move_are_remembered() {
    let stand = Stand::with_store();
    assert_eq!(stand.run("backup src --store m0 -q").code, 0);
    assert_eq!(stand.run("member replace 0 --to new --same-disk --store m1 -q").code, 0);
    assert_eq!(stand.run("member add more --same-disk --store m1 -q").code, 0);
    fs::rename(stand.path("m1"), stand.path("away")).unwrap();
    let file = fs::read_dir(memory(&stand)).unwrap().next().unwrap().unwrap().path();
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
    let text = fs::read_to_string(&file).unwrap();
    let (members, left) = text.split_once("\"members\"").unwrap().1.split_once("\"left\"").unwrap();
    let is_there = |name| members.contains(&format!("/{name}\""));
    assert!(is_there("new") && is_there("more") && !is_there("m0"), "{text}");
    assert!(left.contains("/m0\""), "{text}");
    // The name that is known leads to members that joined since.
    assert_eq!(stand.run("snapshots --store m1 --json").events_of("snapshot").len(), 1);
    // A damaged file is as if the store was new; that is said once.
    fs::write(&file, &text[..text.len() / 2]).unwrap();
    let said = stand.run("snapshots --store m2");
    assert!(said.code == 0 && said.err.contains("a new file is created"), "{}", said.err);
    assert!(!stand.run("snapshots --store m2").err.contains("a new file is created"));
}

/// Whether a text stands readable below a directory.
fn holds(dir: &Path, text: &[u8]) -> bool {
    fs::read_dir(dir).into_iter().flatten().flatten().any(|entry| {
        let path = entry.path();
        match path.is_dir() {
            true => holds(&path, text),
            false => fs::read(path).unwrap().windows(text.len()).any(|part| part == text),
        }
    })
}

/// A stand with a secret in its tree.
fn with_secret() -> Stand {
    let stand = Stand::new();
    stand.make_tree();
    fs::write(stand.path("src/secret"), "topsecret").unwrap();
    stand
}

/// Another store, in the clear, in the place of an encrypted one: a backup would write its content
/// in the clear.
#[test]
fn a_plain_store_in_the_place_of_an_encrypted_one_is_refused() {
    let stand = with_secret();
    let password = [("PINSTRIPE_PASSWORD", "open sesame")];
    let init = run_with(&stand, "init --member m0 --kdf-memory 64K -q", &password);
    assert_eq!(init.code, 0, "{}", init.err);
    assert_eq!(run_with(&stand, "backup src --store m0 -q", &password).code, 0);
    fs::rename(stand.path("m0"), stand.path("real")).unwrap();
    assert_eq!(stand.run("init --member m0 --encryption none -q").code, 0);
    let refuse = |variables: &[(&str, &str)], why: &str| {
        for line in ["backup src --store m0", "snapshots --store m0", "check --store m0"] {
            let refused = run_with(&stand, line, variables);
            assert_eq!(refused.code, 19, "{line}: {}", refused.err);
            assert!(refused.err.contains(why), "{why}: {}", refused.err);
            assert!(refused.err.contains("--i-know-it-is-plain"), "{}", refused.err);
        }
        assert!(!holds(&stand.path("m0"), b"topsecret"));
    };
    // What is remembered is enough; and so is what is at hand where nothing is.
    refuse(&[], "has seen the encrypted store");
    fs::rename(memory(&stand), stand.path("aside")).unwrap();
    refuse(&password, "PINSTRIPE_PASSWORD is set");
    fs::write(stand.path("pw"), "open sesame\n").unwrap();
    refuse(&[("PINSTRIPE_PASSWORD_FILE", "pw")], "PINSTRIPE_PASSWORD_FILE is set");
    refuse(&[("PINSTRIPE_PASSWORD_COMMAND", "cat pw")], "PINSTRIPE_PASSWORD_COMMAND is set");
    refuse(&[("PINSTRIPE_KEY_FILE", "k")], "PINSTRIPE_KEY_FILE is set");
    let dir = stand.path("").canonicalize().unwrap();
    let written =
        format!("[store.x]\nmember = '{0}/m0'\npassword-file = '{0}/pw'\n", dir.display());
    fs::write(stand.path("c.toml"), written).unwrap();
    refuse(&[("PINSTRIPE_CONFIG", "c.toml")], "the config file has");
    let given = stand.run("snapshots --store m0 --password-file pw");
    assert_eq!(given.code, 19, "{}", given.err);
    // The one way around is remembered, and the encrypted store is known again when it is back.
    fs::remove_dir_all(memory(&stand)).unwrap_or_default();
    fs::rename(stand.path("aside"), memory(&stand)).unwrap();
    assert_eq!(stand.run("backup src --store m0 --i-know-it-is-plain -q").code, 0);
    assert!(holds(&stand.path("m0"), b"topsecret"), "the test would see it");
    assert_eq!(run_with(&stand, "snapshots --store m0", &password).code, 0);
    assert_eq!(stand.run("snapshots --store m0 --password-file pw").code, 19);
    fs::rename(stand.path("m0"), stand.path("plain")).unwrap();
    fs::rename(stand.path("real"), stand.path("m0")).unwrap();
    assert_eq!(run_with(&stand, "snapshots --store m0", &password).code, 0);
    fs::rename(stand.path("m0"), stand.path("real")).unwrap();
    fs::rename(stand.path("plain"), stand.path("m0")).unwrap();
    let refused = stand.run("snapshots --store m0");
    assert_eq!(refused.code, 19, "{}", refused.err);
}

/// Makes the labels of these members say that the store is readable, puts keys in the clear there,
/// and takes the sealed ones away.
fn turn_plain(stand: &Stand, members: &[&str]) {
    for member in members {
        let path = stand.path(member).join("pinstripe.member");
        let mut label = Label::decode(&fs::read(&path).unwrap()).unwrap();
        label.config.encryption = Encryption::None;
        fs::write(&path, label.encode()).unwrap();
        let keys = stand.path(member).join("keys");
        fs::remove_dir_all(&keys).unwrap();
        fs::create_dir(&keys).unwrap();
        let plain = Keys::generate(label.config.store).unwrap().encode();
        fs::write(keys.join(label.config.store.to_string()), plain).unwrap();
    }
}

/// The same store by its id, with a label and keys that make it readable.
#[test]
fn a_store_that_turned_plain_is_refused_by_its_key_file_and_by_its_id() {
    let stand = with_secret();
    assert_eq!(stand.run("backup src -q").code, 0);
    let store = "home/.local/share/pinstripe/store";
    turn_plain(&stand, &[store]);
    fs::rename(stand.path(store).join("packs"), stand.path("packs")).unwrap();
    fs::create_dir(stand.path(store).join("packs")).unwrap();
    let refuse = |why: &str| {
        let refused = stand.run("backup src");
        assert_eq!(refused.code, 19, "{}", refused.err);
        assert!(refused.err.contains(why), "{}", refused.err);
        assert!(!holds(&stand.path(store), b"topsecret"));
    };
    refuse("this host has opened this store as an encrypted one");
    fs::rename(memory(&stand), stand.path("aside")).unwrap();
    refuse("exists for this store");
    fs::rename(stand.path("aside"), memory(&stand)).unwrap();
    fs::remove_dir_all(stand.path("home/.config/pinstripe/keys")).unwrap();
    refuse("this host has opened this store as an encrypted one");
}

/// One hostile member that is named: the others outvote it, and the next backup is sealed.
#[test]
fn one_member_that_turned_plain_is_passed_over() {
    let stand = with_secret();
    let init = "init --member m0 --member m1 --member m2 --parity 1 --same-disk --key-file key -q";
    assert_eq!(stand.run(init).code, 0);
    assert_eq!(stand.run("backup src --store m0 --key-file key -q").code, 0);
    turn_plain(&stand, &["m0"]);
    fs::write(stand.path("src/more"), "topsecret too").unwrap();
    // With what is remembered, and without it.
    for snapshots in [2, 3] {
        let saved = stand.run("backup src --store m0 --key-file key");
        assert!([0, 3, 4].contains(&saved.code), "{}: {}", saved.code, saved.err);
        for member in ["m0", "m1", "m2"] {
            assert!(!holds(&stand.path(member), b"topsecret"), "{member}");
        }
        let listed = stand.run("snapshots --store m1 --key-file key --json");
        assert_eq!(listed.events_of("snapshot").len(), snapshots, "{}", listed.err);
        assert_eq!(stand.run("ls latest --store m0").code, 16, "it is sealed");
        fs::remove_dir_all(memory(&stand)).unwrap();
    }
}

/// The slot that opened the store is tried first the next time, and one can be named.
#[test]
fn the_slot_that_opened_the_store_is_remembered_and_one_can_be_named() {
    let stand = Stand::new();
    stand.make_tree();
    for (file, text) in [("pw", "open sesame\n"), ("other", "open rice\n")] {
        fs::write(stand.path(file), text).unwrap();
    }
    assert_eq!(stand.run("init --member m0 --password-file pw --kdf-memory 64K -q").code, 0);
    let add = "key add --store m0 --password-file pw --new-password-file other --label second \
               --kdf-memory 64K --json";
    let added = stand.run(add).summary()["slot"].as_str().unwrap().to_owned();
    let remembered = || {
        let file = fs::read_dir(memory(&stand)).unwrap().next().unwrap().unwrap().path();
        fs::read_to_string(file).unwrap().contains(&added)
    };
    assert!(!remembered());
    assert_eq!(stand.run("snapshots --store m0 --password-file other").code, 0);
    assert!(remembered());
    let named = |slot: &str, file: &str| {
        stand.run(&format!("snapshots --store m0 --password-file {file} --key-slot {slot}")).code
    };
    assert_eq!(named("second", "other"), 0);
    assert_eq!(named(&added[..8], "other"), 0);
    assert_eq!(named("second", "pw"), 17, "the other slot is not tried");
    assert_eq!(named("third", "other"), 17);
}
