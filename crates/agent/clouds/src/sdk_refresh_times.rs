//! The SDKs of a cloud: their User-Agents, their refresh times, and which of them fail first if the agent cannot renew
//! credentials.
//!
//! The numbers and names are in each cloud's folder (`sdk_refresh_times.rs`). The crate `observe` uses these numbers and names to
//! find pods that fetch too often, or pods whose credentials will expire soon.

use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

/// An SDK that fetches a cloud's credentials. The User-Agent header identifies the SDK.
#[derive(Debug)]
pub struct SdkProfile {
    /// The beginning of one of the words in the SDK's User-Agent.
    pub user_agent_prefix: &'static str,
    /// The name by which users know the SDK.
    pub name: &'static str,
    /// The remaining lifetime below which the SDK refreshes a credential.
    pub refresh_window: Duration,
    /// The interval at which the SDK fetches credentials, or `None` if the SDK does not poll.
    pub poll_interval: Option<Duration>,
}

impl SdkProfile {
    /// True if the SDK polls, and if it makes at least this many fetches in an hour by polling. The count includes both ends of
    /// the hour.
    pub fn is_within_poll_rate(&self, in_hour: u32) -> bool {
        self.poll_interval.is_some_and(|every| every * in_hour.saturating_sub(1) <= HOUR)
    }
}

/// The SDKs that fetch one cloud's credentials.
#[derive(Clone, Copy, Debug)]
pub struct SdkProfiles {
    /// The SDKs with a known User-Agent. If a User-Agent matches two SDKs, the first SDK in this list counts.
    pub profiles: &'static [SdkProfile],
    /// The highest normal number of fetches of one lease per hour. A higher number is normal only for an SDK that polls more
    /// often.
    pub max_normal_fetches_per_hour: u32,
    /// The description of a client without a User-Agent. In a message, this text follows the words "the client is".
    pub no_user_agent_description: &'static str,
    /// A sentence that explains to the pod's owner how to make the client's credentials live longer.
    pub lifetime_advice: &'static str,
    /// The SDKs that fail first if the agent cannot renew credentials.
    pub sdks_fetching_every_call: Option<SdksFetchingEveryCall>,
}

/// The SDKs that fetch credentials on every API call while little lifetime remains. The API call fails if the fetch fails.
#[derive(Clone, Copy, Debug)]
pub struct SdksFetchingEveryCall {
    /// The remaining lifetime below which the SDKs fetch credentials on every API call.
    pub fetch_every_call_below: Duration,
    /// The names by which users know the SDKs.
    pub sdk_names: &'static str,
}

/// The default for [`SdkProfiles::no_user_agent_description`], for a cloud whose clients nearly always send a User-Agent.
pub const DEFAULT_NO_USER_AGENT_DESCRIPTION: &str = "unknown (it sends no User-Agent)";

impl Default for SdkProfiles {
    fn default() -> Self {
        Self {
            profiles: &[],
            max_normal_fetches_per_hour: 13,
            no_user_agent_description: DEFAULT_NO_USER_AGENT_DESCRIPTION,
            lifetime_advice: "Raise the lifetime of the pod's credentials, or use a newer SDK release.",
            sdks_fetching_every_call: None,
        }
    }
}

impl SdkProfiles {
    /// Returns the first SDK whose User-Agent matches.
    pub fn find_by_user_agent(&self, agent: &[u8]) -> Option<&'static SdkProfile> {
        let names = |client: &&SdkProfile| {
            let wanted = client.user_agent_prefix.as_bytes();
            agent
                .split(|byte| *byte == b' ')
                .any(|word| word.get(..wanted.len()).is_some_and(|start| start.eq_ignore_ascii_case(wanted)))
        };
        self.profiles.iter().find(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn who_asks_by_a_clock_is_usual_at_its_pace_and_no_further() {
        let client = |every| SdkProfile {
            user_agent_prefix: "a",
            name: "a",
            refresh_window: 5 * MINUTE,
            poll_interval: every,
        };
        let polls = client(Some(2 * MINUTE));
        assert!(
            polls.is_within_poll_rate(30) && polls.is_within_poll_rate(31) && !polls.is_within_poll_rate(32)
        );
        assert!(!client(None).is_within_poll_rate(1));
    }

    #[test]
    fn a_client_is_known_by_a_word_of_its_user_agent() {
        const JAVA: &[SdkProfile] = &[SdkProfile {
            user_agent_prefix: "aws-sdk-java/1.",
            name: "Java 1",
            refresh_window: MINUTE,
            poll_interval: None,
        }];
        let clients = SdkProfiles { profiles: JAVA, ..SdkProfiles::default() };
        let java = clients.find_by_user_agent(b"x aws-sdk-java/1.11.500 Linux");
        assert_eq!(java.map(|client| client.name), Some("Java 1"));
        for other in [&b"aws-sdk-java/2.17"[..], b"", b"notaws-sdk-java/1.1"] {
            assert!(clients.find_by_user_agent(other).is_none());
        }
    }
}
