use std::path::Path;

use super::*;
use crate::ops::assemble::assemble;
use crate::ops::detail::{self, SlotStateDetail};
use crate::ops::examine::{FoundSuperblock, examine};
use crate::ops::zero::zero_superblock;

const KIB: u64 = 1024;

struct Stand {
    dir: tempfile::TempDir,
    register: Register,
}

impl Stand {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let register = Register::new(dir.path().join("arrays"), dir.path().join("run"));
        Stand { dir, register }
    }

    fn paths(&self, names: &[&str]) -> Vec<PathBuf> {
        names.iter().map(|name| self.dir.path().join(name)).collect()
    }

    fn request(&self, name: &str, members: &[&str]) -> CreateRequest {
        CreateRequest {
            name: name.to_owned(),
            level: Level::Raid5,
            layout: Layout::default_of(Level::Raid5),
            chunk_bytes: 64 * KIB,
            log_bytes: None,
            consistency: Consistency::Log,
            granule: None,
            members: self.paths(members).into_iter().map(Some).collect(),
            spares: Vec::new(),
            file_bytes: Some(8 * MIB),
            force: false,
        }
    }

    fn create(&self, request: &CreateRequest) -> Result<Created> {
        create(request, &self.register, &Plan::default(), &Monitor::default())
    }

    fn assemble(&self, name: &str, paths: &[PathBuf]) -> Result<()> {
        let (register, monitor) = (&self.register, Monitor::default());
        assemble(name, paths, false, register, &Plan::default(), &monitor)?.stop()
    }
}

fn kind<T>(result: Result<T>) -> Kind {
    result.err().expect("it is refused").kind()
}

#[test]
fn an_array_is_made_and_known_by_its_name() {
    let stand = Stand::new();
    let made = stand.create(&stand.request("pool", &["a", "b", "c"])).unwrap();
    assert_eq!(made.capacity_bytes, 2 * made.member_bytes);
    let found = detail::of_devices("pool", &stand.register).unwrap();
    assert_eq!((&*found.level, &*found.picture(), found.degraded()), ("raid5", "UUU", 0));
    assert_eq!(found.array, made.array);
    let slots = found.slots.iter().map(|slot| slot.device.clone().unwrap());
    assert_eq!(slots.collect::<Vec<_>>(), stand.paths(&["a", "b", "c"]));
    for (slot, path) in stand.paths(&["a", "b", "c"]).iter().enumerate() {
        let FoundSuperblock::Ours(superblock, _) = examine(path).unwrap().found else {
            panic!("{slot}")
        };
        assert_eq!((usize::from(superblock.slot), &*superblock.name), (slot, "pool"));
    }
}

#[test]
fn an_array_is_made_with_a_granule_and_a_policy() {
    let stand = Stand::new();
    let consistency = consistency_of("bitmap").unwrap();
    let request = stand.request("pool", &["a", "b", "c"]);
    stand.create(&CreateRequest { granule: Some(16 << 10), consistency, ..request }).unwrap();
    let found = detail::of_devices("pool", &stand.register).unwrap();
    assert_eq!((&*found.settings["stripe_size"], &*found.consistency), ("16384", "bitmap"));
    assert_eq!(kind(consistency_of("hope")), Kind::Usage);
}

#[test]
fn nothing_is_written_when_one_device_is_refused() {
    let stand = Stand::new();
    let paths = stand.paths(&["a", "b", "c"]);
    std::fs::write(&paths[2], [b"XFSB".to_vec(), vec![0; 8 << 20]].concat()).unwrap();
    let request = stand.request("pool", &["a", "b", "c"]);
    assert_eq!(kind(stand.create(&request)), Kind::Refused);
    assert!(!paths[0].exists() && !paths[1].exists(), "files that were made are gone again");
    assert!(!stand.register.has("pool"));
    stand.create(&CreateRequest { force: true, ..request.clone() }).unwrap();
    // Their own members are as dear as a file system, and a name is not taken twice.
    assert_eq!(kind(stand.create(&request)), Kind::Exists);
    assert_eq!(
        kind(stand.create(&CreateRequest { name: "other".into(), ..request })),
        Kind::Refused
    );
}

#[test]
fn devices_named_twice_and_missing_ones_are_refused() {
    let stand = Stand::new();
    let twice = stand.request("pool", &["a", "b", "a"]);
    assert_eq!(kind(stand.create(&twice)), Kind::Usage);
    let missing = CreateRequest { file_bytes: None, ..stand.request("pool", &["x", "y", "z"]) };
    assert_eq!(kind(stand.create(&missing)), Kind::NotFound);
    let small =
        CreateRequest { file_bytes: Some(64 * KIB), ..stand.request("pool", &["s", "t", "u"]) };
    assert_eq!(kind(stand.create(&small)), Kind::Usage);
}

#[test]
fn an_array_is_found_where_its_devices_are_now() {
    let stand = Stand::new();
    stand.create(&stand.request("pool", &["a", "b", "c"])).unwrap();
    let [old, new] = ["b", "moved"].map(|name| stand.dir.path().join(name));
    std::fs::rename(&old, &new).unwrap();
    let found = detail::of_devices("pool", &stand.register).unwrap();
    assert_eq!((found.picture(), found.slots[1].state), ("U_U".into(), SlotStateDetail::Missing));
    stand.assemble("pool", &stand.paths(&["c", "moved", "a"])).unwrap();
    let found = detail::of_devices("pool", &stand.register).unwrap();
    assert_eq!(found.picture(), "UUU");
    assert_eq!(found.slots[1].device.as_deref(), Some(Path::new(&new)));
    // Under another name it is the same array.
    stand.register.remove("pool").unwrap();
    stand.assemble("again", &stand.paths(&["a", "c", "moved"])).unwrap();
    assert_eq!(kind(stand.assemble("pool", &[])), Kind::NotFound);
}

#[test]
fn strangers_and_too_few_devices_are_refused() {
    let stand = Stand::new();
    stand.create(&stand.request("pool", &["a", "b", "c"])).unwrap();
    stand.create(&stand.request("other", &["d", "e", "f"])).unwrap();
    assert_eq!(kind(stand.assemble("pool", &stand.paths(&["a", "b", "d"]))), Kind::WrongMember);
    assert_eq!(kind(stand.assemble("pool", &stand.paths(&["a"]))), Kind::TooManyLosses);
    assert_eq!(kind(stand.assemble("pool", &stand.paths(&["none"]))), Kind::TooManyLosses);
    assert_eq!(kind(stand.assemble("pool", &stand.paths(&["a", "b", "a"]))), Kind::Usage);
    for path in stand.paths(&["d", "e", "f"]) {
        assert!(matches!(zero_superblock(&path, false).unwrap(), Some(FoundSuperblock::Ours(..))));
        assert_eq!(kind(zero_superblock(&path, false)), Kind::NotFound);
        assert_eq!(kind(examine(&path)), Kind::NotFound);
    }
    assert_eq!(kind(stand.assemble("other", &[])), Kind::TooManyLosses);
    assert_eq!(kind(detail::of_devices("other", &stand.register)), Kind::TooManyLosses);
}
