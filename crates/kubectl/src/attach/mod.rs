//! An attachment to a container: bytes to its standard input and from its outputs, over a WebSocket to the API server, like `kubectl
//! attach`. It takes the same path as logs, so it works wherever logs do.
//!
//! A task of the runtime runs the connection. Outgoing messages wait in a bounded queue. Incoming messages wait in another one, and while
//! that is full the task reads nothing. Source: kubernetes, apimachinery/pkg/util/remotecommand/constants.go; client-go,
//! tools/remotecommand/websocket.go; RFC 6455.

pub mod frame;
mod sha1;

use std::fmt;
use std::pin::pin;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::{Bytes, BytesMut};
use http::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION,
    UPGRADE,
};
use http::{HeaderMap, HeaderValue, Request, Response};
use hyper::body::Incoming;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use frame::{Message, MessageDecoder, Opcode};
use seawall_kube::request::BuildRequestResult;
use seawall_kube::transport::READ_BUFFER_SIZE;
use seawall_kube::{KubeError, KubeStatus};

/// The supported subprotocols, the newest first. Version 5 can close standard input alone.
const PROTOCOLS: [&str; 2] = ["v5.channel.k8s.io", "v4.channel.k8s.io"];

/// The most outgoing and the most incoming messages in the queues.
const WAITING: usize = 256;

/// The code of a close without a code (RFC 6455, section 7.1.5).
const NO_CODE: u16 = 1005;

/// The first byte of a message, which names its stream.
const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;
/// In version 5: the stream in the next byte has ended.
const CLOSE: u8 = 255;

/// An open attachment.
#[derive(Debug)]
pub struct AttachSession {
    /// The container's standard input.
    pub stdin: ContainerStdin,
    /// The reader of events from the container.
    pub reader: AttachReader,
}

/// Reads the events of an attachment. Dropping it closes the connection.
#[derive(Debug)]
pub struct AttachReader {
    heard: mpsc::Receiver<AttachEvent>,
    /// Aborts the task when it is dropped.
    _task: JoinSet<()>,
}

/// An event of an attachment.
#[derive(Debug)]
pub enum AttachEvent {
    /// A piece of the container's standard output.
    Stdout(Bytes),
    /// A piece of the container's standard error.
    Stderr(Bytes),
    /// The final status: the process ended, or attaching failed.
    Status(Box<KubeStatus>),
    /// The server closed the connection properly.
    Closed {
        /// The close code (RFC 6455, section 7.4); 1005 without one.
        code: u16,
        /// The reason of the server; often empty.
        reason: String,
    },
    /// The connection broke, or the server violated the protocol.
    Broken(KubeError),
}

/// The container's standard input. Dropping all clones closes it if the server supports version 5; version 4 cannot close it.
#[derive(Clone, Debug)]
pub struct ContainerStdin(mpsc::Sender<Bytes>);

/// A reason why a piece was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StdinError {
    /// The queue is full, because the connection is too slow.
    #[error("too many messages wait to be sent: the limit is {WAITING}")]
    Full,
    /// The attachment has ended.
    #[error("the connection to the pod has ended")]
    Ended,
}

impl ContainerStdin {
    /// Queues a piece without blocking.
    ///
    /// # Errors
    /// The queue is full, or the attachment has ended.
    pub fn send(&self, piece: Bytes) -> Result<(), StdinError> {
        self.0.try_send(piece).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => StdinError::Full,
            mpsc::error::TrySendError::Closed(_) => StdinError::Ended,
        })
    }
}

impl AttachSession {
    /// Creates a session from the response to [`upgrade_request`].
    ///
    /// # Errors
    /// The response is not a WebSocket with a supported subprotocol.
    pub(crate) async fn from_response(answer: Response<Incoming>, key: &str) -> Result<Self, KubeError> {
        let version = agreed(answer.headers(), key).map_err(KubeError::Unreadable)?;
        let upgraded = hyper::upgrade::on(answer).await.map_err(|error| KubeError::unreachable(&error))?;
        Ok(Self::carried(TokioIo::new(upgraded), version))
    }

    fn carried(stream: TokioIo<Upgraded>, version: Version) -> Self {
        let (stdin, pieces) = mpsc::channel(WAITING);
        let (tell, heard) = mpsc::channel(WAITING);
        let mut task = JoinSet::new();
        task.spawn(async move {
            let last = carry(stream, version, pieces, &tell).await;
            // No receiver is left, or this was the last event.
            let _ = tell.send(last).await;
        });
        Self { stdin: ContainerStdin(stdin), reader: AttachReader { heard, _task: task } }
    }
}

impl AttachReader {
    /// Returns the next event; `None` after [`AttachEvent::Closed`] or [`AttachEvent::Broken`]. Cancelling the call loses no
    /// event.
    pub async fn next(&mut self) -> Option<AttachEvent> {
        self.heard.recv().await
    }
}

/// The negotiated subprotocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    Four,
    Five,
}

/// Returns a request for a WebSocket, and its key.
pub(crate) fn upgrade_request(path: &str) -> (BuildRequestResult, String) {
    // The key is not a secret: it tells a WebSocket server from one that repeats an old response.
    let key = BASE64_STANDARD.encode(fastrand::u128(..).to_be_bytes());
    let request = Request::get(path)
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, "websocket")
        .header(SEC_WEBSOCKET_VERSION, "13")
        .header(SEC_WEBSOCKET_PROTOCOL, PROTOCOLS.join(", "))
        .header(SEC_WEBSOCKET_KEY, key.as_str())
        .body(Bytes::new());
    (request, key)
}

/// Checks the response to the request (RFC 6455, section 4.1).
fn agreed(headers: &HeaderMap, key: &str) -> Result<Version, String> {
    let accepted = headers.get(SEC_WEBSOCKET_ACCEPT).map(HeaderValue::as_bytes);
    if accepted != Some(accept(key).as_bytes()) {
        return Err("the server's Sec-WebSocket-Accept does not match the key of the request".into());
    }
    match headers.get(SEC_WEBSOCKET_PROTOCOL).and_then(|name| name.to_str().ok()) {
        Some("v5.channel.k8s.io") => Ok(Version::Five),
        Some("v4.channel.k8s.io") => Ok(Version::Four),
        _ => Err(format!("the server supports none of the WebSocket subprotocols {}", PROTOCOLS.join(", "))),
    }
}

/// Returns the expected Sec-WebSocket-Accept for a key.
fn accept(key: &str) -> String {
    const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    BASE64_STANDARD.encode(sha1::digest(format!("{key}{GUID}").as_bytes()))
}

/// Runs the connection until it ends, and returns the last event.
async fn carry<S: AsyncRead + AsyncWrite>(
    stream: S,
    version: Version,
    mut pieces: mpsc::Receiver<Bytes>,
    tell: &mpsc::Sender<AttachEvent>,
) -> AttachEvent {
    let (read, write) = tokio::io::split(stream);
    let (answers, mut answering) = mpsc::channel(WAITING);
    let mut hearing = pin!(hear(read, tell, &answers));
    let mut saying = pin!(say(write, version, &mut pieces, &mut answering));
    let last = tokio::select! {
        last = &mut hearing => last,
        Err(failure) = &mut saying => return AttachEvent::Broken(failure),
    };
    // One more round answers the server's close if the connection still works.
    tokio::select! {
        biased;
        _ = &mut saying => {}
        () = tokio::task::yield_now() => {}
    }
    last
}

/// Reads messages until the last one. It queues the answers to pings and to the close in `answers`.
async fn hear<R: AsyncRead>(
    mut read: ReadHalf<R>,
    tell: &mpsc::Sender<AttachEvent>,
    answers: &mpsc::Sender<(Opcode, Bytes)>,
) -> AttachEvent {
    let mut messages = MessageDecoder::default();
    loop {
        let message = match next(&mut messages, &mut read).await {
            Ok(message) => message,
            Err(failure) => return AttachEvent::Broken(failure),
        };
        match message {
            // If the server pings faster than this client can write, some pongs are dropped.
            Message::Ping(payload) => drop(answers.try_send((Opcode::Pong, payload))),
            Message::Pong => {}
            Message::Close { code, reason } => {
                let echo = if code == NO_CODE { Bytes::new() } else { code.to_be_bytes().to_vec().into() };
                drop(answers.try_send((Opcode::Close, echo)));
                return AttachEvent::Closed { code, reason };
            }
            Message::Data(bytes) => {
                if let Some(heard) = told(bytes)
                    && tell.send(heard).await.is_err()
                {
                    // No receiver is left.
                    return AttachEvent::Broken(ended());
                }
            }
        }
    }
}

/// Reads the next message of the connection.
async fn next<R: AsyncRead>(
    messages: &mut MessageDecoder,
    read: &mut ReadHalf<R>,
) -> Result<Message, KubeError> {
    loop {
        match messages.next_message() {
            Ok(Some(message)) => return Ok(message),
            Ok(None) => {}
            Err(broken) => return Err(KubeError::Unreadable(broken.to_string())),
        }
        let mut buffer = BytesMut::with_capacity(READ_BUFFER_SIZE);
        match read.read_buf(&mut buffer).await {
            Ok(0) => return Err(ended()),
            Ok(_) => messages.feed(&buffer),
            Err(error) => return Err(KubeError::unreachable(&error)),
        }
    }
}

fn ended() -> KubeError {
    KubeError::Unreachable("the connection to a pod (kubectl attach) ended".into())
}

/// Converts a message to an event; `None` for an empty message or an unknown stream.
fn told(mut message: Bytes) -> Option<AttachEvent> {
    if message.is_empty() {
        return None;
    }
    let channel = message.split_to(1)[0];
    match channel {
        // The server opens each stream with an empty message.
        STDOUT | STDERR if message.is_empty() => None,
        STDOUT => Some(AttachEvent::Stdout(message)),
        STDERR => Some(AttachEvent::Stderr(message)),
        ERROR if message.is_empty() => None,
        ERROR => Some(match serde_json::from_slice(&message) {
            Ok(status) => AttachEvent::Status(Box::new(status)),
            Err(error) => AttachEvent::Broken(error.into()),
        }),
        _ => None,
    }
}

/// Sends input and answers until the input ends, and then only answers.
async fn say<W: AsyncWrite>(
    mut write: WriteHalf<W>,
    version: Version,
    pieces: &mut mpsc::Receiver<Bytes>,
    answering: &mut mpsc::Receiver<(Opcode, Bytes)>,
) -> Result<(), KubeError> {
    let mut is_open = true;
    loop {
        let (opcode, payload) = tokio::select! {
            Some(answer) = answering.recv() => answer,
            piece = pieces.recv(), if is_open => match piece {
                Some(piece) => (Opcode::Binary, Bytes::from([&[STDIN], &*piece].concat())),
                None => {
                    is_open = false;
                    if version == Version::Four {
                        continue;
                    }
                    (Opcode::Binary, Bytes::from_static(&[CLOSE, STDIN]))
                }
            },
        };
        let bytes = frame::encode(opcode, &payload, fastrand::u32(..).to_be_bytes());
        write.write_all(&bytes).await.map_err(|error| KubeError::unreachable(&error))?;
        write.flush().await.map_err(|error| KubeError::unreachable(&error))?;
    }
}

impl fmt::Display for AttachEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdout(bytes) => write!(f, "{} bytes of standard output", bytes.len()),
            Self::Stderr(bytes) => write!(f, "{} bytes of standard error", bytes.len()),
            Self::Status(status) => f.write_str(&status.message),
            Self::Closed { code, reason } if reason.is_empty() => write!(f, "closed ({code})"),
            Self::Closed { code, reason } => write!(f, "closed ({code}): {reason}"),
            Self::Broken(failure) => failure.fmt(f),
        }
    }
}
