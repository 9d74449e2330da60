//! The catalog that the hosts of a server share: several hosts, one PostgreSQL.

use pinstripe_testing::PostgresServer;

use crate::serve::{LISTEN, Serving, done, join, join_with, run};
use crate::stand::Stand;

/// A stand with a served store and its database.
struct Site {
    stand: Stand,
    database: PostgresServer,
    server: Option<Serving>,
}

impl Site {
    fn start(test: &str) -> Option<Site> {
        let database = PostgresServer::start(test)?;
        let stand = Stand::with_store();
        let mut site = Site { stand, database, server: None };
        site.serve();
        Some(site)
    }

    fn serve(&mut self) {
        // Hosts know the address of the first server.
        let listen = match self.server.take() {
            Some(server) => format!("--store m0 --listen {}", server.address()),
            None => LISTEN.to_owned(),
        };
        let line = format!("{listen} --catalog {}", self.database.url("postgres"));
        self.server = Some(Serving::start(&self.stand, &line));
    }

    /// The lines that a host prints, without those of the shared catalog.
    fn prints(&self, host: &str, line: &str) -> String {
        done(&self.stand, host, line).out
    }

    /// Compares the answers of the shared catalog with those of the embedded one, for an admin.
    fn assert_same(&self) {
        for line in [
            "find * --json",
            "find shared*",
            "find src/** --type directory",
            "find * --host bee --min-size 1",
            "find no-such-name-* --json",
            "history {SRC}/common",
            "history {SRC}/of-ant --json",
            "snapshots",
            "snapshots --json",
        ] {
            let line = line.replace("{SRC}", &self.stand.path("src").display().to_string());
            let [own, all] = ["", " --all-hosts"].map(|option| {
                let ran = run(&self.stand, "desk", &format!("{line}{option}"));
                assert!(matches!(ran.code, 0 | 11), "{line}: {}", ran.err);
                without_figures(&ran.out)
            });
            assert_eq!(own, all, "{line}");
        }
    }
}

/// The summary has the time that the command took.
fn without_figures(out: &str) -> String {
    out.lines()
        .filter(|line| !line.contains("\"event\":\"note\""))
        .filter(|line| !line.contains("\"event\":\"summary\""))
        .collect::<Vec<_>>()
        .join("\n")
}

fn ids(site: &Site, host: &str) -> Vec<String> {
    let listed = done(&site.stand, "desk", "snapshots --json");
    let snapshots = listed.events_of("snapshot");
    let of_host = snapshots.iter().filter(|it| it["host"] == host);
    of_host.map(|it| it["short"].as_str().unwrap().to_owned()).collect()
}

fn write(site: &Site, name: &str, content: &str) {
    std::fs::write(site.stand.path("src").join(name), content).unwrap();
}

/// Each of three hosts backs up twice; the second time with changes.
fn three_hosts(site: &Site) {
    done(&site.stand, "desk", &format!("connect {}", join(&site.stand, "desk", "admin")));
    for host in ["ant", "bee", "cat"] {
        done(&site.stand, host, &format!("connect {}", join(&site.stand, host, "append-restore")));
        write(site, "common", host);
        write(site, &format!("of-{host}"), "1");
        let backup = done(&site.stand, host, &format!("backup src --host {host}"));
        assert_eq!(backup.err, "", "{host}");
        write(site, "shared-later", host);
        write(site, &format!("of-{host}"), "22");
        let backup = done(&site.stand, host, &format!("backup src --host {host}"));
        assert_eq!(backup.err, "", "{host}");
        std::fs::remove_file(site.stand.path("src/shared-later")).unwrap();
        done(&site.stand, host, &format!("backup src --host {host}"));
    }
}

#[test]
fn an_administrator_finds_the_files_of_all_hosts() {
    let Some(mut site) = Site::start("an_administrator_finds") else { return };
    three_hosts(&site);
    let count = |site: &Site, table: &str| {
        let schema = "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'pinstripe_%'";
        let schema = site.database.sql("postgres", schema);
        site.database.sql("postgres", &format!("SELECT count(*) FROM {schema}.{table}"))
    };
    assert_eq!((count(&site, "snapshots"), count(&site, "series")), ("9".into(), "3".into()));
    let found = site.prints("desk", "find of-bee --all-hosts --json");
    assert!(found.contains("\"host\":\"bee\""), "{found}");
    site.assert_same();
    let (ant, bee) = (ids(&site, "ant"), ids(&site, "bee"));
    for pair in [[&ant[0], &ant[1]], [&ant[1], &ant[2]], [&ant[2], &ant[0]], [&ant[0], &bee[1]]] {
        let line = format!("diff {} {}", pair[0], pair[1]);
        let (own, all) =
            (site.prints("desk", &line), site.prints("desk", &format!("{line} --all-hosts")));
        assert_eq!(own, all, "{line}");
    }
    // What was forgotten is not found, although its host has not told the catalog.
    done(&site.stand, "desk", &format!("forget {}", bee[1]));
    site.assert_same();
    done(&site.stand, "desk", "gc");
    site.assert_same();
    assert_eq!(count(&site, "snapshots"), "8");
    done(&site.stand, "desk", &format!("forget {} {}", bee[2], ant[0]));
    site.assert_same();
    done(&site.stand, "desk", &format!("undelete {}", bee[2]));
    site.assert_same();
    site.serve();
    site.assert_same();
    done(&site.stand, "desk", "catalog rebuild --all-hosts");
    site.assert_same();
    let status = site.prints("desk", "catalog status --all-hosts");
    assert!(status.starts_with("the shared catalog lists 7 snapshots"), "{status}");
}

#[test]
fn a_token_without_all_hosts_is_refused() {
    let Some(site) = Site::start("a_token_without_all_hosts") else { return };
    three_hosts(&site);
    for line in ["find common", "history /x", "diff latest latest", "snapshots", "catalog status"] {
        let ran = run(&site.stand, "ant", &format!("{line} --all-hosts"));
        assert_eq!(ran.code, 22, "{line}: {}", ran.err);
        assert!(
            ran.err.contains("may not see the snapshots of other hosts"),
            "{line}: {}",
            ran.err
        );
        assert!(ran.err.contains("omit --all-hosts"), "{line}: {}", ran.err);
    }
    let own = site.prints("ant", "find common --json");
    assert!(own.contains("\"host\":\"ant\"") && !own.contains("\"host\":\"bee\""), "{own}");
    done(
        &site.stand,
        "eye",
        &format!("connect {}", join_with(&site.stand, "eye", "restore", "--all-hosts")),
    );
    let all = site.prints("eye", "find common --all-hosts --json");
    assert!(all.contains("\"host\":\"ant\"") && all.contains("\"host\":\"bee\""), "{all}");
}

#[test]
fn a_backup_succeeds_while_the_database_is_gone_and_the_next_one_completes_the_catalog() {
    let Some(mut site) = Site::start("a_backup_succeeds_while") else { return };
    three_hosts(&site);
    site.database.kill();
    write(&site, "while-gone", "1");
    let backup = done(&site.stand, "ant", "backup src --host ant");
    assert!(backup.err.contains("the snapshot is stored"), "{}", backup.err);
    assert!(backup.err.contains("the next backup"), "{}", backup.err);
    let find = run(&site.stand, "desk", "find while-gone --all-hosts");
    assert_eq!(find.code, 1, "{}", find.err);
    assert!(find.err.contains("start PostgreSQL"), "{}", find.err);
    site.database.restart();
    let last = || {
        (0..100)
            .map(|_| done(&site.stand, "ant", "backup src --host ant"))
            .find(|it| it.err.is_empty())
    };
    assert!(last().is_some());
    site.assert_same();
    // A database that lost everything is filled by the next search of an administrator.
    let schema = "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'pinstripe_%'";
    let schema = site.database.sql("postgres", schema);
    site.database.sql("postgres", &format!("DROP SCHEMA {schema} CASCADE"));
    let rebuilt = (0..100)
        .map(|_| run(&site.stand, "desk", "catalog rebuild --all-hosts"))
        .find(|it| it.code == 0);
    assert!(rebuilt.is_some());
    site.assert_same();
}

#[test]
fn names_of_an_encrypted_store_are_sent_only_if_server_and_host_allow_it() {
    let Some(database) = PostgresServer::start("names_of_an_encrypted_store") else { return };
    let stand = Stand::new();
    stand.make_tree();
    let key = "0123456789abcdef".repeat(4);
    std::fs::write(stand.path("key"), key).unwrap();
    let owner_only = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(stand.path("key"), owner_only).unwrap();
    let made = run(&stand, "server", "init --member m0 --key-file key --quiet");
    assert_eq!(made.code, 0, "{}", made.err);
    let url = database.url("postgres");
    let refused = run(&stand, "server", &format!("serve {LISTEN} --key-file key --catalog {url}"));
    assert_eq!(refused.code, 14, "{}", refused.err);
    assert!(refused.err.contains("--catalog-clear-names"), "{}", refused.err);
    let line = format!("{LISTEN} --key-file key --catalog {url} --catalog-clear-names");
    let _server = Serving::start(&stand, &line);
    let join = {
        let made =
            run(&stand, "server", "token add ant --role admin --store m0 --key-file key --quiet");
        assert_eq!(made.code, 0, "{}", made.err);
        made.out.trim().to_owned()
    };
    let tables = || {
        database
            .sql("postgres", "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'pinstripe_%'")
    };
    done(&stand, "ant", &format!("connect {join}"));
    done(&stand, "ant", "backup src --key-file key");
    let found = done(&stand, "ant", "find * --all-hosts --key-file key").out;
    let count = || {
        let schema = database
            .sql("postgres", "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'pinstripe_%'");
        match schema.as_str() {
            "" => "0".to_owned(),
            schema => database.sql("postgres", &format!("SELECT count(*) FROM {schema}.snapshots")),
        }
    };
    assert_eq!(count(), "0");
    done(&stand, "ant", &format!("connect {join} --clear-names"));
    assert_eq!(done(&stand, "ant", "find * --all-hosts --key-file key").out, found);
    assert_eq!((count(), tables()), ("1".into(), "1".into()));
}

#[test]
fn the_password_of_the_database_is_in_no_message() {
    let stand = Stand::with_store();
    let url = "postgres://me:s3cret@127.0.0.1:1/names";
    let ran = run(&stand, "server", &format!("serve {LISTEN} --catalog {url}"));
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(
        ran.err.contains("--catalog-password-file") && !ran.err.contains("s3cret"),
        "{}",
        ran.err
    );
    let config = |text: &str| std::fs::write(stand.path("config.toml"), text).unwrap();
    config(&format!("[serve]\ncatalog = \"{url}\"\n"));
    let ran = run(&stand, "server", "serve check-config --config config.toml");
    assert_eq!(ran.code, 1, "{}{}", ran.out, ran.err);
    assert!(ran.err.contains("does not answer") && !ran.err.contains("s3cret"), "{}", ran.err);
    let Some(database) = PostgresServer::start("the_password_of_the_database") else { return };
    config(&format!("[serve]\ncatalog = \"{}\"\n", database.url("postgres")));
    let ran = done(&stand, "server", "serve check-config --config config.toml");
    assert!(ran.out.contains("answers: PostgreSQL"), "{}", ran.out);
}

#[test]
fn without_a_shared_catalog_all_hosts_are_those_that_the_token_sees() {
    let stand = Stand::with_store();
    let _server = Serving::start(&stand, LISTEN);
    done(&stand, "ant", &format!("connect {}", join(&stand, "ant", "append-restore")));
    done(&stand, "desk", &format!("connect {}", join(&stand, "desk", "admin")));
    done(&stand, "ant", "backup src --host ant");
    done(&stand, "desk", "backup src --host desk");
    let own = done(&stand, "ant", "snapshots --all-hosts --json");
    assert_eq!(own.events_of("snapshot").len(), 1);
    assert!(own.err.contains("sees only the snapshots of host ant"), "{}", own.err);
    let all = done(&stand, "desk", "snapshots --all-hosts --json");
    assert_eq!((all.events_of("snapshot").len(), all.err.as_str()), (2, ""));
    done(&stand, "server", "find * --all-hosts --store m0");
}
