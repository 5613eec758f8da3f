//! Records of pods that tell them in lines: kept until the load is over, and then written as one machine writes its own.
//!
//! Only for loads of which the records are few: pods that write into a volume have no such bound. What is too much for sure is refused
//! before anything is sent, and what turns out to be is told in the end.

use std::collections::BTreeSet;
use std::io::{BufWriter, Cursor, Write};

use anyhow::bail;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use seawall_fleet::protocol::MAX_RECORD_BYTES_PER_TRIAL;
use seawall_load::clock::nanos;
use seawall_load::engine::{LoadSpec, ResultsOutput};
use seawall_load::results::{EncodeError, Encoder, RecordMerge, ResultFormat};
use seawall_load::schedule::ArrivalModel;

/// Most bytes of records that are kept of all pods together.
const MOST_HELD: usize = 256 << 20;

/// No record is smaller in any format: two instants, a method and the shortest URL.
const LEAST: u64 = 64;

/// The records that pods have reported so far.
pub(crate) struct AllPodsRecords {
    format: ResultFormat,
    output: Box<dyn Write + Send>,
    received: Vec<Vec<u8>>,
    held_bytes: usize,
    /// Pods of which not all was kept.
    truncated: BTreeSet<usize>,
}

impl AllPodsRecords {
    /// Collects records for this output.
    pub(crate) fn new(results: ResultsOutput) -> Self {
        let ResultsOutput { format, output, .. } = results;
        Self { format, output, received: Vec::new(), held_bytes: 0, truncated: BTreeSet::new() }
    }

    /// The next bytes of a pod's records, in base64.
    pub(super) fn add_base64_chunk(&mut self, pod: usize, chunk: &str) {
        if self.received.len() <= pod {
            self.received.resize_with(pod + 1, Vec::new);
        }
        match BASE64_STANDARD.decode(chunk) {
            Ok(bytes) if self.held_bytes + bytes.len() <= MOST_HELD && !self.truncated.contains(&pod) => {
                self.held_bytes += bytes.len();
                self.received[pod].extend_from_slice(&bytes);
            }
            _ => _ = self.truncated.insert(pod),
        }
    }

    /// Writes all of them, the earliest first; answers with how many there were and what is missing. The last record of a lost pod may be incomplete.
    pub(super) fn write(
        self,
        name: impl Fn(usize) -> String,
        lost: &BTreeSet<usize>,
    ) -> (Result<u64, EncodeError>, Vec<String>) {
        let Self { format, output, received: told, truncated: cut, .. } = self;
        let mut merged = RecordMerge::new();
        for (pod, bytes) in told.into_iter().enumerate().filter(|(_, bytes)| !bytes.is_empty()) {
            merged.add_input(&pod.to_string(), Cursor::new(bytes));
        }
        let mut encoder = Encoder::new(format, BufWriter::new(output));
        let written = copy(&mut merged, &mut encoder);
        let broken = merged
            .broken_inputs()
            .iter()
            .filter_map(|broken| Some((broken.name.parse().ok()?, &broken.error)));
        let broken = broken.filter(|(pod, _)| !lost.contains(pod) && !cut.contains(pod));
        let mut missing: Vec<_> =
            broken.map(|(pod, error)| format!("records of {}: {error}", name(pod))).collect();
        missing.extend(cut.first().map(|pod| {
            format!(
                "the records of {} pods are incomplete (the first of these is {}), because all pods together can send at most {} MiB of records",
                cut.len(),
                name(*pod),
                MOST_HELD >> 20
            )
        }));
        (written, missing)
    }
}

fn copy(
    merged: &mut RecordMerge<Cursor<Vec<u8>>>,
    encoder: &mut Encoder<impl Write>,
) -> Result<u64, EncodeError> {
    let mut count = 0;
    while let Some((_, record)) = merged.next_record() {
        encoder.encode(record)?;
        count += 1;
    }
    encoder.flush()?;
    Ok(count)
}

/// Refuses a load of which so many pods could not tell all records.
///
/// # Errors
/// How much is too much, and what to do instead.
pub(crate) fn check_records_fit(load: &LoadSpec, pods: u64) -> anyhow::Result<()> {
    let room = (MAX_RECORD_BYTES_PER_TRIAL as u64).saturating_mul(pods).min(MOST_HELD as u64) / LEAST;
    let Some(hits) = hits(load).filter(|&hits| hits > room) else { return Ok(()) };
    bail!(
        "-output: pods cannot send the records of {hits} requests. The limit is {} MiB per pod and {} MiB together, so {pods} \
         pods can send fewer than {room} records. Let the pods write the records with --volume pvc:CLAIM:/PATH and -output \
         in it, or use -output=none and --timeseries FILE",
        MAX_RECORD_BYTES_PER_TRIAL >> 20,
        MOST_HELD >> 20,
    )
}

/// Requests that are recorded, if the plan says how many.
fn hits(load: &LoadSpec) -> Option<u64> {
    let until = Some(load.stop_condition.max_requests).filter(|&hits| hits != u64::MAX);
    let ArrivalModel::Open(schedule) = &load.arrivals else { return until };
    let due = load.known_end().map(|end| schedule.hits_before(end));
    let all = until.into_iter().chain(due).min()?;
    Some(all.saturating_sub(schedule.hits_before(nanos(load.warm_up))))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use seawall_load::record::{Record, Zone, ZonedTimestamp};

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn records(output: &Written) -> AllPodsRecords {
        let (output, told) = (Box::new(output.clone()), Vec::new());
        AllPodsRecords {
            format: ResultFormat::Csv,
            output,
            received: told,
            held_bytes: 0,
            truncated: BTreeSet::new(),
        }
    }

    /// Encodes the records that a pod reports for requests that were due at these seconds.
    fn told(seconds: &[i64]) -> Vec<u8> {
        let mut encoder = Encoder::new(ResultFormat::Gob, Vec::new());
        for &second in seconds {
            let timestamp = ZonedTimestamp::from_unix_ns(second * 1_000_000_000, Zone::Utc);
            encoder
                .encode(&Record { due_timestamp: timestamp, seq: second.unsigned_abs(), ..Record::default() })
                .unwrap();
        }
        encoder.into_inner()
    }

    #[test]
    fn records_come_in_the_order_of_their_instants_whatever_piece_they_were_told_in() {
        let output = Written::default();
        let mut records = records(&output);
        for (pod, seconds) in [(2, [1, 4]), (0, [2, 3])] {
            told(&seconds)
                .chunks(7)
                .for_each(|piece| records.add_base64_chunk(pod, &BASE64_STANDARD.encode(piece)));
        }
        let (written, missing) = records.write(|pod| pod.to_string(), &BTreeSet::new());
        assert_eq!((written.unwrap(), missing), (4, Vec::new()));
        let text = String::from_utf8(output.0.lock().unwrap().clone()).unwrap();
        let instants: Vec<_> = text.lines().map(|line| line.chars().next().unwrap()).collect();
        assert_eq!(instants, ['1', '2', '3', '4']);
    }

    #[test]
    fn what_is_missing_is_said_unless_its_pod_is_lost() {
        let mut cut = told(&[1, 2]);
        cut.truncate(cut.len() - 1);
        for (lost, said) in [(BTreeSet::new(), 1), (BTreeSet::from([0]), 0)] {
            let mut records = records(&Written::default());
            records.add_base64_chunk(0, &BASE64_STANDARD.encode(&cut));
            let (written, missing) = records.write(|pod| format!("pod {pod}"), &lost);
            assert_eq!((written.unwrap(), missing.len()), (1, said), "{missing:?}");
        }
        let mut records = records(&Written::default());
        records.add_base64_chunk(1, "no base64!");
        let (_, missing) = records.write(|pod| format!("pod {pod}"), &BTreeSet::new());
        assert!(missing[0].contains("pod 1"), "{missing:?}");
    }
}
