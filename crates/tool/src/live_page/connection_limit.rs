//! Connections at once: those that have not shown the link make way, the oldest first.
//!
//! Whoever is on this machine can connect, and say nothing. If such connections kept their places, nobody who has the link could stop the
//! run: so that a place is kept by whoever was let in, and the others have theirs for as long as nobody else wants it.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use super::server::PageDeadline;

/// Places for so many.
pub(super) struct PageConnectionLimit {
    most: usize,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    taken: usize,
    numbers: u64,
    /// Of those that have not shown the link, in the order in which they came.
    untrusted: VecDeque<(u64, PageDeadline)>,
}

/// A place, until it is dropped.
pub(super) struct PageConnectionPermit {
    places: Rc<PageConnectionLimit>,
    number: u64,
}

impl PageConnectionLimit {
    pub(super) fn new(most: usize) -> Rc<Self> {
        Rc::new(Self { most, state: RefCell::default() })
    }

    /// A place for a connection with this life; none where all are kept. The stranger who makes way is gone once its task has run.
    pub(super) fn acquire(self: &Rc<Self>, life: &PageDeadline) -> Option<PageConnectionPermit> {
        let mut state = self.state.borrow_mut();
        if state.taken >= self.most {
            let (_, oldest) = state.untrusted.pop_front()?;
            oldest.expire_now();
        }
        state.taken += 1;
        state.numbers += 1;
        let number = state.numbers;
        state.untrusted.push_back((number, life.clone()));
        Some(PageConnectionPermit { places: Rc::clone(self), number })
    }
}

impl PageConnectionPermit {
    /// Keeps it: the link was shown.
    pub(super) fn mark_trusted(&self) {
        self.places.state.borrow_mut().untrusted.retain(|(number, _)| *number != self.number);
    }
}

impl Drop for PageConnectionPermit {
    fn drop(&mut self) {
        self.mark_trusted();
        self.places.state.borrow_mut().taken -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_make_way_in_the_order_in_which_they_came_and_those_who_were_let_in_do_not() {
        let places = PageConnectionLimit::new(2);
        let lives = [(); 4].map(|()| PageDeadline::start());
        let first = places.acquire(&lives[0]).unwrap();
        let second = places.acquire(&lives[1]).unwrap();
        first.mark_trusted();
        let third = places.acquire(&lives[2]).unwrap();
        assert_eq!(lives.each_ref().map(PageDeadline::is_expired), [false, true, false, false]);
        drop(second);
        third.mark_trusted();
        assert!(places.acquire(&lives[3]).is_none(), "both are kept");
        drop(first);
        assert!(places.acquire(&lives[3]).is_some());
    }
}
