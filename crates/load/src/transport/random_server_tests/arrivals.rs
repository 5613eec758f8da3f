//! Tests of responses that wait for their reader.

use super::*;

const MS: Nanos = SECOND / 1000;

impl Sim {
    /// Returns a connection on which this number of requests was sent.
    fn with_requests(protocol: &Protocol, requests: usize) -> Self {
        let mut sim = Self::new(protocol, limits(), 1);
        for _ in 0..requests {
            sim.launch();
        }
        sim.client.decide_connect_attempt(0, true);
        while sim.servers[0].requests.len() < requests {
            sim.report(0);
            sim.flush();
            sim.hear(0);
        }
        while sim.report(0) {}
        sim
    }

    /// Makes the server respond to the first waiting request a millisecond later. The client's system then has the response.
    fn answer_arrives(&mut self) -> Nanos {
        self.client.advance_time(MS);
        let at = self.client.now();
        self.answer(0, 0, true);
        self.pipe(0, |_, pipe| {
            let before: usize = pipe.arrivals.iter().map(|(bytes, _)| bytes).sum();
            pipe.arrivals.push_back((pipe.to_client.len() - before, at));
        });
        at
    }

    /// Reads as a late client. Returns the times when responses began, and when they were complete.
    fn read_late(&mut self) -> (Vec<Nanos>, Vec<Nanos>) {
        self.client.advance_time(50 * MS);
        assert!(self.client.deliver_poller_report(0));
        let (mut heads, mut ends) = (Vec::new(), Vec::new());
        while let Some(news) = self.client.next_event() {
            match news.kind {
                HarnessEventKind::FirstResponseByte => heads.push(news.at),
                HarnessEventKind::Answered(_) => ends.push(news.at),
                _ => {}
            }
        }
        (heads, ends)
    }
}

#[test]
fn a_late_reader_does_not_lengthen_an_answer() {
    for protocol in Protocol::four() {
        let mut sim = Sim::with_requests(&protocol, 1);
        let at = sim.answer_arrives();
        sim.client.network.lock_state().is_client_late = true;
        assert_eq!(sim.read_late(), (vec![at], vec![at]), "{}", protocol.http2);
    }
}

#[test]
fn all_answers_of_one_read_have_its_time() {
    for protocol in Protocol::four().into_iter().filter(|protocol| protocol.http2 && protocol.tls.is_none()) {
        let mut sim = Sim::with_requests(&protocol, 3);
        let arrived: Vec<_> = (0..3).map(|_| sim.answer_arrives()).collect();
        sim.client.network.lock_state().is_client_late = true;
        assert_eq!(sim.read_late(), (vec![arrived[2]; 3], vec![arrived[2]; 3]));
    }
}

/// A protocol that reads until there is no more data would give all of them the time of the last.
#[test]
fn what_several_reads_bring_has_the_time_of_its_own() {
    for protocol in Protocol::four().into_iter().filter(|protocol| protocol.http2) {
        let mut sim = Sim::with_requests(&protocol, 2);
        let long = sim.client.now() + MS;
        sim.client.advance_time(MS);
        sim.pipe(0, |server, pipe| {
            let (stream, piece) = (server.requests.remove(0), [b'x'; 16_000]);
            server.say(pipe, &http2_frames::headers(stream));
            for left in (0..10).rev() {
                server.say(pipe, &http2_frames::data(stream, &piece, left == 0));
            }
            pipe.arrivals.push_back((pipe.to_client.len(), long));
        });
        let last = sim.answer_arrives();
        sim.client.network.lock_state().is_client_late = true;
        let (heads, ends) = sim.read_late();
        assert_eq!((heads, ends.len(), ends[1]), (vec![long, last], 2, last));
        assert!(ends[0] == long || ends[0] == last);
    }
}

#[test]
fn an_answer_that_nobody_asked_the_kernel_about_is_dated_when_it_is_read() {
    for protocol in Protocol::four() {
        let mut sim = Sim::with_requests(&protocol, 1);
        sim.answer_arrives();
        let (heads, ends) = sim.read_late();
        let now = sim.client.now();
        assert_eq!((heads, ends), (vec![now], vec![now]));
    }
}

/// The second response is not asked about: the older stamp does not belong to it.
#[test]
fn a_stamp_is_of_its_own_read_alone() {
    for protocol in Protocol::four() {
        let mut sim = Sim::with_requests(&protocol, 1);
        sim.answer_arrives();
        sim.client.network.lock_state().is_client_late = true;
        sim.read_late();
        sim.client.network.lock_state().is_client_late = false;
        sim.client.launch(0);
        sim.client.drive_marked_connections();
        sim.hear(0);
        while sim.client.deliver_poller_report(0) {}
        sim.answer_arrives();
        let (_, ends) = sim.read_late();
        assert_eq!(ends, [sim.client.now()]);
    }
}

#[test]
fn an_answer_in_two_parts_began_with_the_first_and_ended_with_the_second() {
    let mut sim = Sim::with_requests(&Protocol::four()[0], 1);
    let first = sim.client.now() + MS;
    sim.client.advance_time(MS);
    sim.pipe(0, |server, pipe| {
        server.answer(pipe, 0, false);
        pipe.arrivals.push_back((pipe.to_client.len(), first));
    });
    sim.client.network.lock_state().is_client_late = true;
    assert_eq!(sim.read_late(), (vec![first], vec![]));
    let second = sim.client.now() + MS;
    sim.client.advance_time(MS);
    sim.pipe(0, |server, pipe| {
        server.say(pipe, b"1234567");
        pipe.arrivals.push_back((7, second));
    });
    assert_eq!(sim.read_late(), (vec![], vec![second]));
}
