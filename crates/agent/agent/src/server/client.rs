//! The party at the other end of a connection.
//!
//! Everything that clients share goes by [`ClientId`]: it says that two connections are one client's, and nothing else of who that is.

use std::sync::atomic::{AtomicU64, Ordering};

/// Tells a client from all others, on every thread and for as long as the process runs. Whoever keeps clients gives each of them one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ClientId(u64);

impl ClientId {
    /// All those whom nothing is given to. They are one client together.
    pub(crate) const STRANGERS: Self = Self(0);

    /// One that no client has had. A number is never used again, so nothing that is kept by it becomes another client's.
    pub(crate) fn unique() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_clients_have_one_number_and_none_is_a_stranger() {
        let (one, other) = (ClientId::unique(), ClientId::unique());
        assert!(one != other && one != ClientId::STRANGERS && other != ClientId::STRANGERS);
    }
}
