//! `pinstripe lab list`.

use pinstripe_base::error::Result;
use pinstripe_lab::{CASES, Case};

use crate::event::Event;
use crate::run::{Ending, Run};
use crate::table::{self, Side};

/// List the cases that can be run
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe lab list")]
pub struct LabListArgs {}

impl LabListArgs {
    /// Prints a line for each case.
    ///
    /// # Errors
    /// Fails when standard output cannot be written.
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let row = |case: &&Case| vec![case.name.to_owned(), case.about.to_owned()];
        let rows: Vec<Vec<String>> = CASES.iter().map(row).collect();
        let head = [("case", Side::Left), ("what it measures", Side::Left)];
        table::lines(&head, &rows).iter().try_for_each(|line| run.screen.row(line))?;
        for case in CASES {
            let event = Event::new("lab_case").with("case", case.name).with("about", case.about);
            run.screen.event(&event)?;
        }
        Ok(Ending::done(Event::default().with("cases", CASES.len())))
    }
}
