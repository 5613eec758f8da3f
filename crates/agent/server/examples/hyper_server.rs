//! A minimal server that uses hyper. It answers every token request with the same bytes, on one current-thread runtime.
//! `benches/agent-hyper` compares this server with the agent, for docs/decisions/http-server.md.
//!
//!     hyper_server ADDRESS

#![expect(clippy::unwrap_used, reason = "only a benchmark uses this server, so a panic harms no client")]

use std::convert::Infallible;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::HeaderValue;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;

/// The body of each answer. It is as long as a typical JSON document with an access token.
const BODY: &[u8] = &[b'x'; 480];

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let google = HeaderValue::from_static("Google");
    let is_good = request.headers().get("metadata-flavor") == Some(&google);
    let is_token = request.uri().path().ends_with("/token");
    let mut answer = Response::new(Full::new(Bytes::from_static(BODY)));
    *answer.status_mut() = if is_good && is_token { StatusCode::OK } else { StatusCode::FORBIDDEN };
    answer.headers_mut().insert("metadata-flavor", google);
    answer.headers_mut().insert("content-type", HeaderValue::from_static("application/json"));
    Ok(answer)
}

fn main() {
    let address = std::env::args().nth(1).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async move {
        let listener = tokio::net::TcpListener::bind(address).await.unwrap();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            tokio::task::spawn_local(async move {
                // 8192 bytes is the smallest buffer that hyper accepts.
                let server = http1::Builder::new()
                    .max_buf_size(8192)
                    .serve_connection(TokioIo::new(stream), service_fn(answer));
                // An error means that the client closed the connection early, which is harmless here.
                let _ = server.await;
            });
        }
    });
}
