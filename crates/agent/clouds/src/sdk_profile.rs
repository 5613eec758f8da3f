//! The clients of a cloud: how they name themselves, when they refresh, who is troubled first. The numbers and names stand in each cloud's
//! folder (`sdk_profiles.rs`); `observe` reads them where it looks for pods that ask too often or are about to run dry. Knows no pod and
//! no lease.

use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

/// A client of a cloud's, by what it calls itself.
#[derive(Debug)]
pub struct SdkProfile {
    /// What its User-Agent begins with, or has after a space.
    pub user_agent: &'static str,
    /// As its users call it.
    pub name: &'static str,
    /// It refreshes what has less life left than this.
    pub refresh_window: Duration,
    /// It asks so often, whatever it has.
    pub poll_interval: Option<Duration>,
}

impl SdkProfile {
    /// Whether so many fetches in an hour are what this client makes by a clock of its own, that hour's ends included.
    pub fn is_poll_rate(&self, in_hour: u32) -> bool {
        self.poll_interval.is_some_and(|every| every * in_hour.saturating_sub(1) <= HOUR)
    }
}

/// Those that fetch one cloud's credentials.
#[derive(Clone, Copy, Debug)]
pub struct SdkProfiles {
    /// Of two that fit, the first is meant.
    pub known: &'static [SdkProfile],
    /// Fetches of one lease in an hour that are nobody's trouble, whoever makes them.
    pub normal_fetches_per_hour: u32,
    /// What is said of one that names itself by nothing, after "the client is".
    pub unnamed_description: &'static str,
    /// What makes its credentials live longer: a sentence for the pod's owner.
    pub lifetime_advice: &'static str,
    /// Who is troubled first by credentials that are not renewed.
    pub earliest_affected: Option<FirstExpiringSdks>,
}

/// Clients that fetch anew on every call what has less life left than this, and fail if that fetch does.
#[derive(Clone, Copy, Debug)]
pub struct FirstExpiringSdks {
    /// Life left.
    pub remaining: Duration,
    /// As their users call them.
    pub sdk_names: &'static str,
}

/// One of a cloud whose clients nearly all name themselves.
pub const UNNAMED_CLIENT: &str = "of an unknown family (it sends no User-Agent)";

impl Default for SdkProfiles {
    fn default() -> Self {
        Self {
            known: &[],
            normal_fetches_per_hour: 13,
            unnamed_description: UNNAMED_CLIENT,
            lifetime_advice: "Let its credentials live longer, or use a newer release.",
            earliest_affected: None,
        }
    }
}

impl SdkProfiles {
    /// The one that names itself so.
    pub fn find_by_user_agent(&self, agent: &[u8]) -> Option<&'static SdkProfile> {
        let names = |client: &&SdkProfile| {
            let wanted = client.user_agent.as_bytes();
            agent
                .split(|byte| *byte == b' ')
                .any(|word| word.get(..wanted.len()).is_some_and(|start| start.eq_ignore_ascii_case(wanted)))
        };
        self.known.iter().find(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn who_asks_by_a_clock_is_usual_at_its_pace_and_no_further() {
        let client = |every| SdkProfile {
            user_agent: "a",
            name: "a",
            refresh_window: 5 * MINUTE,
            poll_interval: every,
        };
        let polls = client(Some(2 * MINUTE));
        assert!(polls.is_poll_rate(30) && polls.is_poll_rate(31) && !polls.is_poll_rate(32));
        assert!(!client(None).is_poll_rate(1));
    }

    #[test]
    fn a_client_is_known_by_a_word_of_its_user_agent() {
        const JAVA: &[SdkProfile] = &[SdkProfile {
            user_agent: "aws-sdk-java/1.",
            name: "Java 1",
            refresh_window: MINUTE,
            poll_interval: None,
        }];
        let clients = SdkProfiles { known: JAVA, ..SdkProfiles::default() };
        let java = clients.find_by_user_agent(b"x aws-sdk-java/1.11.500 Linux");
        assert_eq!(java.map(|client| client.name), Some("Java 1"));
        for other in [&b"aws-sdk-java/2.17"[..], b"", b"notaws-sdk-java/1.1"] {
            assert!(clients.find_by_user_agent(other).is_none());
        }
    }
}
