//! One generator's part of a segment that several generators send at the same time.
//!
//! The generator first opens its connections and then sends from a common start. [`crate::remote_tasks::isolate_tasks`] merges the parts.

use seawall_isolate::segment::{Segment, VariantOrder};
use seawall_load::load_session::LoadSession;
use seawall_load::schedule::ScheduleShard;

use super::cells::{CellSamples, CellShare, CompactTimes};
use super::local_runner::{ContinuousLoad, LocalVariantRunner};
use crate::remote_tasks::isolate_tasks::SegmentPartResult;
use crate::rig::SessionError;

/// A segment with open connections.
pub struct OpenSegment {
    segment: Segment,
    /// The total requests per second of all parts.
    rate: f64,
    shard: ScheduleShard,
    sessions: SegmentSessions,
}

enum SegmentSessions {
    /// One session for all variants, and the variant of each request.
    Shared(Box<LoadSession>, Vec<usize>),
    /// One session for each variant.
    PerVariant(Vec<Option<LoadSession>>),
}

impl LocalVariantRunner {
    /// Opens the connections of one part of a segment. `rate` is the requests per second of all parts, and `place` is the index
    /// of this part and the number of parts.
    ///
    /// # Errors
    /// The reason, in words, why the connections cannot be opened.
    pub fn open_segment_part(
        &self,
        segment: &Segment,
        rate: f64,
        place: (u64, u64),
    ) -> Result<OpenSegment, String> {
        let shard = ScheduleShard::new(place.0, place.1).map_err(|bad| bad.to_string())?;
        if segment.members.iter().any(|member| *member >= self.variant_count()) {
            return Err(format!(
                "the coordinator asked for an unknown variant: this pod has {} variants",
                self.variant_count()
            ));
        }
        // Each part has its own order of requests.
        let seed = segment.seed ^ (place.0 + 1).wrapping_mul(0xd134_2543_de82_ef95);
        let segment = Segment { seed, ..segment.clone() };
        let sessions = match segment.design {
            VariantOrder::Interleaved => self
                .open_interleaved_session(&segment, rate, shard)
                .map(|(session, of)| SegmentSessions::Shared(Box::new(session), of)),
            VariantOrder::OneVariantPerBlock => self
                .block_sessions(&segment, rate / shard.shard_count() as f64)
                .map(SegmentSessions::PerVariant),
        };
        let sessions = sessions.map_err(|error| error.to_string())?;
        Ok(OpenSegment { segment, rate, shard, sessions })
    }

    /// Sends this part of an interleaved segment, or one block of a variant. `start_at` is in nanoseconds since the Unix epoch.
    ///
    /// # Errors
    /// The reason, in words, why nothing was sent: the start has passed, or the variant does not exist.
    pub fn send_segment_part(
        &self,
        standing: &mut OpenSegment,
        member: Option<usize>,
        start_at: i64,
    ) -> Result<SegmentPartResult, String> {
        let OpenSegment { segment, rate, shard, sessions } = standing;
        let sending = ContinuousLoad {
            duration: segment.send_duration(),
            total_rate: *rate,
            schedule_shard: *shard,
            start_at: Some(start_at),
        };
        let loaded = match (sessions, member) {
            (SegmentSessions::Shared(session, of), None) => self.run_load(
                session,
                &sending,
                self.new_cell_collector_of_segment(segment, segment.cell_count),
                |target| of[target],
            ),
            (SegmentSessions::PerVariant(sessions), Some(member)) => match sessions.get_mut(member) {
                Some(Some(session)) => {
                    self.run_load(session, &sending, self.new_cell_collector_of_segment(segment, 1), |_| {
                        member
                    })
                }
                _ => Err(SessionError::Impossible("the variant is not part of the segment".into())),
            },
            _ => Err(SessionError::Impossible(
                "the coordinator's command does not fit the segment's design".into(),
            )),
        };
        let loaded = loaded.map_err(|error| error.to_string())?;
        let shares = |cell: &Vec<CellSamples>| {
            cell.iter()
                .map(|hits| hits.to_cell_share(loaded.is_generator_limited))
                .collect::<Vec<Option<CellShare>>>()
        };
        Ok(SegmentPartResult {
            cells: loaded.cells.iter().map(shares).collect(),
            times: loaded.response_times.iter().map(CompactTimes::from_histogram).collect(),
            counts: loaded.counts,
            cut: loaded.stop_reason,
            limits: loaded.generator_limits,
        })
    }
}
