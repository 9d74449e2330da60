//! Tests of the command as its users meet it: arguments in; messages, events, exit codes out.

#![allow(clippy::disallowed_methods, clippy::disallowed_macros, reason = "a test")]

mod array;
#[cfg(feature = "s3")]
mod buckets;
mod buckets_cached;
mod buckets_locked;
mod buckets_mixed;
mod buckets_one_writer;
mod buckets_others;
mod buckets_quota;
mod buckets_refused;
mod buckets_soak;
mod buckets_tls;
mod choice;
mod clocks;
mod content;
mod daily;
mod descriptors;
mod diff;
mod excludes;
mod fakevmcore;
mod faults;
mod figures;
mod flow;
mod forget;
mod gc;
mod help;
mod init;
mod json;
mod key;
mod kill;
mod knobs;
mod lab;
mod lab_agents;
mod lab_command;
mod lab_fs;
mod member;
mod messages;
mod mount;
mod mount_checks;
mod mount_readers;
mod mount_trouble;
mod older;
mod oracle;
mod overlay;
mod pairs_soak;
mod places;
mod pools;
mod record;
mod record_bad;
mod record_dirs;
mod record_full;
mod record_io;
mod remembered;
mod remote;
mod scrub;
mod search;
mod secrets;
#[cfg(feature = "serve")]
mod serve;
mod serve_buckets;
mod serve_certificates;
#[cfg(feature = "serve")]
mod serve_jobs;
#[cfg(feature = "serve")]
mod serve_killed;
#[cfg(feature = "serve")]
mod serve_trouble;
#[cfg(feature = "serve")]
mod shared_catalog;
mod silent;
mod split;
mod stand;
mod store;
mod tag;
mod to_file;
mod trouble;
mod unmet;
