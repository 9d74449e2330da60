//! A server through which many hosts use one store.
//!
//! The server holds members and no key of the store: it moves ciphertext. Each request carries a
//! token; the token's role, and what its host has put itself, decide what the request may do.
//!
//! Invariants:
//!
//! * A request is answered with success only when what it asked for is durable.
//! * What a role forbids is refused before a member is called.
//! * Memory is bounded: bodies are moved in pieces, or within a budget that all requests share.
//! * Every wait has a deadline: for a handshake, a header, a piece of a body, a member.

mod access_log;
mod alarms;
mod answer;
mod app;
mod auth;
mod body;
mod catalog;
mod catalog_routes;
mod checks;
mod events;
mod extent;
mod identity;
mod jobs;
mod ledger;
mod listen;
mod logins;
mod look;
mod metrics;
mod notify;
mod objects;
mod open_sets;
mod overview;
mod page;
mod peers;
mod role;
mod routes;
mod sets;
mod state_file;
mod status;
mod tls;
mod tokens;
mod volume;
mod watch;

pub use access_log::AccessLog;
pub use catalog::DatabaseTarget;
pub use identity::ServerKey;
pub use jobs::{JobPlan, JobPlans, ReplacePlan};
pub use listen::{ServerOptions, StoreServer};
pub use notify::{AlarmTargets, MailCommand, Webhook};
pub use role::TokenRole;
pub use state_file::{read_json as read_state, replace_json as replace_state};
pub use tls::ClientAuthority;
pub use tokens::{HostToken, NewToken, TokenStore};
pub use volume::{ServedVolume, export_id};
