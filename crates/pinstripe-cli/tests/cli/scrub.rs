//! Scrub: what it says, what it logs, how it ends.

use std::fs;

use serde_json::Value;

use crate::stand::Stand;

fn first_pack(stand: &Stand, member: &str) -> std::path::PathBuf {
    let shelves = fs::read_dir(stand.path(member).join("packs")).unwrap();
    let mut packs: Vec<_> = shelves
        .flat_map(|shelf| fs::read_dir(shelf.unwrap().path()).unwrap())
        .map(|pack| pack.unwrap().path())
        .collect();
    packs.sort_by_key(|path| std::cmp::Reverse(fs::metadata(path).unwrap().len()));
    packs.remove(0)
}

fn flip(path: &std::path::Path) {
    let mut bytes = fs::read(path).unwrap();
    bytes[5000] ^= 1;
    fs::write(path, bytes).unwrap();
}

#[test]
fn damage_is_mended_logged_and_no_reason_to_fail() {
    let stand = Stand::with_store();
    assert_eq!(stand.run("backup src --store m0 -q").code, 0);
    assert_eq!(stand.tell("scrub --status --store m0").code, 0);
    assert_eq!(stand.tell("scrub --store m0 --log log").code, 0);
    stand.act("flip a bit on m2", || flip(&first_pack(&stand, "m2")));
    assert_eq!(stand.tell("scrub --store m0 --log log --limit 900M").code, 0);
    assert_eq!(stand.tell("check --read-data --store m0").code, 0);
    stand.tell("scrub --status --store m0");
    stand.act("rm -r m1", || fs::remove_dir_all(stand.path("m1")).unwrap());
    assert_eq!(stand.tell("scrub --store m0 --log log --budget 10G --budget 2h").code, 10);
    stand.act("flip a bit on m2 and on m3", || {
        let pack = first_pack(&stand, "m2");
        flip(&pack);
        let name = pack.strip_prefix(stand.path("m2")).unwrap().to_path_buf();
        flip(&stand.path("m3").join(name));
    });
    assert_eq!(stand.run("scrub --store m0 --log log").code, 3);
    stand.assert("scrub");

    let text = fs::read_to_string(stand.path("log")).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |event: &str| lines.iter().filter(|line| line["event"] == event).collect::<Vec<_>>();
    let codes: Vec<_> = of("summary").iter().map(|line| line["exit_code"].clone()).collect();
    assert_eq!(codes, [0, 0, 10, 3]);
    let mended = of("finding")[0];
    assert_eq!(mended["member"], 2);
    assert_eq!((&mended["fate"], &mended["part"]), (&"mended".into(), &"strip".into()));
    assert_eq!((&mended["row"], &mended["offset"]), (&0.into(), &4096.into()));
    assert!(mended["object"].as_str().unwrap().starts_with("packs/"));
    assert!(mended["time"].is_string());
    assert!(of("finding").iter().any(|line| line["fate"] == "lost"));
}

#[test]
fn the_log_has_a_place_of_its_own() {
    let stand = Stand::with_store();
    assert_eq!(stand.run("scrub --store m0").code, 0);
    // Beside it stands what is remembered of stores.
    let logs = |below: &str| {
        let names = fs::read_dir(stand.path(below)).unwrap().map(|it| it.unwrap().file_name());
        names.filter(|name| name != "stores").collect::<Vec<_>>()
    };
    assert_eq!(logs("home/.local/state/pinstripe").len(), 1);
    let mut command = stand.command("scrub --store m0");
    assert!(command.env("XDG_STATE_HOME", stand.path("state")).status().unwrap().success());
    assert_eq!(logs("state/pinstripe").len(), 1);
    let name = logs("state/pinstripe").remove(0).into_string().unwrap();
    assert!(name.starts_with("scrub-") && name.ends_with(".jsonl"), "{name}");
    assert_eq!(stand.run("scrub --store m0 --log home").code, 1);
}

#[test]
fn budgets_that_make_no_sense_are_refused() {
    let stand = Stand::with_store();
    for line in ["--budget 0%", "--budget 5", "--budget 5% --budget 10G", "--status --limit 1M"] {
        let code = stand.tell(&format!("scrub --store m0 {line}")).code;
        assert_eq!(code, if line == "--budget 5" { 0 } else { 2 }, "{line}");
    }
}
