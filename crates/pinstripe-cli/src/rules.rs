//! The rules that select which snapshots are kept, as written on the command line and in the config
//! file.

use std::fmt::Display;
use std::str::FromStr;

use pinstripe_stripe::{GroupBy, Policy};
use serde::Serialize;

use crate::time;

/// Rules that keep snapshots, and the groups to which they apply; a rule that is not given keeps
/// nothing.
#[derive(clap::Args, Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[group(skip)]
#[serde(rename_all = "kebab-case")]
pub struct Rules {
    /// Keep the newest N snapshots
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_last: Option<u64>,

    /// Keep the newest snapshot of each of the last N hours that have a snapshot
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_hourly: Option<u64>,

    /// Keep the newest snapshot of each of the last N days that have a snapshot
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_daily: Option<u64>,

    /// Keep the newest snapshot of each of the last N weeks that have a snapshot
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_weekly: Option<u64>,

    /// Keep the newest snapshot of each of the last N months that have a snapshot
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_monthly: Option<u64>,

    /// Keep the newest snapshot of each of the last N years that have a snapshot
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_yearly: Option<u64>,

    /// Keep all snapshots with this tag; may be given more than once
    #[arg(long, value_name = "TAG")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keep_tag: Vec<String>,

    /// Keep all snapshots that are at most this much older than the newest snapshot, for example
    /// 36h, 30d, 8w, 6m or 2y
    ///
    /// The unit m is 30 days, and the unit y is 365 days. The age of a snapshot is measured from
    /// the newest snapshot, not from the present time.
    #[arg(long, value_name = "SPAN")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_within: Option<TimeSpan>,

    /// Keep the newest snapshot of each hour, up to this age
    #[arg(long, value_name = "SPAN")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_within_hourly: Option<TimeSpan>,

    /// Keep the newest snapshot of each day, up to this age
    #[arg(long, value_name = "SPAN")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_within_daily: Option<TimeSpan>,

    /// Keep the newest snapshot of each week, up to this age
    #[arg(long, value_name = "SPAN")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_within_weekly: Option<TimeSpan>,

    /// Keep the newest snapshot of each month, up to this age
    #[arg(long, value_name = "SPAN")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_within_monthly: Option<TimeSpan>,

    /// Keep the newest snapshot of each year, up to this age
    #[arg(long, value_name = "SPAN")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_within_yearly: Option<TimeSpan>,

    /// Apply the rules separately to each group of snapshots that have these properties in common:
    /// host, paths and tags, separated by commas; the default is host,paths
    ///
    /// With 'none', all snapshots are one group. A property that is not named may differ
    /// within a group: with 'host', the rules count all snapshots of a host together, whatever
    /// their paths are. The order of tags does not matter.
    #[arg(long, value_name = "PROPERTIES")]
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "as_text")]
    pub group_by: Option<GroupBy>,
}

/// A span of time: its text, and its length in seconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct TimeSpan {
    text: String,
    #[serde(skip)]
    seconds: u64,
}

impl TimeSpan {
    /// The length in seconds.
    pub fn seconds(&self) -> u64 {
        self.seconds
    }
}

impl FromStr for TimeSpan {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(TimeSpan { text: text.to_owned(), seconds: time::parse_span(text)? })
    }
}

/// Writes a value as in the config file.
fn as_text<T: Display, S: serde::Serializer>(
    value: &Option<T>,
    to: S,
) -> std::result::Result<S::Ok, S::Error> {
    value.as_ref().map(ToString::to_string).serialize(to)
}

impl Rules {
    /// Whether nothing is given.
    pub fn is_empty(&self) -> bool {
        *self == Rules::default()
    }

    /// Whether a rule is given: groups alone keep nothing.
    pub fn has_rule(&self) -> bool {
        !self.policy().is_empty()
    }

    /// Converts the rules to the form that the library takes.
    pub fn policy(&self) -> Policy {
        let seconds = |span: &Option<TimeSpan>| span.as_ref().map(|span| span.seconds);
        Policy {
            last: self.keep_last,
            hourly: self.keep_hourly,
            daily: self.keep_daily,
            weekly: self.keep_weekly,
            monthly: self.keep_monthly,
            yearly: self.keep_yearly,
            tags: self.keep_tag.clone(),
            within_seconds: seconds(&self.keep_within),
            hourly_within_seconds: seconds(&self.keep_within_hourly),
            daily_within_seconds: seconds(&self.keep_within_daily),
            weekly_within_seconds: seconds(&self.keep_within_weekly),
            monthly_within_seconds: seconds(&self.keep_within_monthly),
            yearly_within_seconds: seconds(&self.keep_within_yearly),
        }
    }
}
