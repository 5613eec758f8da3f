//! The fastest server that a load generator can be held against: one thread, one epoll set, one answer.
//!
//! `responder PORT [STALL_AFTER_MS STALL_FOR_MS]` answers every request on loopback with the same 300 bytes, about what
//! a metadata server's token answer takes. With the last two arguments it stands still once, in the middle of a run.
//! It looks for the end of a head and at nothing else; bodies of requests are not expected.

use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use slab::Slab;

const LISTENER: u64 = u64::MAX;
const END_OF_HEAD: &[u8] = b"\r\n\r\n";

fn main() -> io::Result<()> {
    let arguments: Vec<u64> = std::env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    let [port, ref stall @ ..] = arguments[..] else {
        return Err(io::Error::other("usage: responder PORT [STALL_AFTER_MS STALL_FOR_MS]"));
    };
    let port = u16::try_from(port).map_err(io::Error::other)?;
    let stall = match *stall {
        [after, length] => Some((Duration::from_millis(after), Duration::from_millis(length))),
        _ => None,
    };
    Server::bind(port)?.run(stall)
}

struct Server {
    epoll: rustix::fd::OwnedFd,
    listener: TcpListener,
    connections: Slab<TcpStream>,
    answer: Vec<u8>,
}

impl Server {
    fn bind(port: u16) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        rustix::net::listen(&listener, 4096)?;
        listener.set_nonblocking(true)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
        let body = format!(
            "{{\"access_token\":\"{}\",\"expires_in\":3599,\"token_type\":\"Bearer\"}}",
            "x".repeat(150)
        );
        let answer = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        Ok(Self { epoll, listener, connections: Slab::new(), answer: answer.into_bytes() })
    }

    fn run(&mut self, mut stall: Option<(Duration, Duration)>) -> io::Result<()> {
        let mut events = Vec::with_capacity(256);
        let mut buffer = vec![0; 64 * 1024];
        let mut began = None;
        loop {
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let elapsed = began.get_or_insert_with(now).elapsed();
            if let Some((_, length)) = stall.take_if(|(after, _)| elapsed >= *after) {
                stand_still(length);
            }
            for event in &events {
                match event.data.u64() {
                    LISTENER => self.accept()?,
                    index => self.serve(index as usize, &mut buffer),
                }
            }
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        while let Ok((stream, _)) = self.listener.accept() {
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            let entry = self.connections.vacant_entry();
            let flags = EventFlags::IN | EventFlags::ET;
            epoll::add(&self.epoll, &stream, EventData::new_u64(entry.key() as u64), flags)?;
            entry.insert(stream);
        }
        Ok(())
    }

    /// Answers each head that a read brought. Requests of the generators fit one read; answers fit one write.
    fn serve(&mut self, index: usize, buffer: &mut [u8]) {
        let Some(stream) = self.connections.get(index) else { return };
        let gone = match rustix::io::read(stream, &mut *buffer) {
            Ok(0) => true,
            Ok(count) => {
                let heads = buffer[..count]
                    .windows(END_OF_HEAD.len())
                    .filter(|window| *window == END_OF_HEAD)
                    .count();
                (0..heads).any(|_| rustix::io::write(stream, &self.answer).is_err())
            }
            Err(Errno::AGAIN) => false,
            Err(_) => true,
        };
        if gone {
            self.connections.remove(index);
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a measuring aid, not a test that time decides")]
fn now() -> std::time::Instant {
    std::time::Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "standing still is the point")]
fn stand_still(length: Duration) {
    std::thread::sleep(length);
}
