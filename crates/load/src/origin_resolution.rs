//! Finds the addresses for an origin's connections, by the user's settings and the system's resolver.
//!
//! Lookups run on threads of their own: a lookup has no time limit and must not block a sender or the next lookup.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::clock::Nanos;
use crate::dns_client::DnsServers;
use crate::poller::SenderWaker;
use crate::proxy::ProxyRules;
use crate::request::Origin;
use crate::request_failure_reason::NameFault;
use crate::transport::socket::PeerAddress;

/// A host and a port.
pub type HostPort = (String, u16);

/// The user's settings for the addresses of connections.
#[derive(Debug, Clone, Default)]
pub struct DialOptions {
    /// The Unix socket to which all connections go, if it is set.
    pub unix_socket: Option<PathBuf>,
    /// The replacements of a host and port, used in turn. Names in requests and certificates do not change.
    pub connect_to: HashMap<HostPort, Vec<HostPort>>,
    /// The proxies through which some requests go.
    pub proxies: Arc<ProxyRules>,
    /// The DNS servers to use instead of the system's resolver.
    pub dns_servers: Arc<DnsServers>,
    /// The lifetime of addresses that were found.
    pub address_lifetime: AddressLifetime,
}

/// The time for which addresses are used for new connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AddressLifetime {
    /// Until the end of the run.
    #[default]
    Run,
    /// For this long. Then they are looked up again, and used until there is a response.
    For(Duration),
    /// For one connection.
    Connection,
}

impl DialOptions {
    /// Returns the places at which an origin is looked up.
    fn places(&self, origin: &Origin) -> Vec<HostPort> {
        let own = (origin.host.clone(), origin.port);
        let address = origin.variant.as_ref().and_then(|variant| variant.address.clone());
        match (self.proxies_for(origin).for_origin(origin), self.connect_to.get(&own)) {
            (Some(proxy), _) => vec![proxy.address.clone()],
            (None, _) if address.is_some() => Vec::from_iter(address),
            (None, Some(places)) => places.clone(),
            (None, None) => vec![own],
        }
    }

    fn proxies_for<'d>(&'d self, origin: &'d Origin) -> &'d ProxyRules {
        let own = origin.variant.as_ref().and_then(|variant| variant.proxies.as_deref());
        own.unwrap_or(&self.proxies)
    }

    /// Returns the addresses of connections to an origin: all addresses that it has now, and none for a Unix socket.
    ///
    /// # Errors
    /// The reason why there is no address.
    pub fn resolve_tcp_addresses(&self, origin: &Origin) -> Result<Vec<SocketAddr>, NameFault> {
        let tcp = |address| if let PeerAddress::Tcp(address) = address { Some(address) } else { None };
        Ok(self.lookup(origin)?.into_iter().filter_map(tcp).collect())
    }

    /// Returns the addresses of an origin, if they are known without a lookup.
    pub(crate) fn known_addresses(&self, origin: &Origin) -> Option<Vec<PeerAddress>> {
        if let Some(path) = &self.unix_socket {
            return Some(vec![PeerAddress::Unix(path.clone())]);
        }
        self.places(origin).iter().map(literal).collect()
    }

    /// Looks up all addresses of an origin, in the order of its places and then in the system's.
    pub(crate) fn lookup(&self, origin: &Origin) -> LookupResult {
        if let Some(known) = self.known_addresses(origin) {
            return Ok(known);
        }
        let mut why = NameFault::NoHost;
        let places = self.places(origin);
        let asked = places.iter().filter_map(|place| self.ask(place).map_err(|fault| why = fault).ok());
        let found: Vec<_> = asked.flatten().collect();
        if found.is_empty() { Err(why) } else { Ok(found) }
    }

    fn ask(&self, place: &HostPort) -> LookupResult {
        if self.dns_servers.is_empty() {
            return system(place);
        }
        let found = self.dns_servers.lookup(&place.0)?;
        Ok(found.into_iter().map(|ip| PeerAddress::Tcp(SocketAddr::new(ip, place.1))).collect())
    }

    /// Returns the CONNECT request that opens a tunnel to an origin, if a tunnel is needed.
    pub(crate) fn connect_request(&self, origin: &Origin) -> Option<Vec<u8>> {
        let proxy = self
            .proxies_for(origin)
            .for_origin(origin)
            .filter(|_| origin.tls && self.unix_socket.is_none())?;
        Some(proxy.connect_request(origin))
    }
}

fn literal((host, port): &HostPort) -> Option<PeerAddress> {
    let ip: IpAddr = host.parse().ok()?;
    Some(PeerAddress::Tcp(SocketAddr::new(ip, *port)))
}

fn system((host, port): &HostPort) -> LookupResult {
    let found = (host.as_str(), *port).to_socket_addrs().map_err(|_| NameFault::System)?;
    Ok(found.map(PeerAddress::Tcp).collect())
}

/// At least one address, or the reason why there is none.
pub(crate) type LookupResult = Result<Vec<PeerAddress>, NameFault>;

/// The result of a lookup, with its origin.
pub(crate) struct ResolvedOrigin {
    pub(crate) origin: Origin,
    /// The time of the request for the lookup.
    pub(crate) asked_at: Nanos,
    pub(crate) lookup_result: LookupResult,
}

/// A request for a lookup, and the channel for its result.
pub(crate) struct LookupRequest {
    pub(crate) origin: Origin,
    pub(crate) asked_at: Nanos,
    pub(crate) reply: Sender<ResolvedOrigin>,
    pub(crate) waker: SenderWaker,
}

/// The maximum number of lookups at once: at 20 ms each, 1,600 in a second. Each has one of the descriptors that are reserved
/// from connections.
const MOST: usize = 32;

/// The state that the lookup threads share.
struct ResolverPool {
    dial: Arc<DialOptions>,
    /// The requests for lookups. The thread that waits for the next one holds the lock.
    questions: Mutex<Receiver<LookupRequest>>,
    threads: AtomicUsize,
    /// The number of idle threads.
    idle: AtomicUsize,
}

/// Starts the first lookup thread. It starts further ones as lookups overlap; all end when the last sender of requests is gone.
pub(crate) fn spawn(dial: Arc<DialOptions>) -> std::io::Result<Sender<LookupRequest>> {
    let (sender, questions) = channel();
    let questions = Mutex::new(questions);
    let (threads, idle) = (AtomicUsize::new(0), AtomicUsize::new(0));
    ResolverPool::hire(&Arc::new(ResolverPool { dial, questions, threads, idle }))?;
    Ok(sender)
}

impl ResolverPool {
    fn hire(bureau: &Arc<Self>) -> std::io::Result<()> {
        bureau.idle.fetch_add(1, Ordering::SeqCst);
        bureau.threads.fetch_add(1, Ordering::SeqCst);
        let own = Arc::clone(bureau);
        let hired = std::thread::Builder::new().name("resolver".into()).spawn(move || Self::work(&own));
        if hired.is_err() {
            bureau.idle.fetch_sub(1, Ordering::SeqCst);
            bureau.threads.fetch_sub(1, Ordering::SeqCst);
        }
        hired.map(|_| ())
    }

    fn work(bureau: &Arc<Self>) {
        while let Some(question) = bureau.next() {
            let nobody_listens = bureau.idle.fetch_sub(1, Ordering::SeqCst) == 1;
            if nobody_listens && bureau.threads.load(Ordering::SeqCst) < MOST {
                // If no thread can be started, the next lookup waits for this one.
                let _ = Self::hire(bureau);
            }
            bureau.answer(question);
            bureau.idle.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn next(&self) -> Option<LookupRequest> {
        self.questions.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
    }

    fn answer(&self, LookupRequest { origin, asked_at: at, reply, waker }: LookupRequest) {
        let found = self.dial.lookup(&origin);
        // The receiver may have ended in the meantime.
        let _ = reply.send(ResolvedOrigin { origin, asked_at: at, lookup_result: found });
        waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn where_connections_go_is_what_the_user_wishes_and_no_place_at_a_unix_socket() {
        let origin = Origin { tls: false, host: "a.example".into(), port: 80, variant: None };
        let elsewhere = HashMap::from([(("a.example".to_owned(), 80), vec![("127.0.0.2".to_owned(), 81)])]);
        let dial = DialOptions { connect_to: elsewhere, ..DialOptions::default() };
        assert_eq!(dial.resolve_tcp_addresses(&origin), Ok(vec![(Ipv4Addr::new(127, 0, 0, 2), 81).into()]));
        let dial = DialOptions { unix_socket: Some("/socket".into()), ..dial };
        assert_eq!(dial.resolve_tcp_addresses(&origin), Ok(Vec::new()));
    }
}
