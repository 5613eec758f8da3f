//! The limit of connections: those that have not shown the token yield their places, the oldest first.
//!
//! Any user of this machine can connect and stay silent. If such connections kept their places, nobody with the link could stop
//! the run. So a connection keeps its place once it has shown the token, and others keep theirs only while nobody else needs it.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use super::server::PageConnectionDeadline;

/// A number of places for connections.
pub(super) struct PageConnectionLimit {
    most: usize,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    taken: usize,
    numbers: u64,
    /// Connections that have not shown the token, in order of arrival.
    untrusted: VecDeque<(u64, PageConnectionDeadline)>,
}

/// A place for a connection, until it is dropped.
pub(super) struct PageConnectionPermit {
    places: Rc<PageConnectionLimit>,
    number: u64,
}

impl PageConnectionLimit {
    pub(super) fn new(most: usize) -> Rc<Self> {
        Rc::new(Self { most, state: RefCell::default() })
    }

    /// Returns a place for a connection with this deadline; `None` if trusted connections hold all. The connection that yields
    /// ends once its task runs.
    pub(super) fn acquire(self: &Rc<Self>, life: &PageConnectionDeadline) -> Option<PageConnectionPermit> {
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
    /// Keeps the place, because the connection has shown the token.
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
        let lives = [(); 4].map(|()| PageConnectionDeadline::start());
        let first = places.acquire(&lives[0]).unwrap();
        let second = places.acquire(&lives[1]).unwrap();
        first.mark_trusted();
        let third = places.acquire(&lives[2]).unwrap();
        assert_eq!(lives.each_ref().map(PageConnectionDeadline::is_expired), [false, true, false, false]);
        drop(second);
        third.mark_trusted();
        assert!(places.acquire(&lives[3]).is_none(), "both are kept");
        drop(first);
        assert!(places.acquire(&lives[3]).is_some());
    }
}
