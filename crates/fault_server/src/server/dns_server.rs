//! A DNS server that resolves every name to this server. It works on bytes; the event loop owns the socket.

use std::net::IpAddr;

/// The longest question in bytes: 12 for the head, 255 for a name, 4 for type and class, and room for EDNS (RFC 1035, RFC 6891).
pub(super) const MAX_QUESTION_BYTES: usize = 512;

/// The length of the head (RFC 1035 section 4.1.1).
const HEAD: usize = 12;

/// The types of addresses (RFC 1035 section 3.2.2, RFC 3596).
const A: u16 = 1;
const AAAA: u16 = 28;

/// Returns the answer to a question; none if the bytes are not a question.
pub(super) fn answer(question: &[u8], here: IpAddr) -> Option<Vec<u8>> {
    let is_one_question = question.get(2)? & 0xf8 == 0 && question.get(4..6)? == [0, 1];
    let end = name_end(question).filter(|_| is_one_question)? + 4;
    let kind = u16::from_be_bytes([*question.get(end - 4)?, *question.get(end - 3)?]);
    let (wanted, address) = match here {
        IpAddr::V4(here) => (A, here.octets().to_vec()),
        IpAddr::V6(here) => (AAAA, here.octets().to_vec()),
    };
    let has_answer = kind == wanted;
    let mut bytes = question.get(..end)?.to_vec();
    // The answer is authoritative and copies the recursion flag. It has one question and at most one record.
    let recursion = bytes[2] & 1;
    bytes[2..HEAD].copy_from_slice(&[0x84 | recursion, 0x80, 0, 1, 0, u8::from(has_answer), 0, 0, 0, 0]);
    if has_answer {
        // The record's name points to the question at byte 12. The class is IN, and the time to live is 0.
        bytes.extend([0xc0, 12, 0, wanted as u8, 0, 1, 0, 0, 0, 0, 0, address.len() as u8]);
        bytes.extend(address);
    }
    Some(bytes)
}

/// Returns the end of the question's name. Names in questions are not compressed.
fn name_end(question: &[u8]) -> Option<usize> {
    let mut at = HEAD;
    loop {
        match usize::from(*question.get(at)?) {
            0 => return Some(at + 1),
            length if length < 64 => at += 1 + length,
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(kind: u8) -> Vec<u8> {
        [&[7, 8, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 3][..], b"cat\x02ex\x00", &[0, kind, 0, 1]].concat()
    }

    #[test]
    fn every_name_is_here_and_has_no_address_of_the_other_kind() {
        let here = IpAddr::from([127, 0, 0, 9]);
        let told = answer(&question(1), here).unwrap();
        assert_eq!(told[..12], [7, 8, 0x85, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]);
        assert_eq!(told[question(1).len()..], [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 127, 0, 0, 9]);
        let none = answer(&question(28), here).unwrap();
        assert_eq!((none.len(), none[7]), (question(28).len(), 0));
    }

    #[test]
    fn what_is_no_question_has_no_answer() {
        let here = IpAddr::from([127, 0, 0, 1]);
        let answered = answer(&question(1), here).unwrap();
        assert_eq!(answer(&answered, here), None);
        for length in 0..question(1).len() {
            assert_eq!(answer(&question(1)[..length], here), None, "{length}");
        }
        let compressed = [&question(1)[..12], &[0xc0, 12, 0, 1, 0, 1]].concat();
        assert_eq!(answer(&compressed, here), None);
    }
}
