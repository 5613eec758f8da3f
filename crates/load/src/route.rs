//! One route, an origin as a thread reaches it: where it leads, which connections stand on it, and what is to be done with
//! the next flight.
//!
//! Decides and keeps count; opening, closing and asking for addresses are the pool's.

use std::collections::VecDeque;

use slab::Slab;

use crate::clock::{Nanos, SECOND, nanos};
use crate::connection::{Connection, Path};
use crate::fault::NameFault;
use crate::flights::FlightKey;
use crate::pool::Limits;
use crate::resolve::{Found, Lifetime};
use crate::socket::Address;

/// A name without an address is asked for again after this long.
const ASK_AGAIN: Nanos = SECOND;

/// Where the connections of one origin stand.
pub(crate) struct Route {
    pub(crate) path: Path,
    pub(crate) speaks: Speaks,
    pub(crate) addresses: Addresses,
    /// Free HTTP/1.1 connections, the last used at the end.
    pub(crate) idle: Vec<usize>,
    /// Open HTTP/2 connections.
    pub(crate) shared: Vec<usize>,
    /// Connections not yet open.
    pub(crate) opening: usize,
    /// All connections, those included.
    pub(crate) open: usize,
    pub(crate) queue: VecDeque<FlightKey>,
}

/// What the connections of a route turn out to speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Speaks {
    /// The first handshake will tell; until then there is only one.
    Unknown,
    Http1,
    Http2,
}

/// Where a route leads, and for how long that is believed.
pub(crate) struct Addresses {
    list: Vec<Address>,
    /// Why there is none.
    pub(crate) missing: NameFault,
    /// The one whose turn it is.
    turn: usize,
    /// Nobody needs to be asked, ever.
    pub(crate) literal: bool,
    /// Since when an answer is awaited.
    pub(crate) asked: Option<Nanos>,
    /// When the last answer came.
    found: Nanos,
    /// Connections that may be opened with it.
    permits: usize,
}

/// What to do with a flight that needs a connection.
pub(crate) enum Choice {
    Use(usize),
    Open,
    /// Wait for addresses, which are to be asked for.
    Ask,
    Wait,
    Nowhere,
}

impl Route {
    /// A route without connections.
    pub(crate) fn new(path: Path, speaks: Speaks, addresses: Addresses) -> Self {
        Self {
            path,
            speaks,
            addresses,
            idle: Vec::new(),
            shared: Vec::new(),
            opening: 0,
            open: 0,
            queue: VecDeque::new(),
        }
    }

    /// What to do with the next flight.
    #[inline]
    pub(crate) fn choose(&self, limits: &Limits, connections: &Slab<Connection>) -> Choice {
        if let Some(&free) = self.idle.last() {
            return Choice::Use(free);
        }
        let Addresses { list, asked, permits, .. } = &self.addresses;
        match asked {
            Some(_) if list.is_empty() || *permits == 0 => return Choice::Wait,
            None if list.is_empty() => return Choice::Nowhere,
            None if *permits == 0 => return Choice::Ask,
            _ => {}
        }
        let may_open = self.open < limits.connections;
        match self.speaks {
            Speaks::Http1 if may_open => Choice::Open,
            Speaks::Unknown if may_open && self.opening == 0 => Choice::Open,
            Speaks::Http1 | Speaks::Unknown => Choice::Wait,
            Speaks::Http2 if may_open && self.open < limits.http2_connections => Choice::Open,
            Speaks::Http2 => match self.least_loaded(connections) {
                Some(index) => Choice::Use(index),
                None if may_open && self.opening == 0 => Choice::Open,
                None => Choice::Wait,
            },
        }
    }

    /// The HTTP/2 connection with the fewest streams, if one has room for another.
    fn least_loaded(&self, connections: &Slab<Connection>) -> Option<usize> {
        let sessions =
            self.shared.iter().filter_map(|&index| Some((index, connections.get(index)?.http2()?)));
        let room = sessions.filter(|(_, session)| session.has_room());
        room.min_by_key(|(_, session)| session.load()).map(|(index, _)| index)
    }
}

impl Addresses {
    /// Of an origin that nobody needs to be asked about.
    pub(crate) fn literal(list: Vec<Address>) -> Self {
        let missing = NameFault::System;
        Self { list, missing, turn: 0, literal: true, asked: None, found: 0, permits: usize::MAX }
    }

    /// As they were found before the run.
    pub(crate) fn found(found: Found, lifetime: Lifetime) -> Self {
        let mut addresses = Self { literal: false, ..Self::literal(Vec::new()) };
        addresses.take(found);
        addresses.permits = permits(lifetime, 1);
        addresses
    }

    /// Of an origin that has just come up.
    pub(crate) fn unknown() -> Self {
        Self { literal: false, ..Self::literal(Vec::new()) }
    }

    /// The address whose turn it is, for a connection that is about to be opened, and how many there are.
    pub(crate) fn next(&mut self) -> Option<(&Address, usize)> {
        let address = self.list.get(self.turn % self.list.len().max(1))?;
        self.turn = self.turn.wrapping_add(1);
        self.permits = self.permits.saturating_sub(1);
        Some((address, self.list.len()))
    }

    /// An answer without addresses does not replace one with.
    fn take(&mut self, found: Found) {
        match found {
            Ok(list) => self.list = list,
            Err(missing) => self.missing = missing,
        }
    }

    /// Takes an answer and says when it had been asked for.
    pub(crate) fn adopt(&mut self, found: Found, now: Nanos, waiting: usize, lifetime: Lifetime) -> Nanos {
        self.take(found);
        self.found = now;
        self.permits = permits(lifetime, waiting.max(1));
        self.asked.take().unwrap_or(now)
    }

    /// Whether they are to be asked for again.
    #[inline]
    pub(crate) fn are_old(&self, now: Nanos, lifetime: Lifetime) -> bool {
        let after = match lifetime {
            _ if self.literal || self.asked.is_some() => return false,
            _ if self.list.is_empty() => ASK_AGAIN,
            Lifetime::For(span) => nanos(span),
            Lifetime::Run | Lifetime::Connection => return false,
        };
        now.saturating_sub(self.found) >= after
    }
}

/// Connections that may be opened with one answer: so many if each connection is to have an answer of its own.
fn permits(lifetime: Lifetime, waiting: usize) -> usize {
    if lifetime == Lifetime::Connection { waiting } else { usize::MAX }
}
