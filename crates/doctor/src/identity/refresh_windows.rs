//! The refresh windows of the SDKs. At every call, an SDK refreshes credentials with less lifetime left than its window.
//!
//! AWS's windows were measured with the SDKs at both endpoints. The others are from the named sources. SDKs that extend short lifetimes, or
//! that refresh by a timer, are not listed.

use std::time::Duration;

/// The refresh window of one SDK at one endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SdkRefreshWindow {
    /// The name of the SDK.
    pub(super) client: &'static str,
    /// The window in seconds.
    pub(super) seconds: i64,
    /// The number of requests per refresh.
    pub(super) requests_per_refresh: u32,
}

const fn window(client: &'static str, seconds: i64, requests: u32) -> SdkRefreshWindow {
    SdkRefreshWindow { client, seconds, requests_per_refresh: requests }
}

/// The time that the SDKs wait for a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SdkTimeout {
    /// The time above which a response counts as too late for an SDK.
    pub(super) least: Duration,
    /// A description of the waits.
    pub(super) description: &'static str,
}

/// The waits for AWS's instance metadata (aws/aws-sdk-go-v2, `feature/ec2/imds`; boto/botocore, `utils.py`).
pub(super) const AWS_IMDS_TIMEOUT: SdkTimeout = SdkTimeout {
    least: Duration::from_millis(500),
    description: "the AWS SDK for Go gives up after 500 ms, most other SDKs after 1 s",
};

/// The waits for container credentials (aws/aws-sdk-js, `lib/credentials`; aws/aws-sdk-php; boto/botocore, `utils.py`).
pub(super) const AWS_CONTAINER_CREDENTIALS_TIMEOUT: SdkTimeout = SdkTimeout {
    least: Duration::from_secs(1),
    description: "the AWS SDKs for JavaScript and PHP give up after 1 s, boto3 after 2 s",
};

/// The waits for Google's server (googleapis/google-cloud-cpp; googleapis/google-auth-library-python, `compute_engine/_metadata.py`;
/// googleapis/gcp-metadata).
pub(super) const GOOGLE_TIMEOUT: SdkTimeout = SdkTimeout {
    least: Duration::from_secs(1),
    description: "Google's library for C++ gives up its probe after 1 s; the libraries for Python and Node give up after 3 s",
};

/// The waits for Azure's server (Azure/azure-sdk-for-python, `azure-identity`; Azure/azure-sdk-for-go, `sdk/azidentity`).
pub(super) const AZURE_TIMEOUT: SdkTimeout = SdkTimeout {
    least: Duration::from_secs(1),
    description: "Azure's SDK for Python gives up its probe after 300 ms; the SDK for Go gives up after 1 s",
};

/// The SDKs at AWS's instance metadata. A refresh takes a session token, the role list and the document; some SDKs keep the token or use
/// none.
pub(super) const AWS_IMDS_WINDOWS: &[SdkRefreshWindow] = &[
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

/// The SDKs at the endpoint of container credentials.
pub(super) const AWS_CONTAINER_CREDENTIALS_WINDOWS: &[SdkRefreshWindow] = &[
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

/// Google's libraries.
pub(super) const GOOGLE_WINDOWS: &[SdkRefreshWindow] = &[
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

/// Azure's libraries.
pub(super) const AZURE_WINDOWS: &[SdkRefreshWindow] = &[
    // AzureAD/microsoft-authentication-library-for-go, -python, -dotnet, `managedidentity`.
    window("MSAL", 300, 1),
    // Azure/azure-sdk-for-go `sdk/azidentity`, azure-sdk-for-python `azure-identity`.
    window("Azure's SDKs", 300, 1),
    // Azure/go-autorest `autorest/adal`.
    window("go-autorest", 300, 1),
];
