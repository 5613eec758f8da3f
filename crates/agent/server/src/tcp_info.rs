//! Reads the kernel's statistics of a TCP connection (tcp(7), TCP_INFO). One call takes about 1 µs.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::GetStruct;
use nix::{getsockopt_impl, libc};

getsockopt_impl!(TcpInfo, libc::IPPROTO_TCP, libc::TCP_INFO, TcpInfoHead, GetStruct<TcpInfoHead>);

/// The socket option TCP_INFO.
#[derive(Clone, Copy, Debug)]
struct TcpInfo;

/// The first fields of the kernel's `struct tcp_info` (linux/tcp.h), up to `tcpi_notsent_bytes`.
/// The struct starts with eight bytes, and then has 32-bit numbers. The kernel returns as many bytes as the caller requests.
/// Newer kernels only append fields, so every kernel since 4.6 returns all these fields.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct TcpInfoHead {
    flags: [u8; 8],
    figures: [u32; 35],
}

impl TcpInfoHead {
    /// The index of `tcpi_state` in `flags`.
    const STATE: usize = 0;
    /// The index of `tcpi_unacked`: for a listener, the connections in its backlog (net/ipv4/tcp.c, `tcp_get_info`).
    const UNACKNOWLEDGED: usize = 4;
    /// The index of `tcpi_sacked`: for a listener, the length of its backlog that the kernel allows (the same function).
    #[cfg(test)]
    const SELECTIVELY_ACKNOWLEDGED: usize = 5;
    /// The index of `tcpi_last_data_recv`: the milliseconds since the client's last data arrived.
    const LAST_DATA_RECEIVED: usize = 11;
    /// The index of `tcpi_notsent_bytes`: the bytes that TCP has not sent, because the client's receive window is full.
    const NOT_SENT: usize = 34;
}

/// Returns the time since the last bytes of the client arrived.
pub(crate) fn time_since_data(stream: &TcpStream) -> Option<Duration> {
    let info = getsockopt(stream, TcpInfo).ok()?;
    Some(Duration::from_millis(info.figures[TcpInfoHead::LAST_DATA_RECEIVED].into()))
}

/// Returns the number of bytes that wait in the socket's send buffer because the client's receive window is full.
pub(crate) fn unsent_bytes(stream: &TcpStream) -> u32 {
    getsockopt(stream, TcpInfo).map_or(0, |info| info.figures[TcpInfoHead::NOT_SENT])
}

/// True if both sides have closed the connection and acknowledged it, or if the connection has failed. Then the socket costs nothing when it
/// closes.
///
/// Not if only the agent's side is closed and acknowledged (`TCP_FIN_WAIT2`): the kernel would make a record of 256 bytes for the rest of the
/// connection's life, and charge it to the process that closes (net/ipv4/tcp.c, `__tcp_close`). Else it makes the record itself.
pub(crate) fn is_over(stream: &TcpStream) -> bool {
    // `TCP_TIME_WAIT` and `TCP_CLOSE` (include/net/tcp_states.h).
    const OVER: [u8; 2] = [6, 7];
    getsockopt(stream, TcpInfo).map_or(true, |info| OVER.contains(&info.flags[TcpInfoHead::STATE]))
}

/// Returns the number of connections that wait in the backlog of a listener.
///
/// # Errors
/// The kernel refuses the call.
pub(crate) fn backlog_length(listener: &TcpListener) -> io::Result<u32> {
    Ok(getsockopt(listener, TcpInfo)?.figures[TcpInfoHead::UNACKNOWLEDGED])
}

/// Returns the number of connections that may wait in the backlog of a listener.
///
/// # Errors
/// The kernel refuses the call.
#[cfg(test)]
pub(crate) fn backlog_limit(listener: &TcpListener) -> io::Result<u32> {
    Ok(getsockopt(listener, TcpInfo)?.figures[TcpInfoHead::SELECTIVELY_ACKNOWLEDGED])
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::Shutdown;

    use super::*;

    #[test]
    fn bytes_that_the_client_does_not_read_are_counted_until_it_reads_them() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut stream = listener.accept().unwrap().0;
        stream.write_all(b"read at once").unwrap();
        assert_eq!(unsent_bytes(&stream), 0);
        stream.set_nonblocking(true).unwrap();
        let mut written = 12;
        while let Ok(more) = stream.write(&[0; 65_536]) {
            written += more;
        }
        assert!(unsent_bytes(&stream) > 0);
        client.read_exact(&mut vec![0; written]).unwrap();
        assert_eq!(unsent_bytes(&stream), 0);
    }

    #[test]
    fn a_connection_is_over_once_both_sides_have_closed_or_it_failed() {
        let until_over = |stream: &TcpStream| {
            for _ in 0..1_000_000 {
                if is_over(stream) {
                    return;
                }
                std::thread::yield_now();
            }
            panic!("it is not over");
        };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut stream = listener.accept().unwrap().0;
        assert!(!is_over(&stream), "it is open");
        stream.write_all(b"answer").unwrap();
        stream.shutdown(Shutdown::Both).unwrap();
        assert!(!is_over(&stream), "the client has not closed");
        client.shutdown(Shutdown::Write).unwrap();
        until_over(&stream);
        // A client that does not read, so the close cannot be sent.
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut stream = listener.accept().unwrap().0;
        stream.set_nonblocking(true).unwrap();
        while stream.write(&[0; 65_536]).is_ok() {}
        stream.shutdown(Shutdown::Both).unwrap();
        assert!(!is_over(&stream));
        // Unread bytes make the client's kernel reset the connection.
        drop(client);
        until_over(&stream);
    }

    #[test]
    fn the_time_since_the_last_bytes_is_told() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.write_all(b"x").unwrap();
        let stream = listener.accept().unwrap().0;
        assert!(time_since_data(&stream).unwrap() < Duration::from_secs(60));
    }
}
