//! When the SDKs refresh: each asks anew, at every call, for what has less life left than its window.
//!
//! AWS's were measured with the SDKs themselves, at both endpoints; the others are read from their sources, which are named. SDKs that are
//! not in a list stretch what lives too short, or ask by a clock.

use std::time::Duration;

/// One SDK at one endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SdkRefreshWindow {
    /// As its users call it.
    pub(super) client: &'static str,
    /// In seconds.
    pub(super) seconds: i64,
    /// Requests for each refresh.
    pub(super) requests: u32,
}

const fn window(client: &'static str, seconds: i64, requests: u32) -> SdkRefreshWindow {
    SdkRefreshWindow { client, seconds, requests }
}

/// How long the SDKs wait for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SdkTimeout {
    /// The least patient one.
    pub(super) least: Duration,
    /// Who waits how long.
    pub(super) who: &'static str,
}

/// aws/aws-sdk-go-v2, `feature/ec2/imds`; boto/botocore, `utils.py`.
pub(super) const INSTANCES_TIMEOUT: SdkTimeout = SdkTimeout {
    least: Duration::from_millis(500),
    who: "the AWS SDK for Go gives up after 500 ms, most others after 1 s",
};

/// aws/aws-sdk-js, `lib/credentials`; aws/aws-sdk-php; boto/botocore, `utils.py`.
pub(super) const CONTAINERS_TIMEOUT: SdkTimeout = SdkTimeout {
    least: Duration::from_secs(1),
    who: "the AWS SDKs for JavaScript and PHP give up after 1 s, boto3 after 2 s",
};

/// googleapis/google-cloud-cpp; googleapis/google-auth-library-python, `compute_engine/_metadata.py`; googleapis/gcp-metadata.
pub(super) const GOOGLE_TIMEOUT: SdkTimeout = SdkTimeout {
    least: Duration::from_secs(1),
    who: "Google's library for C++ gives up its probe after 1 s; the libraries for Python and Node give up after 3 s",
};

/// Azure/azure-sdk-for-python, `azure-identity`; Azure/azure-sdk-for-go, `sdk/azidentity`.
pub(super) const AZURE_TIMEOUT: SdkTimeout = SdkTimeout {
    least: Duration::from_secs(1),
    who: "Azure's SDK for Python gives up its probe after 300 ms; the SDK for Go gives up after 1 s",
};

/// AWS's instance metadata: a session token, the listing and the document; some keep the token, or take none.
pub(super) const INSTANCES: &[SdkRefreshWindow] = &[
    window("the AWS SDK for Java 1.11", 900, 2),
    window("the AWS SDK for Java 2 up to 2.17", 900, 3),
    window("boto3 up to 1.17", 900, 3),
    window("the AWS SDK for Go 1", 300, 2),
    window("the AWS SDK for JavaScript 3", 300, 3),
    window("the AWS SDK for Ruby", 300, 2),
    window("the AWS CRT", 300, 2),
    window("object_store", 300, 3),
    window("the AWS SDK for Rust", 15, 2),
    window("the AWS SDK for JavaScript 2", 15, 3),
];

/// Containers' credentials.
pub(super) const CONTAINERS: &[SdkRefreshWindow] = &[
    window("boto3", 900, 1),
    window("the AWS SDK for Java 1.12", 900, 1),
    window("the AWS SDK for Java 2", 300, 1),
    window("the AWS SDK for Go 1 and 2", 300, 1),
    window("the AWS SDK for JavaScript 3", 300, 1),
    window("the AWS CRT", 300, 1),
    window("object_store", 300, 1),
    window("the AWS SDK for Rust", 15, 1),
    window("the AWS SDK for JavaScript 2", 15, 1),
];

/// Google's.
pub(super) const GOOGLE: &[SdkRefreshWindow] = &[
    // googleapis/google-auth-library-nodejs, `eagerRefreshThresholdMillis`.
    window("Google's library for Node", 300, 1),
    // googleapis/google-cloud-cpp, `GoogleOAuthAccessTokenExpirationSlack`.
    window("Google's library for C++", 300, 1),
    // apache/arrow-rs-object-store, `gcp/credential.rs`.
    window("object_store", 240, 1),
    // golang/oauth2, `google/google.go`.
    window("Google's library for Go", 225, 1),
    // googleapis/google-auth-library-python, `google/auth/_helpers.py` (`REFRESH_THRESHOLD`).
    window("Google's library for Python", 225, 1),
    // googleapis/google-auth-library-java, `OAuth2Credentials` (`DEFAULT_EXPIRATION_MARGIN`, from 2023 on).
    window("Google's library for Java", 180, 1),
];

/// Azure's.
pub(super) const AZURE: &[SdkRefreshWindow] = &[
    // AzureAD/microsoft-authentication-library-for-go, -python, -dotnet, `managedidentity`.
    window("MSAL", 300, 1),
    // Azure/azure-sdk-for-go `sdk/azidentity`, azure-sdk-for-python `azure-identity`.
    window("Azure's SDKs", 300, 1),
    // Azure/go-autorest `autorest/adal`.
    window("go-autorest", 300, 1),
];
