//! Catalogs: the model of rows that the embedded catalog and the one of a server share.
//!
//! A catalog has every version of every path in all snapshots. Snapshots of the same host and
//! sources form a *series*, numbered by *ordinals* in the order in which they were taken in. A
//! version is one row with the range of ordinals that hold it. Blocks of names tell a search which
//! paths to look up.
//!
//! Invariant: everything here is pure, except the trait [`SharedCatalog`], which a client of a
//! server implements.

mod glob;
mod history;
mod names;
mod pattern;
mod query;
mod rows;
mod shared;

pub use glob::Glob;
pub use history::{Version, history_of};
pub use names::{encode as encode_names, scan as scan_names};
pub use pattern::{NameHint, PathPattern, PatternPlace, fold_case};
pub use query::{FoundVersion, Holder, Query, SORTED_MAX, SnapshotSeries, sort_found};
pub use rows::{Change, Facts, join as join_path, kind_and_mode, split as split_path};
pub use shared::{
    AnswerRow, CatalogAnswer, CatalogQuestion, CatalogSize, ChangeSink, SharedCatalog, SharedHead,
    SnapshotSync,
};
