//! The table: each family by its rule at both endpoints and by what it sends.
//!
//! All figures were measured with the SDKs themselves, unless a comment says otherwise: what is asked, in which windows, and what
//! becomes of a refresh that fails. `.NET` and `PHP` were not: theirs are of aws-sdk-net's and aws-sdk-php's sources.

use super::sdk_rules::{ExpiredCredentialsPolicy, FailedFetchPolicy, RefreshTiming, Rule, UniformSeconds};
use super::wire::{ListingPathStyle, SessionTokenUse, Wire};
use super::{HOUR, MINUTE};

/// One SDK, from one release to another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Family {
    /// The name of the family in the measurement.
    pub name: &'static str,
    /// The refresh rule at the metadata service.
    pub imds_rule: Rule,
    /// The refresh rule at the container credentials endpoint; `None` if the family does not accept 169.254.170.23.
    pub container_rule: Option<Rule>,
    /// The requests that the family sends.
    pub wire: Wire,
}

/// The longest token that is asked for (IMDS's limit), by nearly all.
const LONGEST: u32 = 21_600;

const QUARTER: i64 = 15 * MINUTE;

const fn rule(life: RefreshTiming, ended: ExpiredCredentialsPolicy, missed: FailedFetchPolicy) -> Rule {
    Rule { refresh_timing: life, expired_policy: ended, failed_fetch_policy: missed }
}

const fn minutes(least: i64, most: i64) -> UniformSeconds {
    UniformSeconds(least * MINUTE, most * MINUTE)
}

const fn extended(least: i64, most: i64) -> ExpiredCredentialsPolicy {
    ExpiredCredentialsPolicy::Extended(minutes(least, most))
}

const fn wire(tokens: SessionTokenUse, agent: &'static str) -> Wire {
    Wire {
        session_token_use: tokens,
        imds_user_agent: Some(agent),
        container_user_agent: Some(agent),
        path_style: ListingPathStyle::TrailingSlash,
    }
}

/// With another User-Agent, or none, at the credentials endpoint of containers.
const fn called(wire: Wire, container_agent: Option<&'static str>) -> Wire {
    Wire { container_user_agent: container_agent, ..wire }
}

const FIVE: Rule =
    rule(RefreshTiming::Window(5 * MINUTE), ExpiredCredentialsPolicy::UsedOnce, FailedFetchPolicy::FAILS);

/// At the container endpoint the second generation of Java draws when to begin (aws-sdk-java-v2,
/// `ContainerCredentialsProvider`, `CachedSupplier`), tries at each call from then on, and fails with a minute left.
const JAVA_2_CONTAINER: Rule =
    rule(RefreshTiming::RandomInLastQuarterHour, extended(1, 10), FailedFetchPolicy::FailsBelow(MINUTE));

/// It draws when to begin (the same, `InstanceProfileCredentialsProvider`), and tries at each call from then on.
const JAVA_2: Rule = rule(
    RefreshTiming::RandomAfterHalfOfRemainingLife,
    extended(1, 10),
    FailedFetchPolicy::PausesFetching(UniformSeconds::ZERO),
);

/// The incident's client: fifteen minutes' window in a lock, each hour at the latest.
pub static JAVA_1_11: Family = Family {
    name: "J1.11",
    imds_rule: rule(
        RefreshTiming::WindowOrHour(QUARTER),
        ExpiredCredentialsPolicy::Fails,
        FailedFetchPolicy::FAILS,
    ),
    // It ignores the variable.
    container_rule: None,
    wire: wire(SessionTokenUse::None, "aws-sdk-java/1.11.500"),
};

static OTHERS: [Family; 18] = [
    Family {
        name: "J1.12",
        // That it fetches at most every one or two minutes below its window is fitted: 40 an hour at 15/5 by steps of a minute, and one
        // for each step of two minutes.
        imds_rule: rule(
            RefreshTiming::WindowOrHourReusingShortLived(QUARTER, UniformSeconds(30, 95)),
            extended(1, 5),
            FailedFetchPolicy::PausesFetching(minutes(1, 5)),
        ),
        container_rule: Some(rule(
            RefreshTiming::WindowOrHour(QUARTER),
            ExpiredCredentialsPolicy::Fails,
            FailedFetchPolicy::FailsBelow(MINUTE),
        )),
        wire: wire(SessionTokenUse::EachGet(LONGEST), "aws-sdk-java/1.12.797 Linux"),
    },
    Family {
        name: "J2.17",
        imds_rule: rule(
            RefreshTiming::WindowOrHour(QUARTER),
            ExpiredCredentialsPolicy::Fails,
            FailedFetchPolicy::FAILS,
        ),
        // It goes to the metadata service without a word.
        container_rule: None,
        wire: wire(SessionTokenUse::EachFetch(LONGEST), "aws-sdk-java/2.17.102 Linux"),
    },
    Family {
        name: "J2.25",
        imds_rule: JAVA_2,
        container_rule: Some(JAVA_2_CONTAINER),
        wire: wire(SessionTokenUse::EachFetch(LONGEST), "aws-sdk-java/2.25.60 Linux"),
    },
    Family {
        name: "J2",
        imds_rule: JAVA_2,
        container_rule: Some(JAVA_2_CONTAINER),
        wire: wire(SessionTokenUse::EachFetch(LONGEST), "aws-sdk-java/2.57.8 md/io#sync"),
    },
    Family {
        name: "boto3-1.17",
        imds_rule: rule(
            RefreshTiming::Window(QUARTER),
            ExpiredCredentialsPolicy::Fails,
            FailedFetchPolicy::FAILS,
        ),
        // It takes no address but ECS's.
        container_rule: None,
        wire: wire(SessionTokenUse::EachFetch(LONGEST), "Boto3/1.17.112 Python/3.9 Botocore/1.20.112"),
    },
    Family {
        name: "boto3",
        // botocore, `utils.py` (`InstanceMetadataFetcher`); measured: it stretches by 2 to 10 minutes or so.
        imds_rule: rule(
            RefreshTiming::WindowWithAssumedExpiry { window: QUARTER, stretch: minutes(2, 10) },
            extended(2, 10),
            FailedFetchPolicy::FAILS,
        ),
        container_rule: Some(rule(
            RefreshTiming::Window(QUARTER),
            ExpiredCredentialsPolicy::Fails,
            FailedFetchPolicy::FailsBelow(10 * MINUTE),
        )),
        wire: called(
            wire(SessionTokenUse::EachFetch(LONGEST), "Boto3/1.44.5 md/Botocore#1.44.5 Botocore/1.44.5"),
            Some("python-urllib3/2.8.0"),
        ),
    },
    Family {
        name: "Go v1",
        imds_rule: FIVE,
        container_rule: Some(FIVE),
        // Renewed 30 s early (its source).
        wire: wire(SessionTokenUse::Kept(LONGEST, 30), "aws-sdk-go/1.55.8 (go1.24; linux; amd64)"),
    },
    Family {
        name: "Go v2-23",
        imds_rule: GO_2,
        // LoadDefaultConfig fails.
        container_rule: None,
        wire: wire(SessionTokenUse::EachFetch(300), "aws-sdk-go-v2/1.18.1 os/linux ft/ec2-imds"),
    },
    Family {
        name: "Go v2",
        imds_rule: GO_2,
        container_rule: Some(FIVE),
        wire: called(
            wire(SessionTokenUse::EachFetch(300), "aws-sdk-go-v2/1.47.7 os/linux ft/ec2-imds"),
            Some("Go-http-client/1.1"),
        ),
    },
    Family {
        name: "JS2",
        // 15 s (its source; measured: more than 6 and less than 24). Answers that have ended never call back.
        imds_rule: rule(RefreshTiming::Window(15), ExpiredCredentialsPolicy::Fails, FailedFetchPolicy::FAILS),
        container_rule: Some(rule(
            RefreshTiming::Window(15),
            ExpiredCredentialsPolicy::Fails,
            FailedFetchPolicy::FAILS,
        )),
        wire: Wire {
            imds_user_agent: None,
            ..wire(SessionTokenUse::EachFetch(LONGEST), "aws-sdk-nodejs/2.1693.0 linux/v20")
        },
    },
    Family {
        name: "JS3",
        imds_rule: rule(
            RefreshTiming::Window(5 * MINUTE),
            extended(5, 10),
            FailedFetchPolicy::FailsOnSecondMiss,
        ),
        container_rule: Some(rule(
            RefreshTiming::Window(5 * MINUTE),
            ExpiredCredentialsPolicy::UsedOnce,
            FailedFetchPolicy::FailsBelow(1),
        )),
        wire: Wire {
            imds_user_agent: None,
            container_user_agent: None,
            ..wire(SessionTokenUse::EachFetch(LONGEST), "")
        },
    },
    Family {
        name: "Ruby",
        imds_rule: rule(
            RefreshTiming::Window(5 * MINUTE),
            extended(5, 6),
            FailedFetchPolicy::PausesFetching(minutes(5, 6)),
        ),
        // It goes to the metadata service without a word.
        container_rule: None,
        wire: wire(SessionTokenUse::Kept(LONGEST, 0), "aws-sdk-ruby3/3.168.1"),
    },
    Family {
        name: "PHP",
        imds_rule: rule(
            RefreshTiming::Window(0),
            extended(5, 10),
            FailedFetchPolicy::PausesFetching(minutes(5, 10)),
        ),
        container_rule: Some(rule(
            RefreshTiming::Window(0),
            extended(5, 10),
            FailedFetchPolicy::PausesFetching(minutes(5, 10)),
        )),
        wire: wire(SessionTokenUse::EachFetch(LONGEST), "aws-sdk-php/3.300.0"),
    },
    Family {
        name: ".NET",
        // A timer of the process (aws-sdk-net, `DefaultInstanceProfileAWSCredentials`); each read asks for a token before
        // (`EC2InstanceMetadata`). What it does at the container endpoint is not known. It
        // names itself in newer releases (`AWSSDKUtils`), and by nothing in older ones.
        imds_rule: rule(
            RefreshTiming::FixedInterval(2 * MINUTE),
            extended(5, 10),
            FailedFetchPolicy::PausesFetching(minutes(2, 2)),
        ),
        container_rule: None,
        wire: Wire {
            path_style: ListingPathStyle::NoTrailingSlash,
            ..wire(SessionTokenUse::EachGet(LONGEST), "aws-sdk-dotnet-coreclr/ ua/2.0 os/linux#6.1")
        },
    },
    Family {
        name: "Rust",
        // Ten seconds, up to half as much again (its source; measured: more than 6 and less than 24). Tokens: 120 s early.
        imds_rule: rule(
            RefreshTiming::RandomWindow(UniformSeconds(10, 15)),
            extended(10, 15),
            FailedFetchPolicy::PausesFetching(UniformSeconds::ZERO),
        ),
        container_rule: Some(rule(
            RefreshTiming::RandomWindow(UniformSeconds(10, 15)),
            ExpiredCredentialsPolicy::UsedOnce,
            FailedFetchPolicy::FAILS,
        )),
        wire: called(
            wire(SessionTokenUse::Kept(LONGEST, 120), "aws-sdk-rust/1.7.0 os/linux api/imds/1.13.0"),
            None,
        ),
    },
    Family {
        name: "C++",
        imds_rule: CPP,
        container_rule: Some(CPP),
        wire: Wire {
            path_style: ListingPathStyle::NoTrailingSlashEncodedRole,
            ..wire(SessionTokenUse::EachFetch(LONGEST), "aws-sdk-cpp/1.11.900 Linux/6.1")
        },
    },
    Family {
        name: "CRT",
        imds_rule: rule(
            RefreshTiming::Window(5 * MINUTE),
            ExpiredCredentialsPolicy::UsedOnce,
            FailedFetchPolicy::PausesFetching(minutes(5, 15)),
        ),
        container_rule: Some(FIVE),
        wire: wire(SessionTokenUse::Kept(LONGEST, 0), "aws-sdk-crt/aws-imds-client"),
    },
    Family {
        name: "object_store",
        // At most every 100 ms, which a program that calls every 20 s does not see.
        imds_rule: FIVE,
        container_rule: Some(FIVE),
        wire: wire(SessionTokenUse::EachFetch(600), "object_store/0.14.2"),
    },
];

/// It uses what it has to its end, an hour at the longest; after a failure it looks again within 5 to 15 minutes (its source).
const GO_2: Rule = rule(
    RefreshTiming::WindowOrHour(0),
    ExpiredCredentialsPolicy::UsedOnce,
    FailedFetchPolicy::PausesFetching(minutes(5, 15)),
);

/// A poll every five minutes; a failure is tried again at the next call.
const CPP: Rule = rule(
    RefreshTiming::FixedInterval(5 * MINUTE),
    extended(5, 5),
    FailedFetchPolicy::PausesFetching(UniformSeconds::ZERO),
);

/// All of them.
pub fn all() -> impl Iterator<Item = &'static Family> {
    std::iter::once(&JAVA_1_11).chain(&OTHERS)
}

/// The family of this name.
///
/// # Panics
/// There is none.
#[expect(clippy::panic, reason = "a test fails by panicking")]
pub fn family(name: &str) -> &'static Family {
    all().find(|family| family.name == name).unwrap_or_else(|| panic!("no family is called {name}"))
}

/// Fetches in an hour that a family may cost at a server that keeps AWS's floor, an hour's sessions rotated with 25 minutes left.
pub fn allowed_fetches_per_hour(family: &Family) -> f64 {
    match family.imds_rule.refresh_timing {
        RefreshTiming::FixedInterval(every) => HOUR as f64 / every as f64 + 0.5,
        _ => 2.5,
    }
}
