//! The options that choose snapshots by host, path and tag.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use clap::ValueHint;
use pinstripe::SnapshotChoice;
use pinstripe_base::error::{Error, Kind, Result};

use crate::run::Run;
use crate::system;

/// Options that choose snapshots.
#[derive(clap::Args)]
#[command(next_help_heading = "Choice of snapshots")]
pub struct ChoiceArgs {
    /// Only snapshots of this host; may be given more than once
    ///
    /// Without --host and --all-hosts, 'latest' means the latest snapshot of this host: of the
    /// machine's name, and of each host name in the config file.
    #[arg(id = "of_host", long = "host", value_name = "NAME")]
    host: Vec<OsString>,

    /// Only snapshots that were made of this path, as 'pinstripe snapshots' shows it; if given more
    /// than once, of all these paths
    #[arg(id = "of_path", long = "path", value_name = "PATH", value_hint = ValueHint::AnyPath)]
    path: Vec<PathBuf>,

    /// Only snapshots with this tag; if given more than once, with one of these tags
    #[arg(id = "of_tag", long = "tag", value_name = "TAG")]
    tag: Vec<String>,
}

impl ChoiceArgs {
    /// The snapshots that these options choose; `latest` means that of all hosts with `all_hosts`.
    ///
    /// # Errors
    /// Fails with [`Kind::Usage`] for an empty value; with the errors of the config file.
    pub fn choice(&self, run: &Run, all_hosts: bool) -> Result<SnapshotChoice> {
        let is_empty = self.host.iter().any(|it| it.is_empty())
            || self.path.iter().any(|it| it.as_os_str().is_empty())
            || self.tag.iter().any(String::is_empty);
        if is_empty {
            return Err(Error::new(Kind::Usage, "the value of --host, --path or --tag is empty")
                .advice("omit the option to choose from all snapshots"));
        }
        let absolute = |path: &PathBuf| {
            std::path::absolute(path)
                .map_err(|error| Error::io("cannot find the working directory", path, error))
        };
        let paths = self.path.iter().map(absolute).collect::<Result<Vec<_>>>()?;
        let own_hosts = match all_hosts {
            true => Vec::new(),
            false => {
                let named = run.config()?.host_names().map(|it| it.as_bytes().to_vec());
                std::iter::once(system::host_name()).chain(named).collect()
            }
        };
        Ok(SnapshotChoice {
            hosts: self.host.iter().map(|host| host.as_bytes().to_vec()).collect(),
            paths: paths.iter().map(|path| path.as_os_str().as_bytes().to_vec()).collect(),
            tags: self.tag.clone(),
            own_hosts,
        })
    }
}

/// Options that choose snapshots, for verbs without a catalog.
#[derive(clap::Args)]
pub struct HostChoiceArgs {
    #[command(flatten)]
    choice: ChoiceArgs,

    /// 'latest' means the latest snapshot of all hosts
    #[arg(long, help_heading = "Choice of snapshots", conflicts_with = "of_host")]
    all_hosts: bool,
}

impl HostChoiceArgs {
    /// The snapshots that these options choose.
    ///
    /// # Errors
    /// Fails with the errors of [`ChoiceArgs::choice`].
    pub fn choice(&self, run: &Run) -> Result<SnapshotChoice> {
        self.choice.choice(run, self.all_hosts)
    }
}
