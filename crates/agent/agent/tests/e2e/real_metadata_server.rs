//! A stand-in for the real metadata server: answers at 169.254.169.254 on the node, and remembers who has been there.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::network::METADATA;

/// What it answers.
pub(crate) const SAYS: &str = "the real server";

/// A running one; it ends with the process.
pub(crate) struct Real {
    callers: Arc<Mutex<BTreeMap<IpAddr, usize>>>,
}

impl Real {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind((METADATA, 80)).unwrap();
        let callers = Arc::new(Mutex::new(BTreeMap::new()));
        let noted = Arc::clone(&callers);
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let caller = connection.peer_addr().map(|address| address.ip());
                *noted.lock().unwrap().entry(caller.unwrap_or(METADATA.into())).or_default() += 1;
                std::thread::spawn(move || answer(connection));
            }
        });
        Self { callers }
    }

    /// The connections that addresses of pods have made so far.
    pub(crate) fn pods(&self) -> usize {
        let callers = self.callers.lock().unwrap();
        let of_pods = |(caller, _): &(&IpAddr, &usize)| caller.to_string().starts_with("10.88.");
        callers.iter().filter(of_pods).map(|(_, connections)| connections).sum()
    }
}

/// One request, whatever it is.
fn answer(mut connection: TcpStream) {
    let _ = connection.set_read_timeout(Some(Duration::from_secs(10)));
    let _ = connection.read(&mut [0; 4096]);
    let _ = write!(
        connection,
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{SAYS}",
        SAYS.len()
    );
}
