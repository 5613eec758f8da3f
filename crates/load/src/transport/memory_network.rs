//! A network in memory: streams that are buffers, a clock moved by hand, and readiness that is reported only for changes, like
//! that of an edge-triggered poller. [`super::transport_harness`] controls it. It knows nothing of the protocols.

use std::collections::VecDeque;
use std::io::{self, Read as _};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::socket::{ConnectError, IoProgress, PeerAddress};
use super::{NetworkBackend, Stream, TimeSource};
use crate::clock::{KernelReceiveWallTime, Nanos};
use crate::poller::EventFlags;
use crate::request_failure_reason::RequestFault;

/// All streams that were ever opened, and the time.
#[derive(Debug, Default)]
pub(crate) struct MemoryState {
    pub(crate) now: Nanos,
    /// True if the client's thread may be late.
    pub(crate) is_client_late: bool,
    pub(crate) pipes: Vec<Pipe>,
}

/// Both directions of one stream.
#[derive(Debug, Default)]
pub(crate) struct Pipe {
    /// The outcome of the attempt to connect, if it has ended.
    pub(crate) connect_outcome: Option<bool>,
    pub(crate) to_server: Vec<u8>,
    pub(crate) to_client: VecDeque<u8>,
    /// The number of bytes that came together and their arrival time, for the reads that have one.
    pub(crate) arrivals: VecDeque<(usize, Nanos)>,
    /// Data that is repeated without end once `to_client` is empty.
    pub(crate) endless_data: Option<&'static [u8]>,
    /// The number of bytes that the client may write now.
    pub(crate) room: usize,
    /// True if the server has closed the stream normally, false if by a reset.
    pub(crate) closed_cleanly: Option<bool>,
    /// True if the client has dropped the stream.
    pub(crate) dropped_by_client: bool,
    pub(crate) token: u64,
    /// True if there is a change to report.
    pub(crate) has_unreported_change: bool,
}

impl Pipe {
    /// Returns the poller's next report about the stream, if there is one.
    pub(crate) fn take_poller_report(&mut self) -> Option<(u64, EventFlags)> {
        if self.dropped_by_client || !std::mem::take(&mut self.has_unreported_change) {
            return None;
        }
        let mut flags = EventFlags::OUT;
        flags.set(EventFlags::IN, !self.to_client.is_empty() || self.endless_data.is_some());
        flags.set(EventFlags::IN | EventFlags::RDHUP, self.closed_cleanly.is_some());
        flags.set(EventFlags::ERR, self.closed_cleanly == Some(false) || self.connect_outcome == Some(false));
        Some((self.token, flags))
    }
}

impl Pipe {
    /// Returns the arrival time of the last of `count` bytes.
    fn take_arrivals(&mut self, mut count: usize) -> Option<Nanos> {
        let mut last = None;
        while let Some((bytes, at)) = self.arrivals.front_mut().filter(|_| count > 0) {
            last = Some(*at);
            let taken = count.min(*bytes);
            (*bytes, count) = (*bytes - taken, count - taken);
            if *bytes == 0 {
                self.arrivals.pop_front();
            }
        }
        last
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct MemoryNetwork(Arc<Mutex<MemoryState>>);

/// The client's end of a pipe.
#[derive(Debug)]
pub(crate) struct MemoryStream {
    world: MemoryNetwork,
    index: usize,
}

impl MemoryNetwork {
    pub(crate) fn lock_state(&self) -> MutexGuard<'_, MemoryState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TimeSource for MemoryNetwork {
    fn now(&self) -> Nanos {
        self.lock_state().now
    }

    fn is_late(&self) -> bool {
        self.lock_state().is_client_late
    }

    fn received(&self, stamp: KernelReceiveWallTime) -> Option<Nanos> {
        Some(stamp.0)
    }
}

impl NetworkBackend for MemoryNetwork {
    type Stream = MemoryStream;

    fn connect(&self, _: &PeerAddress, _: Option<IpAddr>) -> Result<(MemoryStream, bool), ConnectError> {
        let mut world = self.lock_state();
        world.pipes.push(Pipe { room: 1 << 20, ..Pipe::default() });
        Ok((MemoryStream { world: self.clone(), index: world.pipes.len() - 1 }, false))
    }

    fn watch(&self, stream: &MemoryStream, token: u64) -> Result<(), RequestFault> {
        self.lock_state().pipes[stream.index].token = token;
        Ok(())
    }

    fn watch_again(&self, stream: &MemoryStream, _: u64) -> Result<(), RequestFault> {
        self.lock_state().pipes[stream.index].has_unreported_change = true;
        Ok(())
    }
}

impl MemoryStream {
    fn with<R>(&self, act: impl FnOnce(&mut Pipe) -> R) -> R {
        act(&mut self.world.lock_state().pipes[self.index])
    }
}

impl Stream for MemoryStream {
    fn finish_connect(&self) -> io::Result<()> {
        self.with(|pipe| match pipe.connect_outcome {
            Some(true) => Ok(()),
            _ => Err(io::ErrorKind::ConnectionRefused.into()),
        })
    }

    fn read(&self, buffer: &mut [u8]) -> io::Result<IoProgress> {
        self.with(|pipe| {
            if pipe.closed_cleanly == Some(false) {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            while let Some(endless) = pipe.endless_data.filter(|_| pipe.to_client.len() < buffer.len()) {
                pipe.to_client.extend(endless);
            }
            pipe.to_client.make_contiguous();
            match pipe.to_client.read(buffer)? {
                0 if pipe.closed_cleanly.is_none() => Ok(IoProgress::WouldBlock),
                count => Ok(IoProgress::Bytes(count)),
            }
        })
    }

    fn read_stamped(&self, buffer: &mut [u8]) -> io::Result<(IoProgress, Option<KernelReceiveWallTime>)> {
        let moved = self.read(buffer)?;
        let count = if let IoProgress::Bytes(count) = moved { count } else { 0 };
        Ok((moved, self.with(|pipe| pipe.take_arrivals(count)).map(KernelReceiveWallTime)))
    }

    fn write(&self, bytes: &[u8]) -> io::Result<IoProgress> {
        self.with(|pipe| {
            if pipe.closed_cleanly == Some(false) {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            let count = bytes.len().min(pipe.room);
            pipe.room -= count;
            pipe.to_server.extend_from_slice(&bytes[..count]);
            Ok(if count == 0 { IoProgress::WouldBlock } else { IoProgress::Bytes(count) })
        })
    }
}

impl Drop for MemoryStream {
    fn drop(&mut self) {
        self.with(|pipe| pipe.dropped_by_client = true);
    }
}
