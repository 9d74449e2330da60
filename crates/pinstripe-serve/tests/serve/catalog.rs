//! The catalog that hosts share, in a real PostgreSQL.

use std::collections::BTreeMap;
use std::time::Duration;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::{ChunkId, SnapshotId, StoreId};
use pinstripe_base::random::Noise;
use pinstripe_member::meta::{FileKind, Time};
use pinstripe_member::session::Work;
use pinstripe_member::snapshot::{Snapshot, TreeRoot};
use pinstripe_member::tree::compare_paths;
use pinstripe_member::{
    CatalogAnswer, CatalogQuestion, Change, Facts, Glob, Query, SharedCatalog, SnapshotSeries,
    SnapshotSync,
};
use pinstripe_member::{ExtentKind, ExtentName};
use pinstripe_remote::{
    Connection, RemoteCatalog, ServedVolumes, encode_changes, encode_rows_end, encode_rows_head,
};
use pinstripe_serve::{NewToken, TokenRole};
use pinstripe_testing::PostgresServer;

use crate::hostile::exchange;
use crate::roles::{session, snapshot as snapshot_object};
use crate::setup::{PATIENCE, StoreFixture, store_with_catalog, volume, with_catalog};

/// A path's facts, by path order.
type Tree = BTreeMap<PathKey, Facts>;

#[derive(Debug, Clone, PartialEq, Eq)]
struct PathKey(Vec<u8>);

impl Ord for PathKey {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        compare_paths(&self.0, &other.0)
    }
}

impl PartialOrd for PathKey {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

fn id(byte: u8) -> SnapshotId {
    SnapshotId([byte; 16])
}

fn facts(content: i64) -> Facts {
    let mtime = Time { seconds: content, nanos: 7 };
    Facts {
        mode: 0o644,
        size: content as u64 % 1000,
        mtime,
        content,
        ..Facts::of_kind(FileKind::File)
    }
}

fn snapshot(byte: u8, host: &str) -> Snapshot {
    Snapshot {
        store: StoreId([7; 16]),
        id: id(byte),
        created_seconds: 1_700_000_000 + i64::from(byte),
        created_nanos: 5,
        host: host.into(),
        program: "test".into(),
        sources: vec![b"etc".to_vec(), b"h\xffme".to_vec()],
        parent: None,
        root: TreeRoot { id: ChunkId([byte; 32]), height: 0, entries: 1 },
        counts: vec![("new_files".into(), 3)],
        tags: vec!["t".into()],
        comment: String::new(),
    }
}

fn catalog(connection: &Connection) -> RemoteCatalog {
    let volumes = ServedVolumes::new(vec![connection.clone()], PATIENCE);
    let client = volumes.client(&connection.address, connection.volume).unwrap();
    // The threads that move its bytes end with the volumes.
    std::mem::forget(volumes);
    RemoteCatalog::new(client)
}

/// Stores the object of a snapshot, so that the ledger knows its owner.
fn store(server: &StoreFixture, connection: &Connection, byte: u8) {
    let member = server.member(connection, 0);
    let (at, object) = session(byte, byte, Work::Backup);
    member.put(at, &object).unwrap();
    member.put(ExtentName::In(ExtentKind::Snapshots, [byte; 16]), &snapshot_object()).unwrap();
}

fn changes(old: &Tree, new: &Tree) -> Vec<Change> {
    let mut paths: Vec<&PathKey> = old.keys().chain(new.keys()).collect();
    paths.sort();
    paths.dedup();
    let change = |path: &&PathKey| match (old.get(path), new.get(path)) {
        (None, Some(facts)) => Some(Change::Added(path.0.clone(), *facts)),
        (Some(_), None) => Some(Change::Removed(path.0.clone())),
        (Some(a), Some(b)) if a != b => Some(Change::Changed(path.0.clone(), *b)),
        _ => None,
    };
    paths.iter().filter_map(change).collect()
}

fn load(
    to: &RemoteCatalog,
    snapshot: &Snapshot,
    base: Option<SnapshotId>,
    changes: &[Change],
) -> Result<u64> {
    let mut sink = to.take_in(snapshot, base)?;
    for changes in changes.chunks(50) {
        sink.write(changes)?;
    }
    sink.finish()
}

/// Series, path, facts, first and last ordinal.
type FoundRow = (usize, Vec<u8>, Facts, i64, Option<i64>);

#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Answer {
    series: Vec<SnapshotSeries>,
    rows: Vec<FoundRow>,
    snapshots: Vec<Snapshot>,
}

fn ask(of: &RemoteCatalog, question: &CatalogQuestion, all_hosts: bool) -> Result<Answer> {
    let mut answer = Answer::default();
    of.ask(question, all_hosts, &mut |part| {
        match part {
            CatalogAnswer::Series(series) => answer.series = series,
            CatalogAnswer::Row(row) => {
                answer.rows.push((row.series, row.path, row.facts, row.first, row.last));
            }
            CatalogAnswer::Snapshot(snapshot) => answer.snapshots.push(*snapshot),
        }
        Ok(())
    })?;
    Ok(answer)
}

fn find(pattern: &str) -> CatalogQuestion {
    CatalogQuestion::Find(Query::new(Glob::new(pattern.as_bytes()).unwrap()))
}

/// The trees that the rows of a search for everything describe, by snapshot.
fn trees(of: &RemoteCatalog) -> BTreeMap<SnapshotId, Tree> {
    let answer = ask(of, &find("**"), true).unwrap();
    let mut trees = BTreeMap::new();
    for (at, series) in answer.series.iter().enumerate() {
        for holder in &series.snapshots {
            let is_held = |first: i64, last: Option<i64>| {
                first <= holder.ordinal && last.is_none_or(|last| holder.ordinal <= last)
            };
            let rows = answer.rows.iter().filter(|row| row.0 == at && is_held(row.3, row.4));
            let mut tree = Tree::new();
            for row in rows {
                assert_eq!(tree.insert(PathKey(row.1.clone()), row.2), None, "{row:?} twice");
            }
            trees.insert(holder.id, tree);
        }
    }
    trees
}

/// Changes a tree at random; directories come and go with what is in them.
fn next_tree(tree: &Tree, noise: &mut Noise) -> Tree {
    let mut tree = tree.clone();
    for _ in 0..40 {
        let depth = noise.below(4);
        let mut path = format!("etc/n{}", noise.below(6));
        for _ in 0..depth {
            path += &format!("/n{}", noise.below(6));
        }
        let below = format!("{path}/");
        match noise.below(4) {
            0 => {
                tree.retain(|it, _| it.0 != path.as_bytes() && !it.0.starts_with(below.as_bytes()))
            }
            _ => drop(tree.insert(PathKey(path.into_bytes()), facts(noise.below(1000) as i64))),
        }
    }
    tree
}

#[test]
fn rows_describe_every_tree_also_after_removals_and_a_restart() {
    let Some(mut database) = PostgresServer::start("rows_describe_every_tree") else { return };
    let url = database.url("postgres");
    let mut server = store_with_catalog(&url);
    let (_, admin) = server.token("desk", TokenRole::Admin);
    let shared = catalog(&admin);
    let mut noise = Noise(7);
    let mut model: BTreeMap<SnapshotId, Tree> = BTreeMap::new();
    let mut heads: BTreeMap<&str, (SnapshotId, Tree)> = BTreeMap::new();
    for byte in 1..13 {
        let host = if byte % 3 == 0 { "bee" } else { "ant" };
        let snapshot = snapshot(byte, host);
        let base = heads.get(host).cloned();
        let head = shared.head(&snapshot).unwrap();
        assert_eq!(head.map(|it| it.id), base.as_ref().map(|it| it.0));
        let old = base.as_ref().map(|it| it.1.clone()).unwrap_or_default();
        let new = next_tree(&old, &mut noise);
        load(&shared, &snapshot, base.map(|it| it.0), &changes(&old, &new)).unwrap();
        heads.insert(host, (snapshot.id, new.clone()));
        model.insert(snapshot.id, new);
        assert_eq!(trees(&shared), model, "{byte}");
    }
    // A path is found once, although it came and went.
    let all = ask(&shared, &find("**"), true).unwrap();
    let mut rows = all.rows.clone();
    rows.sort_by(|a, b| (a.0, &a.1, a.3).cmp(&(b.0, &b.1, b.3)));
    rows.dedup();
    assert_eq!(rows.len(), all.rows.len());
    for byte in [3, 4, 12, 11, 1] {
        assert_eq!(shared.let_go(&[id(byte)]).unwrap(), 1);
        model.remove(&id(byte));
        assert_eq!(trees(&shared), model, "without {byte}");
    }
    // What was removed at the end of a series is taken in again after the present head.
    let (last, again) = (model[&id(10)].clone(), snapshot(12, "ant"));
    assert_eq!(shared.head(&again).unwrap().map(|it| it.id), Some(id(10)));
    let new = next_tree(&last, &mut noise);
    load(&shared, &again, Some(id(10)), &changes(&last, &new)).unwrap();
    model.insert(again.id, new);
    assert_eq!(trees(&shared), model);
    database.restart();
    server = with_catalog(server.stop(), volume_of_member(), &url);
    let (_, admin) = server.token("other", TokenRole::Admin);
    assert_eq!(trees(&catalog(&admin)), model);
    assert_eq!(catalog(&admin).clear().unwrap(), model.len() as u64);
    assert_eq!(trees(&catalog(&admin)), BTreeMap::new());
}

fn volume_of_member() -> pinstripe_serve::ServedVolume {
    let dir = tempfile::tempdir().unwrap().keep();
    let member = pinstripe_member::Places::default().create(&dir.join("m")).unwrap().member;
    volume(true, vec![member])
}

#[test]
fn a_path_has_a_history_and_two_snapshots_a_difference() {
    let Some(database) = PostgresServer::start("a_path_has_a_history") else { return };
    let server = store_with_catalog(&database.url("postgres"));
    let (_, admin) = server.token("desk", TokenRole::Admin);
    let shared = catalog(&admin);
    let tree = |content| {
        let path = |name: &str| PathKey(name.as_bytes().to_vec());
        Tree::from([
            (path("etc"), facts(1)),
            (path("etc/a"), facts(2)),
            (path("etc/b"), facts(content)),
        ])
    };
    let (one, two) = (tree(3), tree(4));
    load(&shared, &snapshot(1, "ant"), None, &changes(&Tree::new(), &one)).unwrap();
    load(&shared, &snapshot(2, "ant"), Some(id(1)), &changes(&one, &two)).unwrap();
    let history = ask(&shared, &CatalogQuestion::History(b"etc/b".to_vec()), true).unwrap();
    let rows: Vec<_> = history.rows.iter().map(|row| (row.2.content, row.3, row.4)).collect();
    assert_eq!(rows, [(3, 1, Some(1)), (4, 2, None)]);
    let diff = ask(&shared, &CatalogQuestion::Diff(id(1), id(2)), true).unwrap();
    let rows: Vec<_> = diff.rows.iter().map(|row| (&row.1[..], row.2.content)).collect();
    assert_eq!(rows, [(&b"etc/b"[..], 3), (b"etc/b", 4)]);
    // Snapshots that are not of one series are not compared.
    load(&shared, &snapshot(3, "bee"), None, &changes(&Tree::new(), &one)).unwrap();
    let diff = ask(&shared, &CatalogQuestion::Diff(id(1), id(3)), true).unwrap();
    assert_eq!(diff, Answer::default());
    let mut snapshots = ask(&shared, &CatalogQuestion::Snapshots, true).unwrap().snapshots;
    snapshots.sort_by_key(|it| it.id);
    assert_eq!(snapshots, [snapshot(1, "ant"), snapshot(2, "ant"), snapshot(3, "bee")]);
    let mut query = Query::new(Glob::new(b"a").unwrap());
    query.host = Some(b"bee".to_vec());
    assert_eq!(ask(&shared, &CatalogQuestion::Find(query.clone()), true).unwrap().rows.len(), 1);
    query.host = None;
    query.snapshots = Some([id(1), id(9)].into());
    let found = ask(&shared, &CatalogQuestion::Find(query.clone()), true).unwrap();
    assert_eq!((found.rows.len(), found.series.len()), (1, 1));
    query.size = 3..9;
    assert_eq!(ask(&shared, &CatalogQuestion::Find(query), true).unwrap().rows, []);
    let size = shared.size().unwrap();
    assert_eq!((size.snapshots, size.series, size.versions), (3, 2, 7));
}

#[test]
fn a_host_writes_and_sees_only_its_own_series() {
    let Some(database) = PostgresServer::start("a_host_writes_and_sees_only") else { return };
    let server = store_with_catalog(&database.url("postgres"));
    let (_, ant) = server.token("ant", TokenRole::AppendRestore);
    let (_, bee) = server.token("bee", TokenRole::Append);
    let (_, admin) = server.token("desk", TokenRole::Admin);
    let sees = |host: &str, role| {
        let new = NewToken { all_hosts: true, ..server.new_token(host, role) };
        server.token_with(new).1
    };
    let (reader, blind) = (sees("cat", TokenRole::Restore), sees("dog", TokenRole::Append));
    store(&server, &ant, 1);
    store(&server, &bee, 2);
    let (ant, bee, admin) = (catalog(&ant), catalog(&bee), catalog(&admin));
    let (reader, blind) = (catalog(&reader), catalog(&blind));
    let tree = Tree::from([(PathKey(b"etc".to_vec()), facts(1))]);
    let rows = changes(&Tree::new(), &tree);
    // The host in a snapshot is what the host says; the owner is what the ledger says.
    load(&ant, &snapshot(1, "bee"), None, &rows).unwrap();
    load(&bee, &snapshot(2, "bee"), None, &rows).unwrap();
    let refused = |result: Result<u64>| assert_eq!(result.unwrap_err().kind(), Kind::NotAllowed);
    refused(load(&bee, &snapshot(1, "bee"), None, &rows));
    refused(load(&reader, &snapshot(1, "bee"), None, &rows));
    refused(load(&ant, &snapshot(9, "ant"), None, &rows));
    refused(bee.let_go(&[id(1)]));
    refused(reader.let_go(&[id(1)]));
    refused(reader.clear());
    assert_eq!(bee.head(&snapshot(1, "bee")).unwrap_err().kind(), Kind::NotAllowed);
    for other in [&ant, &bee, &blind] {
        let error = ask(other, &find("etc"), true).unwrap_err();
        assert_eq!(error.kind(), Kind::NotAllowed);
        assert!(error.what().contains("other hosts"), "{error}");
        assert_eq!(other.compare(&[], true).unwrap_err().kind(), Kind::NotAllowed);
    }
    let seen = |it: &RemoteCatalog, all| -> Vec<SnapshotId> {
        let series = ask(it, &find("etc"), all).unwrap().series;
        series.iter().flat_map(|it| it.snapshots.iter().map(|it| it.id)).collect()
    };
    assert_eq!((seen(&ant, false), seen(&bee, false)), (vec![id(1)], vec![id(2)]));
    assert_eq!((seen(&admin, true), seen(&reader, true)), (vec![id(1), id(2)], vec![id(1), id(2)]));
    assert_eq!(seen(&reader, false), []);
    // Each host lists only what it may change.
    let listed = [id(1), id(2), id(3)];
    let sync = admin.compare(&listed, true).unwrap();
    assert_eq!(sync, SnapshotSync { missing: vec![id(3)], ..SnapshotSync::default() });
    let sync = reader.compare(&listed, true).unwrap();
    assert_eq!(sync, SnapshotSync { of_others: vec![id(3)], ..SnapshotSync::default() });
    assert_eq!(bee.compare(&[], false).unwrap().gone, [id(2)]);
    assert_eq!(admin.compare(&[], true).unwrap().gone, [id(1), id(2)]);
    assert_eq!(bee.clear().unwrap(), 1);
    assert_eq!(seen(&admin, true), [id(1)]);
}

#[test]
fn a_database_that_is_killed_in_a_load_has_no_half_snapshot() {
    let Some(mut database) = PostgresServer::start("a_database_that_is_killed") else { return };
    let server = store_with_catalog(&database.url("postgres"));
    let (_, admin) = server.token("desk", TokenRole::Admin);
    let shared = catalog(&admin);
    let path = |n: u32| PathKey(format!("etc/{n:06}").into_bytes());
    let tree: Tree = (0..60_000).map(|n| (path(n), facts(n.into()))).collect();
    let rows = changes(&Tree::new(), &tree);
    load(&shared, &snapshot(1, "ant"), None, &rows[..100]).unwrap();
    let mut sink = shared.take_in(&snapshot(2, "ant"), Some(id(1))).unwrap();
    sink.write(&rows[100..50_000]).unwrap();
    database.kill();
    let error = sink.write(&rows[50_000..]).and_then(|()| sink.finish()).unwrap_err();
    assert_eq!(error.kind(), Kind::Unanswered, "{error}");
    assert!(error.advice_text().unwrap().contains("no data is lost"), "{error}");
    let error = shared.compare(&[id(1), id(2)], true).unwrap_err();
    assert_eq!(error.kind(), Kind::Unanswered, "{error}");
    database.restart();
    let sync = answers(|| shared.compare(&[id(1), id(2)], true));
    assert_eq!(sync, SnapshotSync { missing: vec![id(2)], ..SnapshotSync::default() });
    assert_eq!(trees(&shared).len(), 1);
    let schema = format!("pinstripe_{}", server.volume);
    let count =
        |table: &str| database.sql("postgres", &format!("SELECT count(*) FROM {schema}.{table}"));
    assert_eq!(count("versions"), "100");
    load(&shared, &snapshot(2, "ant"), Some(id(1)), &rows[100..]).unwrap();
    assert_eq!(count("versions"), "60000");
    // A database that lost everything gets everything again.
    database.sql("postgres", &format!("DROP SCHEMA {schema} CASCADE"));
    let sync = answers(|| shared.compare(&[id(1), id(2)], true));
    assert_eq!(sync.missing, [id(1), id(2)]);
    load(&shared, &snapshot(2, "ant"), None, &rows).unwrap();
    assert_eq!(trees(&shared)[&id(2)], tree);
}

/// The answer of a database that comes back.
fn answers<T>(mut ask: impl FnMut() -> Result<T>) -> T {
    for _ in 0..600 {
        match ask() {
            Err(error) if error.kind() == Kind::Unanswered => {
                std::thread::sleep(Duration::from_millis(100));
            }
            answered => return answered.unwrap(),
        }
    }
    panic!("the database does not come back");
}

#[test]
fn bodies_that_are_no_rows_change_nothing() {
    let Some(database) = PostgresServer::start("bodies_that_are_no_rows") else { return };
    let server = store_with_catalog(&database.url("postgres"));
    let (_, admin) = server.token("desk", TokenRole::Admin);
    let shared = catalog(&admin);
    let tree: Tree = (0..300).map(|n| (PathKey(format!("etc/{n:03}").into()), facts(n))).collect();
    let rows = changes(&Tree::new(), &tree);
    load(&shared, &snapshot(1, "ant"), None, &rows).unwrap();
    let before = trees(&shared);
    let good = || {
        let mut frames = vec![encode_rows_head(&snapshot(2, "ant"), None)];
        frames.extend(rows.chunks(100).flat_map(encode_changes));
        frames.push(encode_rows_end(300));
        frames
    };
    let bearer = admin.join_string().reveal();
    let send = |body: &[u8]| {
        let head = format!(
            "POST /v1/{}/catalog/rows HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {bearer}\r\n\
             content-length: {}\r\nconnection: close\r\n\r\n",
            server.volume,
            body.len(),
        );
        let answer = exchange(&server, &[head.as_bytes(), body].concat(), false);
        answer.lines().next().unwrap_or_default().to_owned()
    };
    let swapped = {
        let mut frames = good();
        frames.swap(1, 2);
        frames.concat()
    };
    let twice = Change::Added(b"etc/000".to_vec(), facts(1));
    let long = Change::Added([b"etc/".to_vec(), vec![b'n'; 1025]].concat(), facts(1));
    let with = |change: &Change| {
        let head = encode_rows_head(&snapshot(2, "ant"), None);
        let changes = [change.clone(), change.clone()];
        [head, encode_changes(&changes[..1]).concat(), encode_changes(&changes).concat()].concat()
    };
    let mut wrong = vec![
        Vec::new(),
        good()[1..].concat(),
        good()[..4].concat(),
        [good().concat(), b"more".to_vec()].concat(),
        [good()[..4].concat(), encode_rows_end(299)].concat(),
        [good()[..4].concat(), encode_rows_end(301)].concat(),
        [good()[..2].concat(), good().concat()].concat(),
        swapped,
        with(&twice),
        with(&long),
        vec![0xff; 64],
        vec![0; 64],
        encode_rows_head(&snapshot(2, "ant"), Some(id(1)))[..20].to_vec(),
        // It claims to follow a snapshot that is not the head.
        [encode_rows_head(&snapshot(2, "ant"), Some(id(7))), encode_rows_end(0)].concat(),
        [encode_rows_head(&snapshot(1, "ant"), None), encode_rows_end(0)].concat(),
    ];
    let (whole, mut noise) = (good().concat(), Noise(3));
    for _ in 0..pinstripe_testing::cases(60) {
        let mut cut = whole.clone();
        cut.truncate(noise.below(whole.len() as u64) as usize);
        wrong.push(cut);
    }
    for (number, body) in wrong.iter().enumerate() {
        let status = send(body);
        assert!(status.contains(" 4"), "{number}: {status}");
    }
    assert_eq!(trees(&shared), before);
    // A changed byte may still be rows; then they are those that a host could have sent.
    for _ in 0..pinstripe_testing::cases(60) {
        let mut body = whole.clone();
        let at = noise.below(whole.len() as u64) as usize;
        body[at] ^= 1 << noise.below(8);
        let status = send(&body);
        assert!(status.contains(" 200") || status.contains(" 4"), "{status}");
    }
    for (known, tree) in trees(&shared) {
        assert!(known != id(1) || tree == before[&known]);
    }
    let question = |body: &[u8]| {
        let head = format!(
            "POST /v1/{}/catalog HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {bearer}\r\n\
             content-length: {}\r\nconnection: close\r\n\r\n",
            server.volume,
            body.len(),
        );
        exchange(&server, &[head.as_bytes(), body].concat(), false)
    };
    for _ in 0..pinstripe_testing::cases(100) {
        let body: Vec<u8> = (0..noise.below(40)).map(|_| noise.below(7) as u8).collect();
        let status = question(&body);
        assert!(status.contains(" 200") || status.contains(" 4"), "{body:?}: {status}");
    }
    assert_eq!(question(&[9]).lines().next().unwrap(), "HTTP/1.1 400 Bad Request");
}

#[test]
fn a_server_without_a_catalog_says_so() {
    let server = crate::setup::store();
    let (_, admin) = server.token("desk", TokenRole::Admin);
    let error: Error = catalog(&admin).compare(&[], false).unwrap_err();
    assert_eq!(error.kind(), Kind::NotFound, "{error}");
    let url = "postgres:///postgres?host=/nonexistent&user=nobody&password=s3cret";
    let server = store_with_catalog(url);
    let (_, admin) = server.token("desk", TokenRole::Admin);
    let error: Error = catalog(&admin).compare(&[], false).unwrap_err();
    assert_eq!(error.kind(), Kind::Unanswered, "{error}");
    assert!(!format!("{error:?}").contains("s3cret"));
}
