//! As much of an HTTP/1.1 server as the servers behind the agent need: heads, bodies of a stated length, kept connections.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A request as far as these servers look at it.
pub(crate) struct Request {
    pub(crate) path: String,
    pub(crate) body: String,
}

/// What to write: nothing is added to it.
pub(crate) type Bytes = Arc<[u8]>;

/// Serves until the process is ended; says "ready" when it listens. The closure makes an answer of each request.
pub(crate) fn run<F>(
    listen: SocketAddr,
    answer: impl Fn(Request) -> F + Send + Sync + 'static,
) -> Result<(), String>
where
    F: Future<Output = Bytes> + Send + 'static,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let listener = listener(listen).map_err(|error| format!("{listen}: {error}"))?;
        println!("ready");
        let answer = Arc::new(answer);
        loop {
            let Ok((stream, _)) = listener.accept().await else { continue };
            let answer = Arc::clone(&answer);
            // A client that goes in the middle is the end of that connection and of nothing else.
            tokio::spawn(async move { serve(stream, &*answer).await.ok() });
        }
    })
}

fn listener(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = tokio::net::TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(4096)
}

async fn serve<F: Future<Output = Bytes>>(
    mut stream: TcpStream,
    answer: &(impl Fn(Request) -> F + Sync),
) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut received = Vec::new();
    loop {
        let Some((request, length)) = parse(&received) else {
            let mut buffer = [0; 16 * 1024];
            match stream.read(&mut buffer).await? {
                0 => return Ok(()),
                n => received.extend_from_slice(&buffer[..n]),
            }
            continue;
        };
        received.drain(..length);
        let bytes = answer(request).await;
        stream.write_all(&bytes).await?;
    }
}

/// A request and how many bytes it took, once it is all there.
fn parse(received: &[u8]) -> Option<(Request, usize)> {
    let head = received.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let text = String::from_utf8_lossy(&received[..head]).to_ascii_lowercase();
    let length: usize =
        text.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok()).unwrap_or(0);
    let body = received.get(head..head + length)?;
    let first = String::from_utf8_lossy(&received[..head]);
    let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
    Some((Request { path, body: String::from_utf8_lossy(body).into_owned() }, head + length))
}

/// An answer whole.
pub(crate) fn answer(status: &str, kind: &str, body: &str) -> Bytes {
    let date = httpdate::fmt_http_date(std::time::SystemTime::now());
    format!(
        "HTTP/1.1 {status}\r\nMetadata-Flavor: Google\r\nDate: {date}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
    .into()
}
