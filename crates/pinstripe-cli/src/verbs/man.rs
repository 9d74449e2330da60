//! `pinstripe man`: prints the manual pages, which are generated from the table of options.

use std::path::PathBuf;

use clap::{Command, ValueHint};
use clap_mangen::Man;
use pinstripe_base::error::{Error, Result};

use crate::args::refuse_option;
use crate::escape;
use crate::run::{Ending, Run};

/// Print the manual page, or write all pages into a directory
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe man | man -l -
  pinstripe man --out ~/.local/share/man/man1")]
pub struct ManArgs {
    /// Write pinstripe.1 and one manual page for each verb into this directory
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    out: Option<PathBuf>,
}

impl ManArgs {
    /// Prints or writes the pages.
    ///
    /// # Errors
    /// Fails when the directory or standard output cannot be written.
    pub fn run(&self, run: &Run, command: Command) -> Result<Ending> {
        refuse_option(run.common.json, "--json", "a manual page is always printed as plain text")?;
        match &self.out {
            Some(out) => {
                let failed = |error| Error::io("cannot write the manual pages", out, error);
                std::fs::create_dir_all(out).map_err(failed)?;
                clap_mangen::generate_to(command, out).map_err(failed)?;
                run.screen.say(&format!("wrote the manual pages to {}", escape::path(out)));
            }
            None => {
                let mut page = Vec::new();
                let rendered = Man::new(command).render(&mut page);
                rendered.map_err(|error| {
                    Error::io("cannot create the manual page", "pinstripe.1", error)
                })?;
                run.screen.row(String::from_utf8_lossy(&page).trim_end())?;
            }
        }
        Ok(Ending::default())
    }
}
