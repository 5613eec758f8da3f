//! Sends messages to the kernel over netlink and splits the answers. [`crate::netfilter`] and [`crate::pod_links`] write the messages.
//!
//! Source: Linux `include/uapi/linux/netlink.h`. The headers have the machine's byte order.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recvfrom, send, socket_with,
};

/// The time limit for an answer of the kernel. It has answered when the system call that sends the request returns, which can wait for the
/// kernel's own locks without a limit.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The size of the buffer for one datagram of the kernel. Dumps use at most 32 KiB (`NLMSG_GOODSIZE`).
const DATAGRAM_BYTES: usize = 64 * 1024;

// `linux/netlink.h`: the length of a header, message types and flags.
const HEADER_BYTES: usize = 16;
pub(crate) const ERROR: u16 = 2;
pub(crate) const DONE: u16 = 3;
pub(crate) const REQUEST: u16 = 0x1;
pub(crate) const ACK: u16 = 0x4;
pub(crate) const DUMP: u16 = 0x300;
pub(crate) const CREATE: u16 = 0x400;
pub(crate) const APPEND: u16 = 0x800;
pub(crate) const NESTED: u16 = 0x8000;

/// A socket that sends messages to one subsystem of the kernel.
#[derive(Debug)]
pub(crate) struct NetlinkSocket {
    socket: OwnedFd,
    /// The room for one datagram.
    buffer: Vec<u8>,
}

impl NetlinkSocket {
    /// Opens a socket to this subsystem, for the network namespace of this thread.
    ///
    /// # Errors
    /// The kernel lacks the subsystem, or refuses the socket.
    pub(crate) fn open(subsystem: Option<Protocol>) -> Result<Self, Errno> {
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, subsystem)?;
        set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER_TIMEOUT))?;
        // The kernel chooses the address. The socket sends to the kernel, whose address is 0.
        bind(&socket, &SocketAddrNetlink::new(0, 0))?;
        Ok(Self { socket, buffer: vec![0; DATAGRAM_BYTES] })
    }

    /// Sends one or more messages.
    ///
    /// # Errors
    /// The kernel does not take them.
    pub(crate) fn send(&self, messages: &[u8]) -> Result<(), Errno> {
        send(&self.socket, messages, SendFlags::empty()).map(drop)
    }

    /// Receives one datagram and splits it into messages.
    ///
    /// # Errors
    /// The kernel has sent nothing within [`ANSWER_TIMEOUT`], dropped an answer, or sent a longer one than the buffer holds.
    pub(crate) fn receive(&mut self) -> Result<Vec<Answer>, Errno> {
        loop {
            let (received, length, sender) = recvfrom(&self.socket, &mut self.buffer[..], RecvFlags::TRUNC)?;
            // Processes with CAP_NET_ADMIN can send to this socket, too. The kernel's address is 0.
            let is_kernels = sender.is_none_or(|sender| {
                SocketAddrNetlink::try_from(sender).is_ok_and(|sender| sender.pid() == 0)
            });
            if !is_kernels {
                continue;
            }
            if length > received {
                return Err(Errno::MSGSIZE);
            }
            return Ok(answers(self.buffer.get(..received).unwrap_or_default()));
        }
    }
}

/// A message of the kernel without its header.
pub(crate) struct Answer {
    pub(crate) kind: u16,
    /// The number of the message that this one answers.
    pub(crate) sequence: u32,
    pub(crate) body: Vec<u8>,
}

fn answers(mut bytes: &[u8]) -> Vec<Answer> {
    let mut answers = Vec::new();
    while let (Some(length), Some(kind), Some(sequence)) =
        (u32_at(bytes, 0), u16_at(bytes, 4), u32_at(bytes, 8))
    {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let Some(body) = bytes.get(HEADER_BYTES..length) else { break };
        answers.push(Answer { kind, sequence, body: body.to_vec() });
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    answers
}

/// Returns the error in the body of an [`ERROR`] message; `None` for an acknowledgement.
pub(crate) fn error_of(body: &[u8]) -> Option<Errno> {
    match u32_at(body, 0).map(u32::cast_signed) {
        Some(0) => None,
        Some(code) => Some(Errno::from_raw_os_error(code.wrapping_neg())),
        // The kernel never sends a shorter body.
        None => Some(Errno::BADMSG),
    }
}

/// Returns a message: its header, and its body, which begins with the header of the subsystem.
pub(crate) fn message(kind: u16, flags: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(HEADER_BYTES + body.len()).unwrap_or(u32::MAX);
    let mut bytes = length.to_ne_bytes().to_vec();
    bytes.extend([kind.to_ne_bytes(), flags.to_ne_bytes()].concat());
    bytes.extend([sequence.to_ne_bytes(), [0; 4]].concat());
    bytes.extend_from_slice(body);
    bytes
}

/// Returns an attribute: its length without padding, its kind, its value, and zeros up to a multiple of four bytes.
pub(crate) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(value.len() + 4).unwrap_or(u16::MAX);
    let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
    bytes.extend_from_slice(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Splits off the first attribute: its kind without flags, its value, and the rest.
pub(crate) fn next_attribute(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = usize::from(u16_at(bytes, 0)?);
    let value = bytes.get(4..length)?;
    let rest = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some((u16_at(bytes, 2)? & 0x3fff, value, rest))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_padded_and_read_as_they_were_written() {
        let bytes = [attribute(1, b"abcde"), attribute(2 | NESTED, &attribute(3, &[7]))].concat();
        assert_eq!(bytes.len() % 4, 0);
        let (kind, value, rest) = next_attribute(&bytes).unwrap();
        assert_eq!((kind, value), (1, &b"abcde"[..]));
        let (kind, value, rest) = next_attribute(rest).unwrap();
        assert_eq!((kind, next_attribute(value).unwrap().1, rest), (2, &[7][..], &[][..]));
        assert_eq!(next_attribute(rest), None);
    }

    #[test]
    fn a_datagram_is_split_into_its_messages_and_a_cut_one_ends_there() {
        let two = [message(ERROR, 0, 1, &[0; 8]), message(DONE, 0, 2, &[0; 4])].concat();
        let kinds = |bytes: &[u8]| {
            answers(bytes).iter().map(|answer| (answer.kind, answer.sequence)).collect::<Vec<_>>()
        };
        assert_eq!(kinds(&two), [(ERROR, 1), (DONE, 2)]);
        assert_eq!(kinds(&two[..two.len() - 1]), [(ERROR, 1)]);
        assert_eq!(kinds(&[]), []);
        // A length shorter than a header, which would never advance.
        assert_eq!(kinds(&[0; 64]), []);
    }

    #[test]
    fn an_acknowledgement_is_no_error_and_a_refusal_is() {
        assert_eq!(error_of(&0_u32.to_ne_bytes()), None);
        assert_eq!(error_of(&(-1_i32).to_ne_bytes()), Some(Errno::PERM));
    }
}
