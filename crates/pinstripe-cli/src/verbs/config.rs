//! `pinstripe config`: checks the config file, or prints it as parsed.

use pinstripe_base::error::{Error, Kind, Result};

use crate::config::Config;
use crate::escape;
use crate::event::Event;
use crate::message::counted;
use crate::run::{Ending, Run};

/// Check the config file, or show its parsed content
///
/// The config file defines stores, backups, and the rules of 'forget'; doc/config.md lists its
/// keys.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe config check
  pinstripe config show
  pinstripe config check --config ./new.toml && mv new.toml ~/.config/pinstripe/config.toml")]
pub struct ConfigArgs {
    /// What to do
    #[arg(value_enum, value_name = "ACT")]
    act: ConfigVerb,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum ConfigVerb {
    /// Check the config file for errors
    Check,
    /// Print the parsed content of the config file
    Show,
}

impl ConfigArgs {
    /// Reads the file and reports it.
    ///
    /// # Errors
    /// Fails with the errors of [`Config::load`]; with [`Kind::NotFound`] if there is no config
    /// file.
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let (config, file) = Config::load(&run.common)?;
        let Some(file) = file else {
            return Err(Error::new(Kind::NotFound, "there is no config file").advice(
                "create ~/.config/pinstripe/config.toml, or give a config file with --config or \
                 PINSTRIPE_CONFIG",
            ));
        };
        run.screen.event(&Event::new("config").with_path("file", &file).with_fields(&config))?;
        if self.act == ConfigVerb::Show {
            let text = toml::to_string(&config).map_err(|error| {
                Error::new(Kind::Unsupported, format!("the config cannot be shown: {error}"))
            })?;
            text.lines().try_for_each(|line| run.screen.row(&escape::text(line)))?;
        } else {
            let stores = counted(config.stores.len() as u64, "store");
            let backups = counted(config.backups.len() as u64, "backup");
            let rules = match config.retention.is_empty() {
                true => "no retention",
                false => "retention",
            };
            let file = escape::path(&file);
            run.screen.say(&format!(
                "the config file {file} is valid; it has {stores}, {backups}, {rules}"
            ));
        }
        let facts = Event::default().with("stores", config.stores.len());
        Ok(Ending::done(facts.with("backups", config.backups.len())))
    }
}
