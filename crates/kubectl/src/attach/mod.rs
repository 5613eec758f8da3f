//! An attachment: bytes to a container's standard input and from its outputs, over a WebSocket to the API server, as `kubectl attach`
//! has one. The same way that logs take, so it is open wherever those are.
//!
//! A task of the runtime carries it. What is to be sent waits in a queue of a bounded length; what came waits in another, and while that is
//! full nothing more is read. Source: kubernetes, apimachinery/pkg/util/remotecommand/constants.go; client-go,
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

/// The newest first. Version 5 can end the standard input alone.
const PROTOCOLS: [&str; 2] = ["v5.channel.k8s.io", "v4.channel.k8s.io"];

/// Pieces of standard input that wait to be sent, and messages that wait to be read.
const WAITING: usize = 256;

/// Stands for a close that gives no code (RFC 6455, section 7.1.5).
const NO_CODE: u16 = 1005;

/// Which stream a piece belongs to: its first byte.
const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;
/// Of version 5: the stream named by the next byte has ended.
const CLOSE: u8 = 255;

/// An open attachment.
#[derive(Debug)]
pub struct AttachSession {
    /// What goes to the container.
    pub stdin: ContainerStdin,
    /// What comes.
    pub reader: AttachReader,
}

/// All that comes by an attachment; dropping it closes the connection without another word.
#[derive(Debug)]
pub struct AttachReader {
    heard: mpsc::Receiver<AttachEvent>,
    /// Aborts what it holds when it is dropped.
    _task: JoinSet<()>,
}

/// What an attachment tells.
#[derive(Debug)]
pub enum AttachEvent {
    /// A piece of the container's standard output.
    Stdout(Bytes),
    /// A piece of its standard error.
    Stderr(Bytes),
    /// How it ended: the process did, or cannot be attached to.
    Status(Box<KubeStatus>),
    /// The server closed the connection in order.
    Closed {
        /// RFC 6455, section 7.4; 1005 for none.
        code: u16,
        /// In words; often nothing.
        reason: String,
    },
    /// The connection broke, or the server did not keep to the protocol.
    Broken(KubeError),
}

/// The container's standard input. When all clones are dropped it ends, if the server speaks version 5; version 4 has no
/// word for that.
#[derive(Clone, Debug)]
pub struct ContainerStdin(mpsc::Sender<Bytes>);

/// Why a piece was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StdinError {
    /// So many wait already that the connection does not keep up.
    #[error("{WAITING} messages wait to be sent, which is the limit")]
    Full,
    /// The attachment has ended.
    #[error("the attachment has ended")]
    Ended,
}

impl ContainerStdin {
    /// Takes a piece to be sent in its turn; does not wait.
    ///
    /// # Errors
    /// It was not taken.
    pub fn send(&self, piece: Bytes) -> Result<(), StdinError> {
        self.0.try_send(piece).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => StdinError::Full,
            mpsc::error::TrySendError::Closed(_) => StdinError::Ended,
        })
    }
}

impl AttachSession {
    /// Over an answer to [`upgrade_request`].
    ///
    /// # Errors
    /// It is no WebSocket of a protocol that we speak.
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
            // Nobody listens any more, or this is told.
            let _ = tell.send(last).await;
        });
        Self { stdin: ContainerStdin(stdin), reader: AttachReader { heard, _task: task } }
    }
}

impl AttachReader {
    /// What comes next; `None` after the last, which is [`AttachEvent::Closed`] or [`AttachEvent::Broken`]. Nothing is lost by who gives up waiting.
    pub async fn next(&mut self) -> Option<AttachEvent> {
        self.heard.recv().await
    }
}

/// The protocol that was agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    Four,
    Five,
}

/// A request for a WebSocket, and its key.
pub(crate) fn upgrade_request(path: &str) -> (BuildRequestResult, String) {
    // Neither is a secret: both tell a server that speaks WebSocket from one that repeats an old answer.
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

/// RFC 6455, section 4.1.
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

/// What a server makes of a key.
fn accept(key: &str) -> String {
    const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    BASE64_STANDARD.encode(sha1::digest(format!("{key}{GUID}").as_bytes()))
}

/// Carries it until it ends; what is to be told last.
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
    // One more turn, in which a close is answered if the connection takes it.
    tokio::select! {
        biased;
        _ = &mut saying => {}
        () = tokio::task::yield_now() => {}
    }
    last
}

/// Tells what comes, until the last of it; pings and the close are to be answered with `answers`.
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
            // A server that pings faster than we can write is answered later, or not at all.
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
                    // Nobody listens any more.
                    return AttachEvent::Broken(ended());
                }
            }
        }
    }
}

/// The next message of the connection.
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
    KubeError::Unreachable("the connection of an attachment ended".into())
}

/// What a message tells; `None` for one that says nothing, or for a stream that we do not know.
fn told(mut message: Bytes) -> Option<AttachEvent> {
    if message.is_empty() {
        return None;
    }
    let channel = message.split_to(1)[0];
    match channel {
        // A server says so that a stream is open, before anything is in it.
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

/// Sends what is given, and answers, until nobody gives any more; then answers alone.
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
