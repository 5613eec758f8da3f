//! A bench's part of a segment that several benches carry out at the same time: first its connections, then what it sends, from one
//! instant on. What the parts come to together is [`crate::remote::segments`]'.

use seawall_isolate::segment::{Design, Segment};
use seawall_load::schedule::Slice;
use seawall_load::session::Session;

use super::bench::{Bench, Sending};
use super::slots::{Counted, Hits, Share};
use crate::remote::segments::Sent;
use crate::rig::NoSession;

/// A segment whose connections stand.
pub struct Standing {
    segment: Segment,
    /// Requests a second of the whole.
    rate: f64,
    slice: Slice,
    sessions: Sessions,
}

enum Sessions {
    /// One for all ways, and whose each of its requests is.
    Together(Box<Session>, Vec<usize>),
    /// By way.
    Apart(Vec<Option<Session>>),
}

impl Bench {
    /// Opens the connections of its part, whose place among so many is this, of a segment at so many requests a second of all parts.
    ///
    /// # Errors
    /// There are none, in words.
    pub fn stand(&self, segment: &Segment, rate: f64, place: (u64, u64)) -> Result<Standing, String> {
        let slice = Slice::new(place.0, place.1).map_err(|bad| bad.to_string())?;
        if segment.members.iter().any(|member| *member >= self.ways()) {
            return Err(format!("there are {} ways here, and one more is asked for", self.ways()));
        }
        // Each part has an order of its own.
        let seed = segment.seed ^ (place.0 + 1).wrapping_mul(0xd134_2543_de82_ef95);
        let segment = Segment { seed, ..segment.clone() };
        let sessions = match segment.design {
            Design::Interleaved => self
                .together(&segment, rate, slice)
                .map(|(session, of)| Sessions::Together(Box::new(session), of)),
            Design::Blocks => self.apart(&segment, rate / slice.of() as f64).map(Sessions::Apart),
        };
        let sessions = sessions.map_err(|error| error.to_string())?;
        Ok(Standing { segment, rate, slice, sessions })
    }

    /// Sends all of its part of an interleaved segment, or one block of a member, from this instant on, in nanoseconds since the Unix
    /// epoch.
    ///
    /// # Errors
    /// Nothing was sent, in words: the instant has passed, or there is no such member.
    pub fn send(
        &self,
        standing: &mut Standing,
        member: Option<usize>,
        start_at: i64,
    ) -> Result<Sent, String> {
        let Standing { segment, rate, slice, sessions } = standing;
        let sending =
            Sending { lasts: segment.sends(), rate: *rate, slice: *slice, start_at: Some(start_at) };
        let loaded = match (sessions, member) {
            (Sessions::Together(session, of), None) => {
                self.load(session, &sending, self.cells(segment, segment.cells), |target| of[target])
            }
            (Sessions::Apart(sessions), Some(member)) => match sessions.get_mut(member) {
                Some(Some(session)) => self.load(session, &sending, self.cells(segment, 1), |_| member),
                _ => Err(NoSession::Impossible("it is no member of the segment".into())),
            },
            _ => Err(NoSession::Impossible("that is not how the segment's ways take turns".into())),
        };
        let loaded = loaded.map_err(|error| error.to_string())?;
        let shares = |cell: &Vec<Hits>| {
            cell.iter().map(|hits| hits.share(loaded.limited)).collect::<Vec<Option<Share>>>()
        };
        Ok(Sent {
            cells: loaded.cells.iter().map(shares).collect(),
            times: loaded.times.iter().map(Counted::of).collect(),
            counts: loaded.counts,
            cut: loaded.cut,
            limits: loaded.limits,
        })
    }
}
