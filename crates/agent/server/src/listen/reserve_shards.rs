//! Decides which clients get a shard of their own.
//!
//! Two clients whose addresses end in the same byte share a shard. If one of them overloads the shard, the other one waits behind its
//! connections, in a backlog that is always full: beside 4,000 connections that send nothing, it got no answer in 10 s. Therefore the
//! client that overloads a shard moves to a *reserve shard*: the kernel then gives all its new connections to this shard
//! ([`mod@super::shard_program`]). Its backlog, its throttle and its places for guests affect no other client.
//!
//! A client moves even if it seems to be alone in its shard. The thread cannot know: while the backlog is full, the other client's
//! connections do not reach the thread. If several clients overload a shard together, they move together.

use std::cmp::Reverse;
use std::net::IpAddr;

/// Finds the clients that overload a shard: counts the connections that the thread has accepted from it since it is overloaded.
///
/// There are few counts, however many clients there are (Misra and Gries): a connection of a client without a count lowers all counts if
/// none is free. So a client with more than a ninth of the connections gets a high count in the end. With a single candidate (the majority
/// vote of Boyer and Moore), three clients that each sent a third of the connections stayed in their shard, and another client got 5
/// answers there instead of 400.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClientCounts {
    counts: [(IpAddr, u8); Self::CLIENTS],
    is_used: bool,
}

impl Default for ClientCounts {
    fn default() -> Self {
        let free = (IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0);
        Self { counts: [free; Self::CLIENTS], is_used: false }
    }
}

impl ClientCounts {
    const CLIENTS: usize = 8;

    /// The count that makes a client move. Then the counts stay as they are until [`Self::take_heavy`] or [`Self::clear`].
    const HEAVY: u8 = 32;

    /// Counts an accepted connection of this client.
    pub(super) fn record(&mut self, client: IpAddr) {
        if self.has_heavy() {
            return;
        }
        self.is_used = true;
        let counts = &mut self.counts;
        let own = counts.iter().position(|(address, count)| *address == client && *count > 0);
        match own.or_else(|| counts.iter().position(|(_, count)| *count == 0)) {
            Some(place) => counts[place] = (client, counts[place].1 + 1),
            None => counts.iter_mut().for_each(|(_, count)| *count -= 1),
        }
    }

    /// Returns the clients that overload the shard, the one with the highest count first, and clears the counts. These are a client
    /// whose count is [`Self::HEAVY`] and the others with at least half of that. Without such a client, returns none and clears nothing.
    pub(super) fn take_heavy(&mut self) -> Vec<IpAddr> {
        if !self.has_heavy() {
            return Vec::new();
        }
        let mut heavy: Vec<_> =
            self.counts.iter().copied().filter(|(_, count)| *count >= Self::HEAVY / 2).collect();
        self.clear();
        heavy.sort_by_key(|(_, count)| Reverse(*count));
        heavy.into_iter().map(|(address, _)| address).collect()
    }

    /// Forgets all clients. Writes nothing if there are none: most shards are idle.
    pub(super) fn clear(&mut self) {
        if self.is_used {
            *self = Self::default();
        }
    }

    fn has_heavy(&self) -> bool {
        self.counts.iter().any(|(_, count)| *count >= Self::HEAVY)
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

    /// True if the client has a reserve shard at this listener.
    pub(super) fn has(&self, listener: usize, client: IpAddr) -> bool {
        self.0.iter().any(|reserve| reserve.listener == listener && reserve.client == Some(client))
    }

    /// Gives a client that has none a reserve shard at this listener. Returns its index, and the client that had it until now. A client whose
    /// reserve shard is calm loses it if no other one is free. Returns `None` if other clients overload all.
    pub(super) fn take(&mut self, listener: usize, client: IpAddr) -> Option<(usize, Option<IpAddr>)> {
        let is_here = |reserve: &ReserveShard| reserve.listener == listener;
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

    fn client(network: u8) -> IpAddr {
        IpAddr::from([10, 0, network, 3])
    }

    /// Returns the clients that move while a connection of each of these clients comes in turn, so many times.
    fn moving(clients: &[u8], rounds: usize) -> Vec<IpAddr> {
        let mut counts = ClientCounts::default();
        let mut found = Vec::new();
        for _ in 0..rounds {
            clients.iter().for_each(|network| counts.record(client(*network)));
            found.extend(counts.take_heavy());
        }
        found.sort();
        found
    }

    #[test]
    fn the_clients_with_most_connections_move_however_many_clients_there_are() {
        assert!(moving(&[1], 31).is_empty());
        assert_eq!(moving(&[1], 64), [client(1), client(1)]);
        assert_eq!(moving(&[2, 1, 1, 1], 11), [client(1)], "the other one has a third as many");
        assert!(moving(&[1, 2, 3], 31).is_empty(), "each has 31 of 93");
        assert_eq!(moving(&[1, 2, 3], 32), [client(1), client(2), client(3)]);
        let half: Vec<u8> = (2..102).flat_map(|other| [1, other]).collect();
        assert_eq!(moving(&half, 1), [client(1)]);
        let equal: Vec<u8> = (0..9).collect();
        assert!(moving(&equal, 1000).is_empty(), "nine clients with as many each");
    }

    #[test]
    fn a_client_that_was_heavy_before_the_counts_were_cleared_does_not_move() {
        let mut counts = ClientCounts::default();
        (0..1000).for_each(|_| counts.record(QUIET));
        counts.clear();
        (0..1000).for_each(|_| counts.record(LOUD));
        assert_eq!(counts.take_heavy(), [LOUD]);
        assert!(counts.take_heavy().is_empty());
    }

    fn two_of_each_listener() -> ReserveShards {
        let mut shards = ReserveShards::default();
        (0..4).for_each(|lane| shards.add(lane, lane / 2));
        shards
    }

    #[test]
    fn a_client_can_have_a_reserve_shard_at_each_listener() {
        let mut shards = two_of_each_listener();
        assert!(!shards.is_in_use());
        assert_eq!(shards.take(1, LOUD), Some((3, None)));
        assert!(shards.has(1, LOUD) && !shards.has(0, LOUD) && !shards.has(1, QUIET));
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
