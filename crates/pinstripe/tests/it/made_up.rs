//! Trees that no backup would write, of any shape, shown by a mount (`pinstripe_sim::MadeUpTree`).

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use pinstripe_sim::{MadeUpTree, show_tree};

    fn path() -> impl Strategy<Value = Vec<u8>> {
        let parts = ["a", "b", "c", "..", ".", "", "\0", "long name"];
        vec(prop::sample::select(parts.to_vec()), 0..4)
            .prop_map(|parts| parts.join("/").into_bytes())
    }

    fn number() -> impl Strategy<Value = u64> {
        prop_oneof![0..9_u64, Just(1 << 63), Just(u64::MAX), any::<u64>()]
    }

    fn tree() -> impl Strategy<Value = MadeUpTree> {
        let entry = (path(), any::<u8>(), number(), vec((0..9_u32, any::<u32>()), 0..3), number());
        let entry = (entry, path()).prop_map(|((path, kind, size, extents, links), target)| {
            (path, kind, size, extents, links, target)
        });
        let page = (vec(entry, 0..6), prop::option::weighted(0.1, vec(any::<u8>(), 0..40)));
        let child = (path(), any::<u8>(), number());
        (vec(page, 0..4), vec(vec(child, 0..5), 0..9), number())
    }

    /// The place behind the last entry is behind all others, whatever the root says: a program that
    /// lists went back to the first entry otherwise, and never came to an end.
    #[test]
    fn a_listing_ends_where_the_root_tells_of_fewer_entries_than_there_are() {
        let file = |name: &str| (name.into(), 0, 0, Vec::new(), 1, Vec::new());
        let page = (["a", "b", "c", "d"].map(file).to_vec(), None);
        show_tree(&(vec![page], Vec::new(), 1));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn a_tree_of_any_shape_is_shown_to_its_end(tree in tree()) {
            show_tree(&tree);
        }
    }

    /// Nodes in nodes, each with many children that are one and the same: more places than anyone
    /// could go through.
    #[test]
    fn pages_in_more_places_than_can_be_counted_end() {
        let child = |number: u8, which: u8| (vec![b'a' + number], which, u64::MAX / 1000);
        let below = |which: u8| (0..20).map(|number| child(number, which)).collect::<Vec<_>>();
        let file = |path: &[u8]| (path.to_vec(), 0, 0, vec![], 1, vec![]);
        let pages = vec![(vec![file(b"a"), file(b"b/c")], None)];
        // Objects are counted from the first page on, then comes one that is not there, then the nodes.
        let lost = (0..8).map(|level| below(level + 1)).collect();
        let readable = (0..8).map(|level| below(if level == 0 { 0 } else { level + 1 })).collect();
        for levels in [vec![below(0); 8], lost, readable] {
            for entries in [5, 1 << 40, u64::MAX] {
                show_tree(&(pages.clone(), levels.clone(), entries));
            }
        }
    }
}
