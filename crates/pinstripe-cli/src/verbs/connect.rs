//! `pinstripe connect`: saves what this host needs to use a store behind a server.

use std::io::BufRead;
use std::path::PathBuf;

use clap::ValueHint;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_remote::{Connection, Hello, JoinString};

use crate::event::Event;
use crate::message::counted;
use crate::run::{Ending, Run, certificate_at};
use crate::table::{self, Side};

/// Use a store behind a pinstripe server
///
/// The join string comes from 'pinstripe token add' on the server. The connection is tried, and
/// then saved in a file that only you can read. From then on, verbs without --store use this store,
/// unless PINSTRIPE_STORE or the config file names another one.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe connect pst1_5Yx...
  pinstripe connect - < join.txt
  pinstripe connect pst1_5Yx... --client-certificate web1.pem --client-key web1.key
  pinstripe connect --list
  pinstripe connect --remove backup.example.org:7473")]
pub struct ConnectArgs {
    /// The join string; '-' reads it from standard input, so that it is not in the shell's history
    #[arg(value_name = "STRING", required_unless_present_any = ["list", "remove"])]
    join: Option<String>,

    /// The certificate chain of this host, in a PEM file, for a server that requires one
    ///
    /// The path is saved, and each command reads the file again. Default: the path in the
    /// environment variable PINSTRIPE_CLIENT_CERTIFICATE, which is also used for a join string that
    /// is given as --store.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "join")]
    client_certificate: Option<PathBuf>,

    /// The private key of --client-certificate, in a PEM file
    ///
    /// Default: the path in PINSTRIPE_CLIENT_KEY, if the certificate is that of
    /// PINSTRIPE_CLIENT_CERTIFICATE; otherwise the file of the certificate, which may contain both.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath,
          requires = "client_certificate")]
    client_key: Option<PathBuf>,
    /// For an encrypted store: let the server's shared catalog have the names of files in clear text
    ///
    /// An administrator of the server or its database can then read the names, sizes and times of the
    /// files of this host, but not their content. Without --clear-names, a host sends no names of an
    /// encrypted store.
    #[arg(long, conflicts_with_all = ["list", "remove"])]
    clear_names: bool,

    /// List the saved connections
    #[arg(long, conflicts_with_all = ["join", "remove"])]
    list: bool,

    /// Remove the saved connection to this server (HOST:PORT) or store
    #[arg(long, value_name = "SERVER|STORE", conflicts_with = "join")]
    remove: Option<String>,
}

const HEAD: [(&str, Side); 4] =
    [("store", Side::Left), ("server", Side::Left), ("as host", Side::Left), ("role", Side::Left)];

impl ConnectArgs {
    /// Runs the verb.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`] for an invalid join string, or with the errors of the server.
    pub fn run(&self, run: &Run) -> Result<Ending> {
        if self.list {
            return list(run);
        }
        if let Some(which) = &self.remove {
            let removed = run.served().disconnect(which)?;
            run.screen.say(&format!("removed {}", counted(removed as u64, "connection")));
            return Ok(Ending::done(Event::default().with("removed", removed)));
        }
        let text = match self.join.as_deref() {
            Some("-") => first_line()?,
            text => text.unwrap_or_default().to_owned(),
        };
        let chain = self.client_certificate.as_deref();
        let certificate = chain.map(|it| certificate_at(it, self.client_key.as_deref()));
        let join = text.parse::<JoinString>()?;
        let (connection, hello) = run.served().connect(join, certificate, self.clear_names)?;
        say(run, &connection, &hello);
        let facts = facts(&connection).with("host", hello.host).with("role", hello.role);
        Ok(Ending::done(facts))
    }
}

fn first_line() -> Result<String> {
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line);
    match read.map_err(|error| Error::io("cannot read", "standard input", error))? {
        0 => Err(Error::new(Kind::Usage, "standard input has no join string")),
        _ => Ok(line),
    }
}

fn say(run: &Run, connection: &Connection, hello: &Hello) {
    let Connection { address, volume, .. } = connection;
    let members = hello.volumes.first().map_or(0, |volume| volume.members.len() as u64);
    run.screen.say(&format!(
        "connected to {address} as host {}, with the role {}: store {}, {}",
        hello.host,
        hello.role,
        volume.short(),
        counted(members, "member"),
    ));
    let next = match hello.role.as_str() {
        "restore" => "pinstripe snapshots",
        _ => "pinstripe backup PATH",
    };
    run.screen.say(&format!("verbs without --store now use this store; next: {next}"));
}

fn facts(connection: &Connection) -> Event {
    let Connection { address, volume, certificate, .. } = connection;
    let facts = Event::default().with("server", address.as_str()).with("store", volume.to_string());
    match certificate {
        Some(it) => facts.with("client_certificate", it.chain.display().to_string()),
        None => facts,
    }
}

fn list(run: &Run) -> Result<Ending> {
    let mut rows = Vec::new();
    for saved in run.served().saved() {
        let connection = saved.connection()?;
        let event = Event::new("connection").with_all(facts(&connection));
        let event = event.with("host", saved.host.as_str()).with("role", saved.role.as_str());
        run.screen.event(&event)?;
        rows.push(vec![connection.volume.short(), connection.address, saved.host, saved.role]);
    }
    if rows.is_empty() {
        run.screen.say("no connection is saved");
    } else {
        table::lines(&HEAD, &rows).iter().try_for_each(|line| run.screen.row(line))?;
    }
    Ok(Ending::done(Event::default().with("connections", rows.len())))
}
