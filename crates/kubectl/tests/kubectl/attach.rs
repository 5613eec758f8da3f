//! Attachments, before a server that speaks WebSocket as a test tells it.

use std::io;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use seawall_kube::{KubeError, KubeStatus};
use seawall_kubectl::attach::{AttachEvent, AttachSession, StdinError};
use seawall_testkit::closure_server::Peer;
use serde_json::json;

use crate::support::{World, header, said};

const V4: &str = "v4.channel.k8s.io";
const V5: &str = "v5.channel.k8s.io";

/// Opens a WebSocket of this protocol, with an answer to the client's key.
fn open(peer: &mut Peer, protocol: &str) -> io::Result<String> {
    let head = peer.read_request_head()?;
    let key = header(&head, "sec-websocket-key").unwrap_or_default().to_owned()
        + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA1_FOR_LEGACY_USE_ONLY, key.as_bytes());
    let accept = BASE64_STANDARD.encode(digest);
    let answer = format!(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: {protocol}\r\n\r\n"
    );
    peer.send(answer.as_bytes())?;
    Ok(head)
}

/// A client's frame: its first byte, and its payload unmasked.
fn frame(peer: &mut Peer) -> io::Result<(u8, Vec<u8>)> {
    let head = peer.read_body(2)?;
    assert_eq!(head[1] & 0x80, 0x80, "a client masks");
    let length = match head[1] & 0x7f {
        126 => usize::from(u16::from_be_bytes(peer.read_body(2)?.try_into().unwrap())),
        127 => panic!("no test sends as much"),
        short => short.into(),
    };
    let mask = peer.read_body(4)?;
    let payload = peer.read_body(length)?;
    Ok((head[0], payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask).collect()))
}

/// A server's frame of up to 125 bytes.
fn written(first: u8, payload: &[u8]) -> Vec<u8> {
    [&[first, u8::try_from(payload.len()).unwrap()], payload].concat()
}

/// A server that speaks this protocol and then does so; what it returns comes here.
fn playing<T: Send + 'static>(
    protocol: &'static str,
    play: impl Fn(&mut Peer) -> io::Result<T> + Send + Sync + 'static,
) -> (World, Receiver<T>) {
    let (tell, told) = channel();
    let tell = Mutex::new(tell);
    let world = World::playing(false, move |peer, asked| {
        let head = open(peer, protocol)?;
        asked.lock().unwrap().push(head);
        let done = play(peer)?;
        tell.lock().unwrap().send(done).map_err(|_| io::ErrorKind::BrokenPipe.into())
    });
    (world, told)
}

async fn attached(world: &World) -> AttachSession {
    world.open().await.attach("shop", "p", "seawall").await.unwrap()
}

async fn heard(attachment: &mut AttachSession) -> String {
    attachment.reader.next().await.map_or_else(|| "nothing".into(), |heard| format!("{heard:?}"))
}

#[tokio::test]
async fn what_is_sent_comes_to_the_container_in_its_order() {
    let (world, told) = playing(V5, |peer| Ok([frame(peer)?, frame(peer)?, frame(peer)?]));
    let attachment = attached(&world).await;
    let long = vec![b'x'; 4096];
    for piece in [&b"one\n"[..], &long] {
        attachment.stdin.send(Bytes::copy_from_slice(piece)).unwrap();
    }
    drop(attachment.stdin);
    let mut hearing = attachment.reader;
    while hearing.next().await.is_some() {}
    let end = (0x82, vec![255, 0]);
    assert_eq!(told.recv().unwrap(), [(0x82, b"\0one\n".to_vec()), (0x82, [&[0], &*long].concat()), end]);
    let asked = world.asked().remove(0);
    let path = "/api/v1/namespaces/shop/pods/p/attach?container=seawall&stdin=true&stderr=true";
    assert!(asked.starts_with(&format!("GET {path} HTTP/1.1\r\n")), "{asked}");
    assert_eq!(header(&asked, "sec-websocket-protocol"), Some("v5.channel.k8s.io, v4.channel.k8s.io"));
    assert_eq!(header(&asked, "authorization"), Some("Bearer good"));
}

#[tokio::test]
async fn what_comes_is_told_by_its_stream_and_pings_are_answered() {
    let (world, told) = playing(V4, |peer| {
        let status = json!({"status": "Failure", "message": "exit code 3", "code": 500}).to_string();
        let frames = [
            // As kubelets do, to say that the streams are open.
            written(0x82, &[1]),
            written(0x82, &[2]),
            written(0x82, b"\x02trouble"),
            written(0x02, b"\x01he"),
            written(0x89, b"are you there"),
            written(0x80, b"llo"),
            written(0x82, b"\x07of no stream"),
            written(0x82, &[&[3], status.as_bytes()].concat()),
        ];
        peer.send(&frames.concat())?;
        let pong = frame(peer)?;
        peer.send(&written(0x88, &[&1000_u16.to_be_bytes()[..], b"bye"].concat()))?;
        Ok([pong, frame(peer)?])
    });
    let mut attachment = attached(&world).await;
    assert_eq!(heard(&mut attachment).await, r#"Stderr(b"trouble")"#);
    assert_eq!(heard(&mut attachment).await, r#"Stdout(b"hello")"#);
    let Some(AttachEvent::Status(status)) = attachment.reader.next().await else { panic!("a status") };
    let expected =
        KubeStatus { status: "Failure".into(), message: "exit code 3".into(), code: 500, details: None };
    assert_eq!(*status, expected);
    assert_eq!(heard(&mut attachment).await, r#"Closed { code: 1000, reason: "bye" }"#);
    assert_eq!(heard(&mut attachment).await, "nothing");
    let [pong, close] = told.recv().unwrap();
    assert_eq!(pong, (0x8a, b"are you there".to_vec()));
    assert_eq!(close, (0x88, 1000_u16.to_be_bytes().to_vec()));
    assert_eq!(attachment.stdin.send(Bytes::from_static(b"late")), Err(StdinError::Ended));
}

#[tokio::test]
async fn who_does_not_keep_up_is_given_no_more_than_a_bounded_queue() {
    let (go, gone) = channel::<()>();
    let gone = Mutex::new(gone);
    let (world, _told) = playing(V5, move |_| {
        // Reads nothing until the test is over.
        let _ = gone.lock().unwrap().recv();
        Ok(())
    });
    let attachment = attached(&world).await;
    let piece = Bytes::from(vec![b'x'; 256 * 1024]);
    let mut sent = 0;
    while attachment.stdin.send(piece.clone()).is_ok() {
        sent += 1;
        tokio::task::yield_now().await;
        assert!(sent < 10_000, "gigabytes wait");
    }
    assert_eq!(attachment.stdin.send(piece), Err(StdinError::Full));
    drop(go);
}

#[tokio::test]
async fn a_connection_that_breaks_is_told() {
    let (world, _told) = playing(V5, |peer| peer.send(&written(0x82, b"\x02last words")));
    let mut attachment = attached(&world).await;
    assert_eq!(heard(&mut attachment).await, r#"Stderr(b"last words")"#);
    let Some(AttachEvent::Broken(failure)) = attachment.reader.next().await else { panic!("broken") };
    assert!(failure.is_unreachable(), "{failure}");
    assert_eq!(heard(&mut attachment).await, "nothing");
}

#[tokio::test]
async fn a_server_that_does_not_keep_to_the_protocol_is_left() {
    let (world, _told) = playing(V5, |peer| {
        peer.send(&[0x82, 0x81, 0, 0, 0, 0, 0])?;
        peer.wait_for_close()
    });
    let mut attachment = attached(&world).await;
    let Some(AttachEvent::Broken(KubeError::Unreadable(reason))) = attachment.reader.next().await else {
        panic!("broken")
    };
    assert!(reason.contains("masked"), "{reason}");
}

#[tokio::test]
async fn what_is_no_websocket_is_refused_with_its_reason() {
    let refusing = World::answering(|_| said("403 Forbidden", &json!({"message": "cannot attach"})));
    let failure = refusing.open().await.attach("shop", "p", "c").await.unwrap_err();
    assert_eq!(failure, KubeError::Forbidden("cannot attach".into()));
    let answer = |accept: &'static str, protocol: &'static str| {
        let head = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n";
        format!("{head}Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: {protocol}\r\n\r\n")
    };
    let another = World::answering(move |_| answer("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", V5));
    let failure = another.open().await.attach("shop", "p", "c").await.unwrap_err();
    assert!(failure.to_string().contains("Sec-WebSocket-Accept does not match"), "{failure}");
    let (unknown, _told) = playing("v3.channel.k8s.io", |_| Ok(()));
    let failure = unknown.open().await.attach("shop", "p", "c").await.unwrap_err();
    assert!(
        failure.to_string().contains("supports none of the WebSocket subprotocols v5.channel.k8s.io"),
        "{failure}"
    );
}

#[tokio::test]
async fn an_attachment_that_is_dropped_closes_its_connection() {
    let (world, told) = playing(V5, Peer::wait_for_close);
    drop(attached(&world).await);
    // The runtime drops the task on its next turn.
    let told = Arc::new(Mutex::new(told));
    tokio::task::spawn_blocking(move || told.lock().unwrap().recv().unwrap()).await.unwrap();
}
