//! `pinstripe completions`: prints the script with which a shell completes pinstripe's command
//! line.

use clap::Command;
use clap_complete::Shell;
use pinstripe_base::error::Result;

use crate::args::refuse_option;
use crate::run::{Ending, Run};

/// Print the completion script for a shell
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe completions bash > ~/.local/share/bash-completion/completions/pinstripe
  pinstripe completions zsh > ~/.zfunc/_pinstripe
  pinstripe completions fish > ~/.config/fish/completions/pinstripe.fish")]
pub struct CompletionsArgs {
    /// The shell that uses the completion script
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

impl CompletionsArgs {
    /// Prints the script.
    ///
    /// # Errors
    /// Fails when standard output cannot be written.
    pub fn run(&self, run: &Run, mut command: Command) -> Result<Ending> {
        refuse_option(
            run.common.json,
            "--json",
            "the completion script is always printed as plain text",
        )?;
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut command, "pinstripe", &mut script);
        let script = String::from_utf8_lossy(&script);
        run.screen.row(script.trim_end())?;
        Ok(Ending::default())
    }
}
