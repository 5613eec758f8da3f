//! A queue of events that were reported and not handled yet. Its memory is reused after all events were handled, which is after
//! every event of the poller; a ring buffer would cost more for each event.

#[derive(Debug)]
pub(crate) struct PendingEvents<T> {
    all: Vec<T>,
    heard: usize,
}

impl<T: Copy> PendingEvents<T> {
    pub(crate) fn new() -> Self {
        Self { all: Vec::new(), heard: 0 }
    }

    #[inline]
    pub(crate) fn push(&mut self, one: T) {
        self.all.push(one);
    }

    #[inline]
    pub(crate) fn next(&mut self) -> Option<T> {
        let next = self.all.get(self.heard).copied();
        match next {
            Some(_) => self.heard += 1,
            None => {
                self.heard = 0;
                self.all.clear();
            }
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_while_it_is_heard_comes_in_its_turn() {
        let mut told = PendingEvents::new();
        [1, 2].into_iter().for_each(|one| told.push(one));
        assert_eq!(told.next(), Some(1));
        told.push(3);
        assert_eq!(std::iter::from_fn(|| told.next()).collect::<Vec<_>>(), [2, 3]);
        told.push(4);
        assert_eq!((told.next(), told.next(), told.all.len()), (Some(4), None, 0));
    }
}
