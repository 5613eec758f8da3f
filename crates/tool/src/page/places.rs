//! Connections at once: those that have not shown the link make way, the oldest first.
//!
//! Whoever is on this machine can connect, and say nothing. If such connections kept their places, nobody who has the link could stop the
//! run: so that a place is kept by whoever was let in, and the others have theirs for as long as nobody else wants it.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use super::server::Life;

/// Places for so many.
pub(super) struct Places {
    most: usize,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    taken: usize,
    numbers: u64,
    /// Of those that have not shown the link, in the order in which they came.
    strangers: VecDeque<(u64, Life)>,
}

/// A place, until it is dropped.
pub(super) struct Place {
    places: Rc<Places>,
    number: u64,
}

impl Places {
    pub(super) fn new(most: usize) -> Rc<Self> {
        Rc::new(Self { most, state: RefCell::default() })
    }

    /// A place for a connection with this life; none where all are kept. The stranger who makes way is gone once its task has run.
    pub(super) fn take(self: &Rc<Self>, life: &Life) -> Option<Place> {
        let mut state = self.state.borrow_mut();
        if state.taken >= self.most {
            let (_, oldest) = state.strangers.pop_front()?;
            oldest.end();
        }
        state.taken += 1;
        state.numbers += 1;
        let number = state.numbers;
        state.strangers.push_back((number, life.clone()));
        Some(Place { places: Rc::clone(self), number })
    }
}

impl Place {
    /// Keeps it: the link was shown.
    pub(super) fn keep(&self) {
        self.places.state.borrow_mut().strangers.retain(|(number, _)| *number != self.number);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.keep();
        self.places.state.borrow_mut().taken -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_make_way_in_the_order_in_which_they_came_and_those_who_were_let_in_do_not() {
        let places = Places::new(2);
        let lives = [(); 4].map(|()| Life::begin());
        let first = places.take(&lives[0]).unwrap();
        let second = places.take(&lives[1]).unwrap();
        first.keep();
        let third = places.take(&lives[2]).unwrap();
        assert_eq!(lives.each_ref().map(Life::is_over), [false, true, false, false]);
        drop(second);
        third.keep();
        assert!(places.take(&lives[3]).is_none(), "both are kept");
        drop(first);
        assert!(places.take(&lives[3]).is_some());
    }
}
