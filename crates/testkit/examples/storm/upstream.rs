//! The real metadata server's stand-in behind `conceal`: a token, and attributes that are heavy or never come.

use std::time::Duration;

use crate::arguments::Arguments;
use crate::serving::{self, Bytes, Request, answer};

/// Longer than anybody waits.
const HANG: Duration = Duration::from_secs(60);

pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    let latency = Duration::from_millis(arguments.or("latency", 0)?);
    serving::run(arguments.address("listen")?, move |request| reply(request, latency))
}

async fn reply(request: Request, latency: Duration) -> Bytes {
    if !latency.is_zero() {
        tokio::time::sleep(latency).await;
    }
    // A request for a body would be no metadata request.
    if !request.body.is_empty() {
        return answer("400 Bad Request", "text/plain", "no bodies");
    }
    let path = request.path.split('?').next().unwrap_or_default();
    let name = path.rsplit('/').next().unwrap_or_default();
    if name == "hang" {
        tokio::time::sleep(HANG).await;
    }
    match name.split_once('-').map(|(kind, size)| (kind, size.parse())) {
        Some(("bytes", Ok(size))) => answer("200 OK", "application/text", &"x".repeat(size)),
        Some(("chunks", Ok(size))) => chunks(size),
        _ => answer("200 OK", "application/json", &token()),
    }
}

fn token() -> String {
    format!(r#"{{"access_token":"ya29.{}","expires_in":3599,"token_type":"Bearer"}}"#, "x".repeat(380))
}

fn chunks(size: usize) -> Bytes {
    let head = "HTTP/1.1 200 OK\r\nMetadata-Flavor: Google\r\nContent-Type: application/text\r\nTransfer-Encoding: chunked\r\n\r\n";
    format!("{head}{}0\r\n\r\n", "1\r\nx\r\n".repeat(size)).into_bytes().into()
}
