//! A TCP proxy between the agent and the API server. A test can cut its connections or make them silent.

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// A TCP proxy on loopback.
pub(crate) struct Proxy {
    port: u16,
    cut: watch::Sender<bool>,
    /// Each change makes all present connections silent.
    deaths: watch::Sender<()>,
}

impl Proxy {
    /// Starts a proxy that forwards to this port on loopback.
    pub(crate) async fn to(target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (cut, deaths) = (watch::Sender::new(false), watch::Sender::new(()));
        let (is_cut, dying) = (cut.subscribe(), deaths.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if !*is_cut.borrow() {
                    tokio::spawn(carry(client, target, is_cut.clone(), dying.subscribe()));
                }
            }
        });
        Self { port, cut, deaths }
    }

    /// Returns the port on which the proxy listens.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Closes all present connections and all later connections.
    pub(crate) fn cut(&self) {
        self.cut.send_replace(true);
    }

    /// Forwards later connections again.
    pub(crate) fn mend(&self) {
        self.cut.send_replace(false);
    }

    /// Makes all present connections silent for ever, but keeps them open. The proxy still forwards new connections.
    pub(crate) fn deaden(&self) {
        self.deaths.send_replace(());
    }
}

async fn carry(
    mut client: TcpStream,
    target: u16,
    mut is_cut: watch::Receiver<bool>,
    mut death: watch::Receiver<()>,
) {
    let Ok(mut server) = TcpStream::connect(("127.0.0.1", target)).await else { return };
    tokio::select! {
        _ = copy_bidirectional(&mut client, &mut server) => return,
        _ = is_cut.wait_for(|cut| *cut) => return,
        _ = death.changed() => {}
    }
    // Both sockets stay open. The kernel acknowledges the client's data, but no program reads it.
    let _ = is_cut.wait_for(|cut| *cut).await;
}
