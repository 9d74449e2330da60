//! The address of a database.

use std::fmt;
use std::time::Duration;

use pinstripe_base::error::{Error, Kind, Result};
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

/// The longest wait for a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// The longest time that sent bytes may stay unacknowledged, and that a connection may be silent.
const SILENT: Duration = Duration::from_secs(30);
/// The limits of each statement, lock and pause in a transaction, at the database's side.
const LIMITS: &str = "-c statement_timeout=300s -c lock_timeout=60s \
                      -c idle_in_transaction_session_timeout=300s \
                      -c enable_hashjoin=off -c enable_mergejoin=off -c client_min_messages=error";

/// The database of a shared catalog. Its password is never printed.
#[derive(Clone)]
pub struct DatabaseTarget {
    pub(super) config: Config,
}

impl fmt::Debug for DatabaseTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DatabaseTarget({})", self.shown())
    }
}

impl DatabaseTarget {
    /// Reads a URL as libpq writes it: `postgres://USER@HOST:PORT/DATABASE`, or
    /// `postgres:///DATABASE?host=/run/postgresql` for a socket.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`] for another text. The message never has the text.
    pub fn parse(url: &str, password: Option<&[u8]>) -> Result<Self> {
        let other = |what: String| {
            Error::new(Kind::Usage, what).advice(
                "write postgres://USER@HOST:PORT/DATABASE, or \
                 postgres:///DATABASE?host=/run/postgresql for a socket",
            )
        };
        if !["postgres://", "postgresql://"].iter().any(|scheme| url.starts_with(scheme)) {
            return Err(other("the catalog is not a URL of PostgreSQL".to_owned()));
        }
        let mut config: Config = url
            .parse()
            .map_err(|_| other("the URL of the catalog's database cannot be read".to_owned()))?;
        if config.get_hosts().is_empty() {
            return Err(other("the URL of the catalog's database names no host".to_owned()));
        }
        if config.get_ssl_mode() == SslMode::Require {
            let what = "connections to the catalog's database are not encrypted";
            return Err(Error::new(Kind::Unsupported, what)
                .advice("use a socket, the loopback or a tunnel, without sslmode=require"));
        }
        if let Some(password) = password {
            config.password(password);
        }
        config
            .ssl_mode(SslMode::Disable)
            .application_name("pinstripe")
            .connect_timeout(CONNECT)
            .tcp_user_timeout(SILENT)
            .keepalives_idle(SILENT)
            .options(LIMITS);
        Ok(DatabaseTarget { config })
    }

    /// Whether the URL has a password.
    pub fn has_password(&self) -> bool {
        self.config.get_password().is_some()
    }

    /// Whether the names of files leave this machine unencrypted.
    pub fn is_remote(&self) -> bool {
        self.config.get_hosts().iter().any(|host| match host {
            Host::Unix(_) => false,
            Host::Tcp(name) => {
                let is_loopback = name.parse::<std::net::IpAddr>().map(|it| it.is_loopback());
                name != "localhost" && !is_loopback.unwrap_or(false)
            }
        })
    }

    /// The database without user and password.
    pub fn shown(&self) -> String {
        let hosts = self.config.get_hosts().iter().map(|host| match host {
            Host::Tcp(name) => name.clone(),
            Host::Unix(path) => path.display().to_string(),
        });
        let hosts = hosts.collect::<Vec<_>>().join(",");
        let ports = self.config.get_ports().iter().map(u16::to_string).collect::<Vec<_>>();
        let port = if ports.is_empty() { String::new() } else { format!(":{}", ports.join(",")) };
        format!("postgres://{hosts}{port}/{}", self.config.get_dbname().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_in_no_message() {
        let target = DatabaseTarget::parse("postgres://me:s3cret@db.example.org/names", None);
        let target = target.unwrap();
        assert!(target.is_remote());
        assert_eq!(target.shown(), "postgres://db.example.org:5432/names");
        assert!(!format!("{target:?}").contains("s3cret"));
        for wrong in [
            "mysql://me:s3cret@host/x",
            "postgres://me:s3cret@host:port/x",
            "postgres://me:s3cret@host/x?unknown=s3cret",
            "postgres:///names",
            "postgres://me:s3cret@host/x?sslmode=require",
        ] {
            let error = DatabaseTarget::parse(wrong, None).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("s3cret"), "{wrong}: {error}");
        }
    }

    #[test]
    fn sockets_and_the_loopback_stay_on_this_machine() {
        for url in [
            "postgres:///names?host=/run/postgresql",
            "postgres://me@127.0.0.1/names",
            "postgres://me@[::1]:5433/names",
            "postgresql://me@localhost/names",
        ] {
            assert!(!DatabaseTarget::parse(url, None).unwrap().is_remote(), "{url}");
        }
    }
}
