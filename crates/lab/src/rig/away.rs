//! Whether anybody is there: what ended last, and of that what no connection came of. Pure.

use seawall_cause::watched::How;
use seawall_load::clock::{Nanos, SECOND};
use seawall_load::fate::Fate;

use super::experiments;

/// Nobody was there for so long, and for so many requests in a row. A cap that refuses lets others through meanwhile.
const LONG: Nanos = 3 * SECOND / 10;
const ROW: u64 = 3;

/// What is known so far.
#[derive(Debug, Default)]
pub(super) struct Away {
    /// When anything else ended last.
    there: Nanos,
    /// When the last that met nobody ended.
    last: Nanos,
    /// How many have met nobody since.
    row: u64,
}

impl Away {
    /// These have ended.
    pub(super) fn learn(&mut self, fates: &[Fate]) {
        for fate in fates {
            if is_nobody(experiments::how(fate)) {
                self.row += 1;
                self.last = self.last.max(fate.end);
            } else {
                (self.row, self.there) = (0, self.there.max(fate.end));
            }
        }
    }

    /// Nobody is there.
    pub(super) fn is_so(&self) -> bool {
        self.row >= ROW && self.last.saturating_sub(self.there) >= LONG
    }
}

/// A connection that does not stand in its time may wait for its turn; one that is refused, or closed without a word, does not.
fn is_nobody(how: How) -> bool {
    matches!(how, How::Refused | How::Cut)
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use seawall_load::fault::Fault;

    use super::*;

    const REFUSED: Result<u16, Fault> = Err(Fault::Connect(ErrorKind::ConnectionRefused));

    /// Whether nobody is there after these, a tenth of a second apart.
    fn is_away(outcomes: &[Result<u16, Fault>]) -> bool {
        let fate = |(at, outcome): (Nanos, &Result<u16, Fault>)| {
            let end = at * SECOND / 10;
            Fate {
                target: 0,
                due: end,
                sent: Some(end),
                own_lag: 0,
                end,
                outcome: *outcome,
                bytes_in: 0,
                retries: 0,
                carrier: None,
            }
        };
        let mut away = Away::default();
        away.learn(&(1..).zip(outcomes).map(fate).collect::<Vec<_>>());
        away.is_so()
    }

    #[test]
    fn nobody_is_there_once_all_connections_are_refused_for_a_while() {
        assert!(is_away(&[Ok(200), REFUSED, REFUSED, REFUSED]));
        assert!(!is_away(&[Ok(200), REFUSED, REFUSED]), "too few, and too soon");
        assert!(is_away(&[REFUSED, REFUSED, REFUSED]), "from the begin on");
    }

    #[test]
    fn whoever_lets_some_through_or_refuses_with_an_answer_or_lets_them_wait_is_there() {
        assert!(!is_away(&[REFUSED, REFUSED, REFUSED, Ok(200), REFUSED]));
        assert!(!is_away(&[Ok(200), Ok(503), Ok(503), Ok(503), Ok(503), Ok(503)]));
        assert!(!is_away(&[
            Ok(200),
            Err(Fault::Timeout),
            Err(Fault::Timeout),
            Err(Fault::Timeout),
            Err(Fault::Timeout)
        ]));
        assert!(!is_away(&[]));
    }
}
