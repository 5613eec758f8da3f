//! Opening connections: as many as their routes lack.

use super::connection::Connection;
use super::pool::Pool;
use super::route::{Lack, Speaks};
use super::socket::ConnectError;
use super::{Desk, Event, Network};
use crate::clock::Nanos;
use crate::fault::{Fault, NameFault};
use crate::poller::EventFlags;

impl<N: Network> Pool<N> {
    #[cold]
    pub(super) fn opened(&mut self, index: usize, desk: &mut Desk<'_>) {
        let connection = &self.connections[index];
        let route = &mut self.routes[connection.route];
        route.opening -= 1;
        route.speaks = if connection.is_http2() { Speaks::Http2 } else { Speaks::Http1 };
        route.warmed(&self.limits);
        self.stirred.push(connection.route);
        if connection.has_more_to_do() {
            self.soil(index);
        }
        self.vacant(index, true, desk);
    }

    /// Opens connections of the listed routes before anybody asks for them: as many as are lacking to so many. Each is the
    /// route's for whoever comes; one that is not to be had is not tried again. Where redirects and lazy targets led is not
    /// warmed.
    pub(crate) fn warm(&mut self, connections: usize, now: Nanos, desk: &mut Desk<'_>) {
        self.now = now;
        let listed: Vec<_> = self.routes.listed().map(|(route, _)| route).collect();
        for route in listed {
            self.routes[route].warm(connections, &self.limits);
            self.stirred.push(route);
        }
        self.attend(desk);
    }

    /// Whether some of these are still being opened.
    pub(crate) fn is_warming(&self) -> bool {
        self.routes.listed().any(|(_, route)| route.warming > 0)
    }

    /// The next address gets its chance; after the last the flight that waited longest has none.
    #[cold]
    pub(super) fn refused(&mut self, index: usize, fault: Fault, desk: &mut Desk<'_>) {
        let Connection { route, alternatives, .. } = self.connections[index];
        self.close(index);
        match alternatives.checked_sub(1).filter(|_| matches!(fault, Fault::Connect(_))) {
            Some(others) if self.routes[route].wanting() > 0 => self.open(route, Some(others), desk),
            _ => self.disappoint(route, fault),
        }
    }

    fn disappoint(&mut self, route: usize, fault: Fault) {
        match self.routes[route].next(true) {
            Some(key) => self.events.tell(Event::Unreached(key, fault)),
            None => self.routes[route].cool(),
        }
    }

    /// Opens what routes lack.
    #[inline]
    pub(super) fn attend(&mut self, desk: &mut Desk<'_>) {
        if !self.stirred.is_empty() {
            self.attend_to_all(desk);
        }
    }

    fn attend_to_all(&mut self, desk: &mut Desk<'_>) {
        while let Some(route) = self.stirred.pop() {
            loop {
                match self.routes[route].lacks(&self.limits) {
                    Lack::Nothing => break,
                    Lack::Connection => self.open(route, None, desk),
                    Lack::Hope(fault) => self.disappoint(route, fault),
                    Lack::Addresses if self.routes.ask(route, self.now) => {}
                    Lack::Addresses => self.disappoint(route, Fault::Resolve(NameFault::Busy)),
                }
            }
        }
    }

    /// Begins a connection; of the addresses of its route only `others` are left to try after this one, if that is known.
    pub(super) fn open(&mut self, route: usize, others: Option<usize>, desk: &mut Desk<'_>) {
        let opened = self.network.now();
        let (stream, connected, others) = match self.connect(route, others) {
            Ok(made) => made,
            Err(fault) => return self.disappoint(route, fault),
        };
        self.generation = self.generation.wrapping_add(1);
        let names = (self.generation, self.routes.next_number());
        let mut connection = Connection::new(stream, route, others, opened, names);
        connection.once = self.routes[route].path.once;
        let index = self.connections.insert(connection);
        let token = self.token(index);
        self.routes[route].open += 1;
        self.routes[route].opening += 1;
        self.attempts.push(token);
        let watched = self.connections[index].with_stream(|stream| self.network.watch(stream, token));
        if let Some(Err(fault)) = watched {
            self.refused(index, fault, desk);
        } else if connected {
            self.drive_one(index, EventFlags::OUT, desk);
        }
    }

    /// A stream to the address whose turn it is, whether it is connected, and how many others are left to try. Addresses
    /// that refuse at once, such as one without a route, have had their turn.
    fn connect(
        &mut self,
        route: usize,
        mut others: Option<usize>,
    ) -> Result<(N::Stream, bool, usize), Fault> {
        loop {
            let missing = Fault::Resolve(self.routes[route].addresses.missing);
            let (address, addresses) = self.routes[route].addresses.next().ok_or(missing)?;
            let left = others.unwrap_or(addresses - 1);
            let source = self.limits.sources.next(address)?;
            match (self.network.connect(address, source), source) {
                (Ok((stream, connected)), _) => return Ok((stream, connected, left)),
                (Err(ConnectError::Peer(_)), _) if left > 0 => others = Some(left - 1),
                (Err(ConnectError::Peer(error)), _) => return Err(Fault::Connect(error.kind())),
                (Err(ConnectError::Local(error)), None) => return Err(Fault::Local(error.kind())),
                (Err(ConnectError::Local(error)), Some(source)) => {
                    return Err(Fault::Source(source, error.kind()));
                }
            }
        }
    }

    /// Gives up connections of which a step of their opening takes too long; whoever waits gets a new one.
    pub(crate) fn look_after(&mut self, now: Nanos, desk: &mut Desk<'_>) {
        self.now = now;
        let mut attempts = std::mem::take(&mut self.attempts);
        attempts.retain(|&token| {
            let Some(index) = self.find(token) else { return false };
            let since = self.connections[index].opening_since();
            let late = since.is_some_and(|since| now.saturating_sub(since) >= self.limits.step);
            if late {
                self.routes[self.connections[index].route].cool();
                self.close(index);
            }
            since.is_some() && !late
        });
        self.attempts = attempts;
        self.attend(desk);
    }

    /// Takes the addresses that have been found.
    #[inline]
    pub(crate) fn adopt_resolved(&mut self, now: Nanos, desk: &mut Desk<'_>) {
        self.now = now;
        while let Some(route) = self.routes.adopt(now, desk.stats) {
            self.stirred.push(route);
        }
        self.attend(desk);
    }
}
