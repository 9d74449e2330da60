//! Distributes streams over threads.

/// Distributes items over `threads` shares in turn, so that the lengths of two shares differ by at
/// most one.
pub(crate) fn dealt<T>(items: Vec<T>, threads: usize) -> Vec<Vec<T>> {
    let mut shares: Vec<Vec<T>> = (0..threads).map(|_| Vec::new()).collect();
    for (number, item) in items.into_iter().enumerate() {
        shares[number % threads].push(item);
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_dealt_in_turns() {
        assert_eq!(dealt(vec![1, 2, 3, 4, 5], 2), [vec![1, 3, 5], vec![2, 4]]);
        assert_eq!(dealt(vec![1], 3), [vec![1], vec![], vec![]]);
        assert_eq!(dealt(Vec::<u8>::new(), 1), [vec![0; 0]]);
    }
}
