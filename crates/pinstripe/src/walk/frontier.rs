//! The frontier of the walk: one list in path order of finished work and work still to do.
//!
//! Every step of the list is a run of finished entries, a piece of work, or a placeholder for a
//! piece that a thread has claimed. Finishing a piece replaces it, at its position, by the
//! resulting runs and pieces; so the list is always in path order, its head is what the consumer
//! needs next, and the first piece of work is the most urgent one.
//!
//! Invariants: steps never change their order; at most as many steps are claimed as there are
//! threads, so finding the first unclaimed piece is a short search. The list does no I/O and uses
//! no threads or clocks; the caller holds the lock.

/// Identifies a step until it is finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Key(u32);

/// The content of one step of the list.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step<R, W> {
    /// A finished run that waits for the consumer.
    Ready(R),
    /// To be done.
    Work(W),
}

/// What the head of the list is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Head {
    /// The list is empty: the walk has ended.
    End,
    /// A finished run.
    Ready,
    /// A piece of work that no thread has claimed.
    Work,
    /// A piece of work that a thread is doing right now.
    Claimed,
}

enum ListSlot<R, W> {
    Free,
    Ready(R),
    Work(W),
    Claimed,
}

struct ListNode<R, W> {
    slot: ListSlot<R, W>,
    /// The neighbours in path order, among all steps.
    step: Links,
    /// The neighbours in path order, among unfinished steps only.
    work: Links,
}

#[derive(Clone, Copy)]
struct Links {
    prev: u32,
    next: u32,
}

/// Node 0 closes both rings: its `next` is the head, its `prev` the tail.
const RING: u32 = 0;
const ALONE: Links = Links { prev: RING, next: RING };

/// The list. `R` is the type of a run of finished entries, `W` that of a piece of work.
pub(super) struct Frontier<R, W> {
    nodes: Vec<ListNode<R, W>>,
    free: Vec<u32>,
    /// The number of unclaimed pieces of work.
    unclaimed: usize,
}

impl<R, W> Frontier<R, W> {
    /// Makes an empty list.
    pub fn new() -> Self {
        let ring = ListNode { slot: ListSlot::Free, step: ALONE, work: ALONE };
        Frontier { nodes: vec![ring], free: Vec::new(), unclaimed: 0 }
    }

    /// Adds a step at the end.
    pub fn push_back(&mut self, step: Step<R, W>) {
        self.insert(step, RING, RING);
    }

    /// Inserts a step directly before a claimed one.
    pub(crate) fn insert_before(&mut self, at: Key, step: Step<R, W>) {
        debug_assert!(matches!(self.nodes[at.0 as usize].slot, ListSlot::Claimed));
        self.insert(step, at.0, at.0);
    }

    /// Inserts a step directly after a claimed one.
    pub(crate) fn insert_after(&mut self, at: Key, step: Step<R, W>) {
        let node = &self.nodes[at.0 as usize];
        let (next_step, next_work) = (node.step.next, node.work.next);
        self.insert(step, next_step, next_work);
    }

    fn insert(&mut self, step: Step<R, W>, next_step: u32, next_work: u32) {
        let slot = match step {
            Step::Ready(run) => ListSlot::Ready(run),
            Step::Work(work) => ListSlot::Work(work),
        };
        let unfinished = matches!(slot, ListSlot::Work(_));
        let new = self.allocate(slot);
        self.link(new, next_step, |node| &mut node.step);
        if unfinished {
            self.unclaimed += 1;
            self.link(new, next_work, |node| &mut node.work);
        }
    }

    /// Claims the first unclaimed piece of work; its position in the list is kept.
    pub fn claim(&mut self) -> Option<(Key, W)> {
        if self.unclaimed == 0 {
            return None;
        }
        let mut at = self.nodes[RING as usize].work.next;
        while at != RING {
            let node = &mut self.nodes[at as usize];
            if matches!(node.slot, ListSlot::Work(_)) {
                let ListSlot::Work(work) = std::mem::replace(&mut node.slot, ListSlot::Claimed)
                else {
                    unreachable!("just matched")
                };
                self.unclaimed -= 1;
                return Some((Key(at), work));
            }
            at = node.work.next;
        }
        None
    }

    /// Removes a claimed step, after its results were inserted before it.
    pub fn finish(&mut self, key: Key) {
        let slot = &self.nodes[key.0 as usize].slot;
        debug_assert!(matches!(slot, ListSlot::Claimed), "a step that is finished was claimed");
        self.unlink(key.0, |node| &mut node.work);
        self.unlink(key.0, |node| &mut node.step);
        self.release(key.0);
    }

    /// Removes and returns the head if it is a finished run.
    pub(crate) fn pop_ready(&mut self) -> Option<R> {
        let head = self.nodes[RING as usize].step.next;
        let node = &mut self.nodes[head as usize];
        match std::mem::replace(&mut node.slot, ListSlot::Free) {
            ListSlot::Ready(run) => {
                self.unlink(head, |node| &mut node.step);
                self.free.push(head);
                Some(run)
            }
            other => {
                node.slot = other;
                None
            }
        }
    }

    /// Returns what the head of the list is.
    pub fn head(&self) -> Head {
        match self.nodes[self.nodes[RING as usize].step.next as usize].slot {
            ListSlot::Free => Head::End,
            ListSlot::Ready(_) => Head::Ready,
            ListSlot::Work(_) => Head::Work,
            ListSlot::Claimed => Head::Claimed,
        }
    }

    /// The number of pieces of work that are not claimed.
    pub(crate) fn unclaimed(&self) -> usize {
        self.unclaimed
    }

    /// Whether no work is left, claimed or not.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.nodes[RING as usize].work.next == RING
    }

    fn allocate(&mut self, slot: ListSlot<R, W>) -> u32 {
        let node = ListNode { slot, step: ALONE, work: ALONE };
        if let Some(index) = self.free.pop() {
            self.nodes[index as usize] = node;
            return index;
        }
        let index = u32::try_from(self.nodes.len()).expect("steps fit in memory, so in 32 bits");
        self.nodes.push(node);
        index
    }

    fn release(&mut self, index: u32) {
        debug_assert!(index != RING, "the ring stays");
        self.nodes[index as usize].slot = ListSlot::Free;
        self.free.push(index);
    }

    fn link(&mut self, new: u32, next: u32, ring: impl Fn(&mut ListNode<R, W>) -> &mut Links) {
        let prev = ring(&mut self.nodes[next as usize]).prev;
        *ring(&mut self.nodes[new as usize]) = Links { prev, next };
        ring(&mut self.nodes[prev as usize]).next = new;
        ring(&mut self.nodes[next as usize]).prev = new;
    }

    fn unlink(&mut self, old: u32, ring: impl Fn(&mut ListNode<R, W>) -> &mut Links) {
        let Links { prev, next } = *ring(&mut self.nodes[old as usize]);
        ring(&mut self.nodes[prev as usize]).next = next;
        ring(&mut self.nodes[next as usize]).prev = prev;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(list: &mut Frontier<u32, u32>) -> Vec<u32> {
        std::iter::from_fn(|| list.pop_ready()).collect()
    }

    #[test]
    fn work_is_replaced_in_its_place() {
        let mut list = Frontier::new();
        list.push_back(Step::Ready(1));
        list.push_back(Step::Work(20));
        list.push_back(Step::Ready(5));
        let (key, work) = list.claim().unwrap();
        assert_eq!(work, 20);
        assert_eq!((list.claim(), list.is_exhausted()), (None, false));
        assert_eq!(drain(&mut list), [1]);
        assert_eq!(list.head(), Head::Claimed);
        list.insert_before(key, Step::Ready(2));
        list.insert_before(key, Step::Work(30));
        list.insert_before(key, Step::Ready(4));
        list.finish(key);
        assert_eq!(drain(&mut list), [2]);
        assert_eq!(list.head(), Head::Work);
        let (key, work) = list.claim().unwrap();
        assert_eq!((work, list.unclaimed()), (30, 0));
        list.insert_before(key, Step::Ready(3));
        list.finish(key);
        assert!(list.is_exhausted());
        assert_eq!(drain(&mut list), [3, 4, 5]);
        assert_eq!(list.head(), Head::End);
    }

    #[test]
    fn the_first_work_is_claimed_first() {
        let mut list: Frontier<u32, u32> = Frontier::new();
        list.push_back(Step::Work(1));
        list.push_back(Step::Work(2));
        let (first, work) = list.claim().unwrap();
        assert_eq!(work, 1);
        let (second, work) = list.claim().unwrap();
        assert_eq!(work, 2);
        list.insert_before(second, Step::Work(20));
        list.finish(second);
        list.insert_before(first, Step::Work(10));
        list.insert_after(first, Step::Work(15));
        list.finish(first);
        let (third, work) = list.claim().unwrap();
        assert_eq!(work, 10, "children stand where their directory stood");
        list.finish(third);
        assert_eq!(list.claim().map(|(_, work)| work), Some(15));
        assert_eq!(list.claim().map(|(_, work)| work), Some(20));
    }
}
