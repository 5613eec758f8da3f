//! Lists the AWS SDKs by User-Agent, with the remaining lifetime at which each SDK refreshes its credentials.
//!
//! The values were measured with the real clients. If a client refreshes at different lifetimes at the two endpoints, the larger
//! value counts. The SDKs for JavaScript send no User-Agent to the metadata service. Some SDKs send no User-Agent to the
//! containers' endpoint.

use std::time::Duration;

use crate::sdk_refresh_times::{SdkProfile, SdkProfiles, SdksFetchingEveryCall};

const fn client(agent: &'static str, name: &'static str, minutes: u64) -> SdkProfile {
    SdkProfile {
        user_agent_prefix: agent,
        name,
        refresh_window: Duration::from_secs(minutes * 60),
        poll_interval: None,
    }
}

const fn poll(agent: &'static str, name: &'static str, minutes: u64) -> SdkProfile {
    let every = Duration::from_secs(minutes * 60);
    SdkProfile { user_agent_prefix: agent, name, refresh_window: every, poll_interval: Some(every) }
}

/// The profiles of all AWS SDKs.
pub(crate) const ALL: SdkProfiles = SdkProfiles {
    profiles: KNOWN,
    // The SDK for C++ fetches every five minutes: thirteen times in an hour, including both ends of the hour.
    max_normal_fetches_per_hour: 13,
    no_user_agent_description: "unknown (it sends no User-Agent, and the AWS SDKs for JavaScript do not send one either)",
    lifetime_advice: "Raise the role's MaxSessionDuration and aws.session.duration, or use a newer SDK release.",
    sdks_fetching_every_call: Some(SdksFetchingEveryCall {
        fetch_every_call_below: Duration::from_secs(15 * 60),
        sdk_names: "boto3 and older AWS SDKs for Java",
    }),
};

const KNOWN: &[SdkProfile] = &[
    // The AWS CLI starts a process for each call, so it never refreshes.
    client("aws-cli/", "the AWS CLI", 0),
    client("boto3/", "boto3", 15),
    client("botocore/", "botocore", 15),
    client("python-urllib3/", "boto3", 15),
    client("aws-sdk-java/1.", "the AWS SDK for Java, version 1", 15),
    client("aws-sdk-java/", "the AWS SDK for Java, version 2", 15),
    client("aws-sdk-go-v2/", "the AWS SDK for Go, version 2", 5),
    client("aws-sdk-go/", "the AWS SDK for Go, version 1", 5),
    client("Go-http-client/", "a Go client", 5),
    client("aws-sdk-nodejs/", "the AWS SDK for JavaScript, version 2", 0),
    client("aws-sdk-rust/", "the AWS SDK for Rust", 0),
    client("aws-sdk-ruby3/", "the AWS SDK for Ruby", 5),
    poll("aws-sdk-cpp/", "the AWS SDK for C++", 5),
    // From its source (aws-sdk-net, `DefaultInstanceProfileAWSCredentials`). Older releases send no name to the metadata service.
    poll("aws-sdk-dotnet-", "the AWS SDK for .NET", 2),
    // The SDK for PHP refreshes only after the expiry.
    client("aws-sdk-php/", "the AWS SDK for PHP", 0),
    client("aws-sdk-crt/", "the AWS CRT", 5),
    client("object_store/", "object_store", 5),
];

#[cfg(test)]
mod tests {
    use seawall_testkit::aws_sdk_models::{Family, RefreshTiming, Rule, all};

    use super::*;

    /// True if this profile matches one of the User-Agents that the client family sends.
    fn names(client: &SdkProfile, family: &Family) -> bool {
        let sent = [family.wire.imds_user_agent, family.wire.container_user_agent];
        sent.into_iter().flatten().any(|agent| {
            ALL.find_by_user_agent(agent.as_bytes()).is_some_and(|found| std::ptr::eq(found, client))
        })
    }

    fn rules(family: &Family) -> impl Iterator<Item = Rule> {
        [Some(family.imds_rule), family.container_rule].into_iter().flatten()
    }

    /// Each client family is in the list of this module and in the list of the testkit. If several releases send the same name,
    /// the profile has their largest window, in minutes.
    #[test]
    fn each_family_is_found_by_what_it_sends_with_the_larger_of_its_windows_or_said_to_send_nothing() {
        for family in all() {
            for agent in [family.wire.imds_user_agent, family.wire.container_user_agent].into_iter().flatten()
            {
                assert!(
                    ALL.find_by_user_agent(agent.as_bytes()).is_some(),
                    "{}: no profile matches {agent}",
                    family.name
                );
            }
        }
        for client in KNOWN {
            let families: Vec<_> = all().filter(|family| names(client, family)).collect();
            let own = || families.iter().flat_map(|family| rules(family));
            let Some(window) = own().map(|rule| rule.window_seconds()).max() else { continue };
            assert_eq!(client.refresh_window.as_secs() as i64 / 60, window / 60, "{}", client.name);
            let every = own().find_map(|rule| {
                if let RefreshTiming::FixedInterval(every) = rule.refresh_timing { Some(every) } else { None }
            });
            assert_eq!(client.poll_interval.map(|every| every.as_secs() as i64), every, "{}", client.name);
        }
        let nameless: Vec<_> = all().filter(|family| family.wire.imds_user_agent.is_none()).collect();
        assert!(nameless.iter().all(|family| family.name.starts_with("JS")), "{nameless:?}");
        assert!(
            ALL.find_by_user_agent(b"").is_none() && ALL.no_user_agent_description.contains("JavaScript")
        );
    }
}
