//! Limits the memory that the connections of each client use for buffered bytes. Each thread has one budget.
//!
//! A connection buffers bytes in only three cases:
//! - The connection has received a partial head.
//! - The connection has received more requests while an answer is not ready yet.
//! - The client does not read an answer.
//!
//! All three cases are rare on a node. A metadata client sends its head in one TCP segment and waits for the answer, and the
//! answer fits into the socket's buffer. Therefore even a small limit for all connections together affects no healthy client.
//! Without the limit, a few hostile pods with a thousand partial heads each would take more memory than the whole agent may use.
//!
//! Clients share the limit. The last quarter is reserved for clients that hold at most [`GUARANTEED_BUFFER_BYTES`] bytes. Therefore a new client finds
//! room even if all other clients hold as much as they can. From the other three quarters, a client can hold as many bytes as
//! then remain free ([`seawall_core::fair_share`]).

use std::cell::Cell;
use std::ops::Deref;
use std::rc::Rc;

use seawall_core::fair_share;

/// The number of bytes that each client can hold as long as the budget is not full.
/// This number is larger than the largest head. It is also larger than an answer plus the socket's buffer.
const GUARANTEED_BUFFER_BYTES: usize = 40 * 1024;

/// The budget for all buffered bytes of one thread.
#[derive(Debug)]
pub(crate) struct BufferBudget {
    most: usize,
    used: Cell<usize>,
}

/// The buffered bytes of one client.
#[derive(Debug)]
pub(crate) struct BufferShare {
    own: Cell<usize>,
    all: Rc<BufferBudget>,
}

/// The buffered bytes of one connection. Dropping the value releases the bytes.
#[derive(Debug)]
pub(crate) struct BufferedBytes {
    bytes: Vec<u8>,
    /// The number of bytes in the kernel's socket buffer. These bytes also count toward the client's share.
    beside: usize,
    share: Rc<BufferShare>,
}

impl BufferBudget {
    pub(crate) fn new(most: usize) -> Rc<Self> {
        Rc::new(Self { most, used: Cell::new(0) })
    }
}

impl BufferShare {
    /// Returns the share of a client that holds no bytes yet.
    pub(crate) fn new_empty(all: &Rc<BufferBudget>) -> Rc<Self> {
        Rc::new(Self { own: Cell::new(0), all: all.clone() })
    }

    /// Returns an empty value, without allocating a buffer.
    pub(crate) fn new_empty_buffer(self: &Rc<Self>) -> BufferedBytes {
        BufferedBytes { bytes: Vec::new(), beside: 0, share: self.clone() }
    }

    fn fits(&self, more: usize) -> bool {
        let BufferBudget { most, used } = &*self.all;
        let (own, used) = (self.own.get() + more, used.get() + more);
        let free = fair_share::free_for_large_holders(*most as u64, used as u64);
        own as u64 <= free || (own <= GUARANTEED_BUFFER_BYTES && used <= *most)
    }

    fn give(&self, bytes: usize) {
        self.own.set(self.own.get() - bytes);
        self.all.used.set(self.all.used.get() - bytes);
    }

    fn take(&self, bytes: usize) {
        self.own.set(self.own.get() + bytes);
        self.all.used.set(self.all.used.get() + bytes);
    }
}

impl BufferedBytes {
    /// Replaces the held bytes with `bytes`. If the client's share has no room for `bytes`, holds no bytes and returns false.
    ///
    /// If `bytes` is empty, the value frees its buffer, even a large one.
    pub(crate) fn replace_bytes(&mut self, bytes: &[u8]) -> bool {
        bytes.is_empty() && self.bytes.is_empty() || self.hold(bytes.to_vec(), 0)
    }

    /// Holds the rest of an answer that the socket did not accept. Returns false if the client's share has no room for the rest.
    /// At this point, the socket's buffer is full. The `beside` bytes in the socket's buffer also count toward the client's
    /// share.
    pub(crate) fn hold_unsent_bytes(&mut self, bytes: &[u8], beside: usize) -> bool {
        bytes.is_empty() && self.bytes.is_empty() || self.hold(bytes.to_vec(), beside)
    }

    /// Moves the held bytes to the share of another client. If that share has no room, drops the bytes and returns false.
    pub(crate) fn transfer_to(&mut self, share: &Rc<BufferShare>) -> bool {
        let bytes = self.release();
        self.share = share.clone();
        self.hold(bytes, 0)
    }

    fn hold(&mut self, bytes: Vec<u8>, beside: usize) -> bool {
        self.release();
        let beside = if bytes.is_empty() { 0 } else { beside };
        let fits = self.share.fits(bytes.len() + beside);
        if fits {
            self.share.take(bytes.len() + beside);
            (self.bytes, self.beside) = (bytes, beside);
        }
        fits
    }

    fn release(&mut self) -> Vec<u8> {
        self.share.give(self.bytes.len() + self.beside);
        self.beside = 0;
        std::mem::take(&mut self.bytes)
    }
}

impl Deref for BufferedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for BufferedBytes {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 3 << 20;

    #[test]
    fn what_is_given_back_can_be_held_again() {
        let share = BufferShare::new_empty(&BufferBudget::new(MOST));
        let (mut one, mut two) = (share.new_empty_buffer(), share.new_empty_buffer());
        // Half of the bytes that are not reserved for clients with a few bytes.
        const HALF: usize = MOST / 8 * 3;
        assert!(one.replace_bytes(&[1; HALF - 10]));
        assert!(two.replace_bytes(&[2; 10]));
        assert!(!two.replace_bytes(&[2; 11]));
        assert!(two.is_empty(), "bytes that do not fit are not held in part");
        assert!(
            two.replace_bytes(&[2; 10]) && one.replace_bytes(&[1; 5]) && two.replace_bytes(&[2; HALF - 5])
        );
        drop(two);
        assert!(one.replace_bytes(&[1; HALF]));
        assert!(one.replace_bytes(&[]) && share.own.get() == 0 && share.all.used.get() == 0);
    }

    /// Regression: slow readers and partial heads of one pod left no room for another pod's head in two segments.
    #[test]
    fn callers_that_hoard_leave_room_for_one_that_does_not() {
        let all = BufferBudget::new(MOST);
        let hoarders: Vec<Vec<BufferedBytes>> = (0..9)
            .map(|_| {
                let share = BufferShare::new_empty(&all);
                let mut held: Vec<BufferedBytes> = Vec::new();
                loop {
                    let mut next = share.new_empty_buffer();
                    if !next.replace_bytes(&[0; 4096]) {
                        return held;
                    }
                    held.push(next);
                }
            })
            .collect();
        assert!(
            hoarders.iter().filter(|held| held.len() >= 8).count() >= 6,
            "at least six hoarders hold 32 KiB"
        );
        assert!(BufferShare::new_empty(&all).new_empty_buffer().replace_bytes(&[0; 16 * 1024]));
    }

    #[test]
    fn a_full_socket_counts_as_long_as_its_answer_waits() {
        let share = BufferShare::new_empty(&BufferBudget::new(MOST));
        let mut held = share.new_empty_buffer();
        assert!(held.hold_unsent_bytes(&[1; 100], 16_384));
        assert_eq!(share.own.get(), 16_484);
        assert!(held.hold_unsent_bytes(&[], 16_384));
        assert_eq!(share.own.get(), 0);
    }

    #[test]
    fn bytes_that_change_hands_count_for_their_new_owner() {
        let all = BufferBudget::new(MOST);
        let (stranger, pod) = (BufferShare::new_empty(&all), BufferShare::new_empty(&all));
        let mut held = stranger.new_empty_buffer();
        assert!(held.replace_bytes(&[1; 1000]) && held.transfer_to(&pod));
        assert_eq!((stranger.own.get(), pod.own.get(), all.used.get()), (0, 1000, 1000));
        assert_eq!(held.len(), 1000);
    }
}
