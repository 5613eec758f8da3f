//! The connections that have room, and those that can carry no further request.

use super::NetworkBackend;
use super::connection::ConnectionStage;
use super::pool::ConnectionPool;

impl<N: NetworkBackend> ConnectionPool<N> {
    /// Returns a connection of a route that may carry another request. Connections that have become too old while they were idle
    /// are skipped and retired.
    #[inline]
    pub(super) fn connection_with_room(&mut self, route: usize) -> Option<usize> {
        loop {
            let index = self.routes[route].best_connection(&self.connections)?;
            if self.limits.allow(&self.connections[index], self.now) {
                return Some(index);
            }
            self.retire(index);
        }
    }

    /// True if a connection can carry another request. A connection carries its first request whatever its age.
    #[inline]
    pub(super) fn has_room(&self, index: usize) -> bool {
        let connection = &self.connections[index];
        connection.free_capacity() > 0
            && (connection.requests_begun == 0 || self.limits.allow(connection, self.now))
    }

    /// Lists a connection with room, unless it is over.
    #[inline]
    pub(super) fn mark_ready_or_retire(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        if connection.is_in_ready_list || connection.free_capacity() == 0 {
            return;
        }
        let ready = &mut self.routes[connection.route_index].ready_connections;
        let room = ready.len() < self.limits.max_idle_for(connection.single_request) || connection.is_http2();
        if room && self.limits.allow(connection, self.now) {
            connection.is_in_ready_list = true;
            ready.push(index);
        } else {
            self.retire(index);
        }
    }

    /// Retires a connection: it ends at once, or with the last of its requests.
    #[cold]
    fn retire(&mut self, index: usize) {
        self.connections[index].retire();
        self.unlist_if_full(index);
        if self.connections[index].active_requests() == 0 {
            self.close(index);
        }
    }

    #[inline]
    pub(super) fn unlist_if_full(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        if connection.is_in_ready_list && connection.free_capacity() == 0 {
            connection.is_in_ready_list = false;
            self.routes[connection.route_index].unlist(index);
        }
    }

    pub(super) fn close(&mut self, index: usize) {
        let connection = self.connections.remove(index);
        let route = &mut self.routes[connection.route_index];
        route.connection_count -= 1;
        route.opening_count -= usize::from(connection.stage() == ConnectionStage::Opening);
        if connection.is_in_ready_list {
            route.unlist(index);
        }
        if route.wanted_connections() > 0 {
            self.routes_to_check.push(connection.route_index);
        }
    }
}
