//! Searches for the greatest number that still succeeds: doubling, then bisection.

use pinstripe_base::error::Result;

/// The result of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// The largest number that succeeded; 0 if none did.
    pub most: u64,
    /// The smallest number that failed; `None` if all up to the limit succeeded.
    pub over: Option<u64>,
    /// The number of tries.
    pub tries: u64,
}

/// The search ends when the largest number that succeeded and the smallest number that failed
/// differ by at most this share of the former.
const NARROW: u64 = 16;

/// Finds the largest number up to a limit that succeeds, beginning with `start`. The search assumes
/// that every smaller number succeeds if a larger one does: each number is tried only once, and the
/// result of another try might differ by chance.
///
/// # Errors
/// The errors of a try.
pub fn most(start: u64, limit: u64, mut goes: impl FnMut(u64) -> Result<bool>) -> Result<Found> {
    let mut found = Found { most: 0, over: None, tries: 0 };
    let mut next = start.clamp(1, limit.max(1));
    loop {
        found.tries += 1;
        match goes(next)? {
            true => found.most = next,
            false => found.over = Some(next),
        }
        next = match found.over {
            None if found.most >= limit => return Ok(found),
            None => (found.most * 2).min(limit),
            Some(over) if over - found.most <= (found.most / NARROW).max(1) => return Ok(found),
            Some(over) => found.most + (over - found.most) / 2,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(start: u64, limit: u64, truth: u64) -> Found {
        let mut tried = Vec::new();
        let found = most(start, limit, |it| {
            assert!(it >= 1 && it <= limit && !tried.contains(&it), "{it} of {tried:?}");
            tried.push(it);
            Ok(it <= truth)
        });
        let found = found.unwrap();
        assert_eq!(found.tries, tried.len() as u64);
        found
    }

    #[test]
    fn it_ends_next_to_the_truth_from_wherever_it_starts() {
        for truth in [1, 2, 3, 15, 50, 51, 99, 100, 700, 1023] {
            for start in [1, 7, 50, 1000] {
                let found = found(start, 1024, truth);
                let over = found.over.unwrap();
                assert!(found.most <= truth && truth < over, "{truth} from {start}: {found:?}");
                assert!(over - found.most <= (found.most / 16).max(1), "{truth}: {found:?}");
                assert!(found.tries <= 20, "{found:?}");
            }
        }
    }

    #[test]
    fn a_limit_that_goes_and_a_single_one_that_does_not_end_it_too() {
        assert_eq!(found(50, 300, 5000), Found { most: 300, over: None, tries: 4 });
        assert_eq!(found(500, 300, 5000), Found { most: 300, over: None, tries: 1 });
        let none = found(50, 300, 0);
        assert_eq!((none.most, none.over), (0, Some(1)));
    }

    #[test]
    fn an_error_of_a_try_ends_it() {
        let broken =
            |_| Err(pinstripe_base::error::Error::new(pinstripe_base::error::Kind::Io, "broken"));
        assert!(most(1, 10, broken).is_err());
    }
}
