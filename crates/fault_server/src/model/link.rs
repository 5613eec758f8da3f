//! A link that sends one whole response after another.

use super::NanosSinceStart;

#[derive(Debug)]
pub(super) struct SharedLink {
    /// The nanoseconds per byte.
    byte: f64,
    free_at: f64,
}

impl SharedLink {
    pub(super) fn new(rate: f64) -> Self {
        Self { byte: 1e9 / rate, free_at: 0.0 }
    }

    /// Returns the time at which a response of this size has passed.
    pub(super) fn send(&mut self, at: NanosSinceStart, bytes: usize) -> NanosSinceStart {
        self.free_at = self.free_at.max(at as f64) + self.byte * bytes as f64;
        self.free_at.round() as NanosSinceStart
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_carries_its_rate_and_no_more() {
        let mut link = SharedLink::new(1e6);
        let last = (0..100).map(|_| link.send(0, 10_000)).last();
        assert_eq!(last, Some(1_000_000_000));
        assert_eq!(link.send(5_000_000_000, 1), 5_000_001_000);
    }
}
