//! `pinstripe token`: who may use a store through the server.

use std::path::{Path, PathBuf};

use clap::ValueHint;
use pinstripe_base::clock;
use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_base::id::StoreId;
use pinstripe_base::units::format_size;
use pinstripe_member::SecretBytes;
use pinstripe_remote::{JoinString, TokenId};
use pinstripe_serve::{HostToken, NewToken, TokenRole, TokenStore};

use super::serve::{self, ServerFacts};
use crate::args::{Size, parsed, size};
use crate::event::Event;
use crate::message::counted;
use crate::run::{Ending, Run};
use crate::table::{self, Side};
use crate::time;

/// Add, list and revoke the tokens with which hosts use a store through the server
///
/// Run this verb on the machine of the server, whether the server runs or not. A host gets one join
/// string, which contains the address and the key of the server and the token's secret. Only 'token add' and 'token rotate' print it.
#[derive(clap::Args)]
#[command(after_long_help = "\
Roles:
  append           back up; read only what this host has stored
  append-restore   back up, and restore the snapshots of this host
  restore          restore the snapshots of this host, and change nothing
  admin            every verb, for all hosts

Examples:
  pinstripe token add web1 --store /srv/a/store
  pinstripe token add web1 --role append-restore --quota 2T --expect 24h
  pinstripe token add desk --role restore --all-hosts
  pinstripe token list
  pinstripe token rotate web1
  pinstripe token revoke web1")]
pub struct TokenArgs {
    /// The directory of the server's state, as given to 'serve --state'
    #[arg(long, global = true, value_name = "DIR", value_hint = ValueHint::DirPath)]
    state: Option<PathBuf>,

    #[command(subcommand)]
    act: TokenVerb,
}

#[derive(clap::Subcommand)]
enum TokenVerb {
    /// Make a token for a host, and print its join string
    Add(AddArgs),
    /// List the tokens
    List,
    /// Show one token
    Show {
        /// The host, or the token's id
        #[arg(value_name = "HOST|ID")]
        which: String,
    },
    /// Refuse a token from now on
    Revoke {
        /// The host, or the token's id
        #[arg(value_name = "HOST|ID")]
        which: String,
    },
    /// Give a token a new secret, and print the new join string
    ///
    /// The former secret stays valid until the host uses the new one.
    Rotate {
        /// The host, or the token's id
        #[arg(value_name = "HOST|ID")]
        which: String,
        /// The address at which hosts reach the server, as HOST:PORT
        #[arg(long, value_name = "ADDRESS")]
        address: Option<String>,
    },
}

#[derive(clap::Args)]
#[group(skip)]
struct AddArgs {
    /// The host that will use the token
    #[arg(value_name = "HOST", value_parser = host)]
    host: String,

    /// What the token may do: append, append-restore, restore or admin
    #[arg(long, value_name = "ROLE", value_parser = parsed::<TokenRole>, default_value = "append-restore")]
    role: TokenRole,

    /// The most bytes that the host may store, for example 500G or 2T
    #[arg(long, value_name = "SIZE", value_parser = size)]
    quota: Option<Size>,

    /// The longest time between two backups, for example 24h: after it, the host is overdue
    #[arg(long, value_name = "TIME", value_parser = time::parse_span)]
    expect: Option<u64>,

    /// The most requests per second
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rate: Option<u32>,

    /// See the snapshots of all hosts
    #[arg(long)]
    all_hosts: bool,

    /// When the token expires, for example in 90d
    #[arg(long, value_name = "TIME", value_parser = time::parse_span)]
    expires: Option<u64>,

    /// The address at which hosts reach the server, as HOST:PORT [default: that of 'serve']
    #[arg(long, value_name = "ADDRESS")]
    address: Option<String>,
}

/// Reads the name of a host.
fn host(text: &str) -> Result<String, String> {
    let is_part = |it: char| it.is_alphanumeric() || "-._".contains(it);
    match !text.is_empty() && text.len() <= 255 && text.chars().all(is_part) {
        true => Ok(text.to_owned()),
        false => Err("a host has letters, digits, '-', '.' and '_'".to_owned()),
    }
}

const HEAD: [(&str, Side); 7] = [
    ("token", Side::Left),
    ("host", Side::Left),
    ("role", Side::Left),
    ("quota", Side::Right),
    ("expect", Side::Right),
    ("made", Side::Left),
    ("state", Side::Left),
];

impl TokenArgs {
    /// Runs the verb.
    ///
    /// # Errors
    /// Fails with [`Kind::NotFound`] for an unknown token, or with the errors of the state's files.
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let state = self.state(run)?;
        let tokens = TokenStore::new(&state);
        let now = clock::now().0;
        match &self.act {
            TokenVerb::Add(add) => {
                let facts = ServerFacts::read(&state)?;
                let volume = volume(run, &facts, self.state.is_some())?;
                let new = NewToken {
                    host: add.host.clone(),
                    role: add.role,
                    volume,
                    quota_bytes: add.quota.map(|size| size.0),
                    expect_seconds: add.expect,
                    rate: add.rate,
                    all_hosts: add.all_hosts,
                    expires_seconds: add.expires.map(|span| now.saturating_add_unsigned(span)),
                };
                let address = address(add.address.as_deref(), &facts)?;
                let made = tokens.add(&new, now)?;
                say_join(run, &state, volume, address, made)
            }
            TokenVerb::Rotate { which, address: given } => {
                let facts = ServerFacts::read(&state)?;
                let address = address(given.as_deref(), &facts)?;
                let (token, secret) = tokens.rotate(which, now)?;
                let volume = StoreId::from_hex(&token.volume)
                    .ok_or_else(|| Error::corrupt("the token names no store", &state))?;
                say_join(run, &state, volume, address, (token, secret))
            }
            TokenVerb::Revoke { which } => {
                let revoked = tokens.revoke(which, now)?;
                run.screen.say(&format!("revoked {}", counted(revoked as u64, "token")));
                Ok(Ending::done(Event::default().with("revoked", revoked)))
            }
            TokenVerb::List => list(run, &tokens.all()?, now),
            TokenVerb::Show { which } => {
                let all = tokens.all()?;
                let named: Vec<HostToken> =
                    all.iter().filter(|it| it.host == *which || it.id == *which).cloned().collect();
                if named.is_empty() {
                    return Err(Error::new(Kind::NotFound, format!("there is no token '{which}'"))
                        .advice("'pinstripe token list' lists the tokens"));
                }
                list(run, &named, now)
            }
        }
    }

    fn state(&self, run: &Run) -> Result<PathBuf> {
        match &self.state {
            Some(state) => Ok(state.clone()),
            None => serve::default_state(run.open_locked()?.config.store),
        }
    }
}

/// The volume that new tokens are for.
fn volume(run: &Run, facts: &Option<ServerFacts>, has_state: bool) -> Result<StoreId> {
    if !has_state || !run.common.store.is_empty() {
        return Ok(run.open_locked()?.config.store);
    }
    let only = facts.as_ref().filter(|facts| facts.volumes.len() == 1);
    only.and_then(|facts| StoreId::from_hex(&facts.volumes[0])).ok_or_else(|| {
        Error::new(Kind::Usage, "the server's state does not say which store the token is for")
            .advice("name the store with --store DIR")
    })
}

fn address(given: Option<&str>, facts: &Option<ServerFacts>) -> Result<String> {
    let known = facts.as_ref().map(|facts| facts.address.clone());
    given.map(str::to_owned).or(known).ok_or_else(|| {
        Error::new(Kind::Usage, "the server was not started yet, so its address is not known")
            .advice("name it with --address HOST:PORT, or start 'pinstripe serve' first")
    })
}

/// Prints a join string.
fn say_join(
    run: &Run,
    state: &Path,
    volume: StoreId,
    address: String,
    (token, secret): (HostToken, SecretBytes),
) -> Result<Ending> {
    let pin = serve::identity(state)?.pin;
    let id = TokenId::from_hex(&token.id)
        .ok_or_else(|| Error::corrupt("the token has no valid id", state))?;
    let join = JoinString { pin, token: id, secret, volume, address };
    let text = join.reveal();
    // A join string that this version refuses must not be handed out.
    let join: JoinString = text.parse()?;
    run.screen.remark(&format!(
        "token {} for host {}, role {}; on that host, run 'pinstripe connect' with this join \
         string, which is not shown again:",
        token.id, token.host, token.role
    ));
    run.screen.row(&text)?;
    let facts = event(&token, clock::now().0, Event::default());
    Ok(Ending::done(facts.with("join", text).with("server", join.address)))
}

fn list(run: &Run, tokens: &[HostToken], now: i64) -> Result<Ending> {
    let mut rows = Vec::new();
    for token in tokens {
        run.screen.event(&event(token, now, Event::new("token")))?;
        rows.push(row(token, now));
    }
    if rows.is_empty() {
        run.screen.say("there are no tokens: make one with 'pinstripe token add HOST'");
    } else {
        table::lines(&HEAD, &rows).iter().try_for_each(|line| run.screen.row(line))?;
    }
    Ok(Ending::done(Event::default().with("tokens", tokens.len())))
}

fn state_of(token: &HostToken, now: i64) -> &'static str {
    match token.revoked_seconds {
        Some(_) => "revoked",
        None if token.is_valid(now) => "valid",
        None => "expired",
    }
}

fn row(token: &HostToken, now: i64) -> Vec<String> {
    let role = match token.all_hosts {
        true => format!("{}, all hosts", token.role),
        false => token.role.to_string(),
    };
    let span = |seconds| time::rough_span(std::time::Duration::from_secs(seconds));
    vec![
        token.id.clone(),
        token.host.clone(),
        role,
        token.quota_bytes.map_or_else(|| "-".to_owned(), format_size),
        token.expect_seconds.map_or_else(|| "-".to_owned(), span),
        time::date(token.created_seconds),
        state_of(token, now).to_owned(),
    ]
}

fn event(token: &HostToken, now: i64, event: Event) -> Event {
    event
        .with("token", token.id.as_str())
        .with("host", token.host.as_str())
        .with("role", token.role.to_string())
        .with("store", token.volume.as_str())
        .with("all_hosts", token.all_hosts)
        .with_some("quota_bytes", token.quota_bytes)
        .with_some("expect_seconds", token.expect_seconds)
        .with("created_seconds", token.created_seconds)
        .with_some("expires_seconds", token.expires_seconds)
        .with("state", state_of(token, now))
}
