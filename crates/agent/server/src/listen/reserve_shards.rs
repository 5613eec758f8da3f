//! Decides which clients get a shard of their own.
//!
//! Two clients whose addresses end in the same byte share a shard. If one of them overloads the shard, the other one waits behind its
//! connections, in a backlog that is always full: beside 4,000 connections that send nothing, it got no answer in 10 s. Therefore the
//! client that overloads a shard moves to a *reserve shard*: the kernel then gives all its new connections to this shard
//! ([`mod@super::shard_program`]). Its backlog, its throttle and its places for guests affect no other client.
//!
//! A client moves even if it seems to be alone in its shard. The thread cannot know: while the backlog is full, the other client's
//! connections do not reach the thread. If three clients overload a shard about equally, none of them moves.

use std::net::IpAddr;

/// The client with most of the connections that the thread has accepted from a shard while connections waited.
///
/// It is the candidate of a majority vote (Boyer and Moore): each of its connections adds to its lead, and each one of another client
/// takes from it. Without a lead, the next client is the candidate. A client with clearly more than half of the connections soon has
/// the lead, however many clients there are. Two equal ones get it by chance.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HeaviestClient {
    address: Option<IpAddr>,
    lead: u8,
}

impl HeaviestClient {
    /// The lead at which a client has clearly more connections than the others of its shard together.
    const CLEAR: u8 = 32;

    /// Counts an accepted connection of this client.
    pub(super) fn record(&mut self, client: IpAddr) {
        if self.lead == 0 {
            self.address = Some(client);
        }
        if self.address == Some(client) {
            self.lead = (self.lead + 1).min(Self::CLEAR);
        } else {
            self.lead -= 1;
        }
    }

    /// Returns the client that overloads the shard, if it is clear which one.
    pub(super) fn clear_leader(&self) -> Option<IpAddr> {
        self.address.filter(|_| self.lead >= Self::CLEAR)
    }
}

/// The reserve shards of one thread.
#[derive(Debug, Default)]
pub(super) struct ReserveShards(Vec<ReserveShard>);

/// A reserve shard, and the client that has it.
#[derive(Clone, Copy, Debug)]
struct ReserveShard {
    /// The index of the shard among the thread's shards.
    lane: usize,
    /// The number of the listener. A client has a reserve shard at each address that it overloads.
    listener: usize,
    client: Option<IpAddr>,
    /// The number of looks at which the shard was calm since it last was not.
    calm_looks: u32,
}

impl ReserveShards {
    /// The number of calm looks after which a client goes back to its usual shard. They are 250 ms apart
    /// (`ListenerShards::limit_backlogs`), so this is half a minute. It must be longer than `OVERLOADED_DEFERRED_SECONDS`, or silent
    /// connections of the client would wait in two shards.
    const CALM_LOOKS: u32 = 128;

    /// Adds a reserve shard that no client has yet.
    pub(super) fn add(&mut self, lane: usize, listener: usize) {
        self.0.push(ReserveShard { lane, listener, client: None, calm_looks: 0 });
    }

    /// Gives the client a reserve shard at this listener. Returns its index, and the client that had it until now. A client whose reserve
    /// shard is calm loses it if no other one is free. Returns `None` if the client has one already, or if other clients overload all.
    pub(super) fn take(&mut self, listener: usize, client: IpAddr) -> Option<(usize, Option<IpAddr>)> {
        let is_here = |reserve: &ReserveShard| reserve.listener == listener;
        if self.0.iter().any(|reserve| is_here(reserve) && reserve.client == Some(client)) {
            return None;
        }
        let usable = self
            .0
            .iter_mut()
            .filter(|reserve| is_here(reserve) && (reserve.client.is_none() || reserve.calm_looks > 0));
        let best = usable.max_by_key(|reserve| (reserve.client.is_none(), reserve.calm_looks))?;
        let before = best.client.replace(client);
        best.calm_looks = 0;
        Some((best.lane, before))
    }

    /// Records whether the reserve shards are overloaded now, and takes back those that were calm for long. Returns their indexes and clients.
    pub(super) fn look(&mut self, is_overloaded: impl Fn(usize) -> bool) -> Vec<(usize, IpAddr)> {
        let mut returned = Vec::new();
        for reserve in &mut self.0 {
            let Some(client) = reserve.client else { continue };
            reserve.calm_looks = if is_overloaded(reserve.lane) { 0 } else { reserve.calm_looks + 1 };
            if reserve.calm_looks >= Self::CALM_LOOKS {
                reserve.client = None;
                returned.push((reserve.lane, client));
            }
        }
        returned
    }

    /// True if a client has a reserve shard.
    pub(super) fn is_in_use(&self) -> bool {
        self.0.iter().any(|reserve| reserve.client.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOUD: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 3));
    const QUIET: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 1, 3));

    #[test]
    fn the_heaviest_client_has_clearly_more_connections_than_the_others_together() {
        let mut heaviest = HeaviestClient::default();
        assert_eq!(heaviest.clear_leader(), None);
        (0..10_000).for_each(|number| heaviest.record(if number % 2 == 0 { QUIET } else { LOUD }));
        assert_eq!(heaviest.clear_leader(), None, "none has more than the other");
        (0..10_000).for_each(|number| heaviest.record(if number % 4 == 0 { QUIET } else { LOUD }));
        assert_eq!(heaviest.clear_leader(), Some(LOUD));
        (0..64).for_each(|_| heaviest.record(QUIET));
        assert_eq!(heaviest.clear_leader(), Some(QUIET), "the load has changed");
    }

    fn two_of_each_listener() -> ReserveShards {
        let mut shards = ReserveShards::default();
        (0..4).for_each(|lane| shards.add(lane, lane / 2));
        shards
    }

    #[test]
    fn a_client_has_at_most_one_reserve_shard_at_each_listener() {
        let mut shards = two_of_each_listener();
        assert!(!shards.is_in_use());
        assert_eq!(shards.take(1, LOUD), Some((3, None)));
        assert_eq!(shards.take(1, LOUD), None);
        assert_eq!(shards.take(0, LOUD), Some((1, None)));
        assert_eq!(shards.take(1, QUIET), Some((2, None)));
        let third = IpAddr::from([10, 0, 2, 3]);
        assert_eq!(shards.take(1, third), None, "the other clients overload all");
        shards.look(|lane| lane != 3);
        assert_eq!(shards.take(1, third), Some((3, Some(LOUD))), "the shard of this client is calm");
        assert!(shards.is_in_use());
    }

    #[test]
    fn a_client_keeps_its_reserve_shard_until_it_was_calm_for_half_a_minute() {
        let mut shards = two_of_each_listener();
        assert_eq!(shards.take(0, LOUD), Some((1, None)));
        assert_eq!(shards.take(0, QUIET), Some((0, None)));
        for _ in 1..ReserveShards::CALM_LOOKS {
            assert_eq!(shards.look(|_| false), []);
        }
        assert_eq!(shards.look(|lane| lane == 1), [(0, QUIET)], "an overload begins the half minute again");
        for _ in 1..ReserveShards::CALM_LOOKS {
            assert_eq!(shards.look(|_| false), []);
        }
        assert_eq!(shards.look(|_| false), [(1, LOUD)]);
        assert!(!shards.is_in_use());
    }
}
