//! Decides which results belong to the same execution. A copy of a file under another name, a page
//! made from it, and the part that an interrupted run had saved all belong to the same execution:
//! it counts once, and is not compared with itself.

use pinstripe_base::error::{Error, Kind, Result};

use super::{Results, Run};

impl Results {
    /// Whether both results belong to the same execution: it began in the same second with the same
    /// seed on the same machine, and each variant with runs in both results has the same first run
    /// in both. Later runs may be missing in one of the two results.
    pub(crate) fn is_same_execution(&self, other: &Results) -> bool {
        let begun = |it: &Results| (it.started_seconds, it.seed);
        if (begun(self), &self.case, &self.fingerprint.host)
            != (begun(other), &other.case, &other.fingerprint.host)
        {
            return false;
        }
        let first_of_both = self.variants.iter().filter_map(|variant| {
            Some((variant.runs.first()?, other.variant(&variant.name)?.runs.first()?))
        });
        let equal: Vec<bool> = first_of_both.map(|(one, other)| is_same(one, other)).collect();
        !equal.is_empty() && equal.into_iter().all(|it| it)
    }
}

/// Whether two runs are the same run, by the data that neither a page nor a label changes.
fn is_same(one: &Run, other: &Run) -> bool {
    let times = |run: &Run| (run.order, run.at_s, run.seconds);
    let moved = |run: &Run| {
        let measured = &run.measured;
        (measured.value, measured.operations, measured.read_bytes, measured.written_bytes)
    };
    times(one) == times(other) && moved(one) == moved(other)
}

/// Fails if two of the results come from the same execution. Each result has the name under which
/// it was given.
///
/// # Errors
/// [`Kind::Usage`] with the names of the first two such results.
pub fn refuse_repeated(named: &[(String, &Results)]) -> Result<()> {
    for (at, (name, results)) in named.iter().enumerate() {
        let is_it = |(_, earlier): &&(String, &Results)| earlier.is_same_execution(results);
        if let Some((earlier, _)) = named[..at].iter().find(is_it) {
            let what = format!("{earlier} and {name} contain results of the same execution");
            return Err(Error::new(Kind::Usage, what)
                .advice("each execution can be used only once: leave out one of the two files"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tests::results;
    use super::*;

    #[test]
    fn an_execution_is_known_again_in_a_copy_a_page_and_an_interrupted_one() {
        let whole = results(&[("a", &[97.1, 99.8, 100.3]), ("b", &[110.2, 112.8, 109.1])]);
        let mut accepted = whole.clone();
        accepted.accept_noise();
        let mut interrupted = whole.clone();
        interrupted.variants[0].runs.truncate(2);
        interrupted.variants[1].runs.clear();
        let mut thinned = whole.clone();
        for run in thinned.variants.iter_mut().flat_map(|it| &mut it.runs) {
            run.samples.clear();
            run.measured.latency.clear();
        }
        for same in [&whole, &accepted, &interrupted, &thinned] {
            assert!(whole.is_same_execution(same) && same.is_same_execution(&whole));
        }
        // Another one of the same second, and one of the same values at another time.
        let other = results(&[("a", &[97.2, 99.8, 100.3]), ("b", &[110.2, 112.8, 109.1])]);
        let later = Results { started_seconds: whole.started_seconds + 1, ..whole.clone() };
        let seeded = Results { seed: 2, ..whole.clone() };
        for other in [other, later, seeded, results(&[])] {
            assert!(!whole.is_same_execution(&other));
        }
    }

    #[test]
    fn two_of_one_execution_are_refused_by_the_names_they_were_given_by() {
        let one = results(&[("a", &[97.1, 99.8])]);
        let two = Results { started_seconds: one.started_seconds + 9, ..one.clone() };
        let named = |all: &[(&str, &Results)]| -> Result<()> {
            let all: Vec<(String, Results)> =
                all.iter().map(|(name, it)| ((*name).to_owned(), (*it).clone())).collect();
            let all: Vec<(String, &Results)> =
                all.iter().map(|(name, it)| (name.clone(), it)).collect();
            refuse_repeated(&all)
        };
        assert!(named(&[("e1.json", &one), ("e2.json", &two)]).is_ok());
        let copy = named(&[("e1.json", &one), ("e2.json", &two), ("copy.json", &one)]);
        let error = copy.unwrap_err();
        assert_eq!(error.kind(), Kind::Usage);
        assert_eq!(error.what(), "e1.json and copy.json contain results of the same execution");
    }
}
