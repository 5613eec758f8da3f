//! WebSocket frames: any bytes are read or refused, and what is sent is read as it was.

use bytes::Bytes;
use proptest::prelude::*;
use seawall_invariants::kubectl;
use seawall_kubectl::attach::frame::{Message, Opcode, encode};

#[test]
fn the_corpus_of_frames_holds() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/websocket");
    let files: Vec<_> = std::fs::read_dir(corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
    let seen: Vec<_> = files.iter().map(|file| kubectl::check(&std::fs::read(file).unwrap())).collect();
    assert!(seen.iter().filter(|seen| !seen.messages.is_empty()).count() > 5, "the corpus is missing");
    assert!(seen.iter().filter(|seen| seen.frame_error.is_some()).count() > 5, "the corpus is missing");
}

/// A frame as a server writes it, with a length of as many bytes as are needed, or of more.
fn frame(first: u8, payload: &[u8], wide: usize) -> Vec<u8> {
    let length = payload.len();
    let mut bytes = vec![first];
    match (length, wide) {
        (..126, 0) => bytes.push(u8::try_from(length).unwrap()),
        (..0x1_0000, ..2) => {
            bytes.push(126);
            bytes.extend(u16::try_from(length).unwrap().to_be_bytes());
        }
        _ => {
            bytes.push(127);
            bytes.extend((length as u64).to_be_bytes());
        }
    }
    bytes.extend(payload);
    bytes
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(input: Vec<u8>) {
        kubectl::check(&input);
    }

    #[test]
    fn messages_are_read_as_they_were_sent(
        piece: u8,
        sent in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..300), 1..5_usize, 0..3_usize, any::<bool>()), 0..5),
    ) {
        let (mut bytes, mut messages) = (vec![piece], Vec::new());
        for (payload, parts, wide, is_pinged) in sent {
            let parts: Vec<&[u8]> = payload.chunks(payload.len().div_ceil(parts).max(1)).collect();
            let last = parts.len().saturating_sub(1);
            for (at, part) in parts.iter().enumerate() {
                let opcode = if at == 0 { Opcode::Binary } else { Opcode::Continuation };
                bytes.extend(frame(opcode as u8 | if at == last { 0x80 } else { 0 }, part, wide));
                if is_pinged {
                    bytes.extend(frame(0x80 | Opcode::Ping as u8, b"?", 0));
                }
            }
            if is_pinged && last > 0 {
                messages.extend((0..last).map(|_| Message::Ping(Bytes::from_static(b"?"))));
            }
            if !parts.is_empty() {
                messages.push(Message::Data(payload.into()));
                messages.extend(is_pinged.then(|| Message::Ping(Bytes::from_static(b"?"))));
            }
        }
        let seen = kubectl::check(&bytes);
        prop_assert_eq!((seen.messages, seen.frame_error), (messages, None));
    }

    #[test]
    fn what_is_written_is_masked_and_whole(length in 0..70_000_usize, seed: u8, mask: [u8; 4]) {
        let payload: Vec<u8> = (0..length).map(|at| seed ^ at.to_le_bytes()[0]).collect();
        let bytes = encode(Opcode::Binary, &payload, mask);
        let head = match payload.len() {
            0..126 => 2,
            126..0x1_0000 => 4,
            _ => 10,
        };
        prop_assert_eq!(bytes[1] & 0x80, 0x80);
        prop_assert_eq!(&bytes[head..head + 4], mask);
        // Without its mask it is what a server sends.
        let plain: Vec<u8> = bytes[head + 4..].iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask).collect();
        let as_sent = [&[255, bytes[0], bytes[1] & 0x7f][..], &bytes[2..head], &plain].concat();
        prop_assert_eq!(kubectl::check(&as_sent).messages, [Message::Data(payload.into())]);
    }
}
