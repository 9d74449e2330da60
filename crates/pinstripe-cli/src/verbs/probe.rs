//! `pinstripe probe`: tests an S3 endpoint.

use std::path::PathBuf;

use pinstripe_base::error::{Error, Kind, Result};
use pinstripe_bucket::Ability;

use crate::event::Event;
use crate::run::{Ending, Run};
use crate::table::{self, Side};

/// Test whether an S3 endpoint gives the guarantees that a store needs
///
/// Creates, lists and removes objects below PLACE. For some objects, several writers try to create
/// the same object at the same time. The tests make about 500 requests. 'init' and 'member add'
/// always test whether only one of several writers can create an object.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  pinstripe probe s3://backups/host --endpoint https://s3.example.org
  pinstripe probe s3+https://s3.example.org/backups/host --json")]
pub struct ProbeArgs {
    /// A prefix in a bucket: s3://BUCKET/PREFIX
    #[arg(value_name = "PLACE")]
    place: PathBuf,
}

const HEAD: [(&str, Side); 3] = [("what", Side::Left), ("works", Side::Left), ("seen", Side::Left)];

impl ProbeArgs {
    /// Makes all tests and prints a table.
    ///
    /// # Errors
    /// Fails with the errors of the endpoint; with [`Kind::NoOneWinner`] when the endpoint lacks a
    /// property that a store needs.
    pub fn run(&self, run: &Run) -> Result<Ending> {
        let place = run.place(&self.place)?;
        let report = run.buckets().probe(&place)?;
        for ability in &report.abilities {
            run.screen.event(&event(ability))?;
        }
        let rows: Vec<_> = report.abilities.iter().map(row).collect();
        for line in table::lines(&HEAD, &rows) {
            run.screen.row(&line)?;
        }
        if let Some(refused) = report.refused {
            return Err(refused);
        }
        match report.missing() {
            None => Ok(Ending::done(Event::default().with_path("place", &place))),
            Some(missing) => {
                let what =
                    format!("this endpoint lacks an ability that a store needs: {}", missing.what);
                Err(Error::new(Kind::NoOneWinner, what)
                    .at(place)
                    .expected("that every attempt succeeds", &missing.seen)
                    .advice(
                        "use another endpoint; an endpoint that lacks only create-if-absent can be \
                         used with --one-writer",
                    ))
            }
        }
    }
}

fn row(ability: &Ability) -> Vec<String> {
    let works = match (ability.is_there, ability.is_needed) {
        (true, _) => "yes",
        (false, true) => "NO",
        (false, false) => "no, but not needed",
    };
    vec![ability.what.to_owned(), works.to_owned(), ability.seen.clone()]
}

fn event(ability: &Ability) -> Event {
    Event::new("ability")
        .with("what", ability.what)
        .with("is_there", ability.is_there)
        .with("is_needed", ability.is_needed)
        .with("seen", ability.seen.as_str())
}
