//! Bytes that connections hold while they wait, and the bound on all of them together. Used by `serve` only.
//!
//! A head that arrived in part and an answer that its client does not read are the only bytes a connection keeps. Both are
//! rare on a node: a metadata client's head is one segment, and its answer fits the socket. So a bound far below what
//! all connections could hold troubles nobody, and without it two hostile pods with a thousand half heads each would
//! take more memory than the whole agent may have.

use std::cell::Cell;
use std::ops::Deref;
use std::rc::Rc;

/// Most bytes held on one thread: more than a hundred of the largest heads.
const MOST: usize = 2 * 1024 * 1024;

/// How many bytes one thread's connections hold.
#[derive(Clone, Debug, Default)]
pub(crate) struct Budget(Rc<Cell<usize>>);

/// What one connection holds; given back when dropped.
#[derive(Debug)]
pub(crate) struct Held {
    bytes: Vec<u8>,
    budget: Budget,
}

impl Budget {
    /// Holds nothing yet, and no buffer.
    pub(crate) fn nothing(&self) -> Held {
        Held { bytes: Vec::new(), budget: self.clone() }
    }
}

impl Held {
    /// Holds these bytes instead. False, and nothing is held, if that is too much for the thread.
    ///
    /// Nothing is held without a buffer, not even an empty one that once was large.
    pub(crate) fn replace(&mut self, bytes: &[u8]) -> bool {
        if bytes.is_empty() && self.bytes.is_empty() {
            return true;
        }
        let others = self.budget.0.get() - self.bytes.len();
        let fits = bytes.is_empty() || others + bytes.len() <= MOST;
        self.bytes = if fits { bytes.to_vec() } else { Vec::new() };
        self.budget.0.set(others + self.bytes.len());
        fits
    }
}

impl Deref for Held {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.budget.0.set(self.budget.0.get() - self.bytes.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_can_be_held_again() {
        let budget = Budget::default();
        let (mut one, mut two) = (budget.nothing(), budget.nothing());
        assert!(one.replace(&[1; MOST - 10]));
        assert!(two.replace(&[2; 10]));
        assert!(!two.replace(&[2; 11]));
        assert!(two.is_empty(), "what does not fit is not held in part");
        assert!(two.replace(&[2; 10]) && one.replace(&[1; 5]) && two.replace(&[2; MOST - 5]));
        drop(two);
        assert!(one.replace(&[1; MOST]));
        assert!(one.replace(&[]) && budget.0.get() == 0);
    }
}
