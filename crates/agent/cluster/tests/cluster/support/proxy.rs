//! A wire between the agent and the API server that can be cut, or go dead without a word.

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// A forwarder on loopback.
pub(crate) struct Proxy {
    port: u16,
    cut: watch::Sender<bool>,
    /// Each change kills the connections that there are at that moment.
    deaths: watch::Sender<()>,
}

impl Proxy {
    /// Forwards to a port on loopback.
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

    /// Where it listens.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Closes what there is and what comes.
    pub(crate) fn cut(&self) {
        self.cut.send_replace(true);
    }

    /// Forwards what comes from now on.
    pub(crate) fn mend(&self) {
        self.cut.send_replace(false);
    }

    /// Lets the connections that there are go dead: open, and silent for ever. New ones are fine.
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
    // Both sockets stay open. The other end's kernel acknowledges and nobody answers.
    let _ = is_cut.wait_for(|cut| *cut).await;
}
