//! The endpoint from which Azure's SDKs get a token, according to the environment: the machine's metadata service, or an endpoint of the
//! platform that runs the container. The order is that of MSAL (AzureAD/microsoft-authentication-library-for-python,
//! `msal/managed_identity.py`, `get_managed_identity_source`) and azidentity (Azure/azure-sdk-for-go,
//! `sdk/azidentity/managed_identity_client.go`).

use crate::check::CheckContext;
use crate::identity::observed_metadata_server::{
    CloudServerOutcome, CredentialServer, InvalidServerVariable,
};

/// The endpoint for tokens, and the request that it needs.
pub(super) struct AzureEndpoint {
    pub(super) credential_server: CredentialServer,
    /// The path to request below the server's URL.
    pub(super) path: &'static str,
    /// The headers that mark an SDK's request, with a secret if the platform gave one.
    pub(super) headers: Vec<(&'static str, String)>,
    /// True if a response states the remaining seconds of a token, not its end.
    pub(super) states_remaining_seconds: bool,
    /// True if the machine's own metadata service may be behind this endpoint.
    pub(super) may_be_machine_metadata: bool,
}

const ENDPOINT: &str = "IDENTITY_ENDPOINT";
const HEADER: &str = "IDENTITY_HEADER";
const OLD_ENDPOINT: &str = "MSI_ENDPOINT";
const OLD_SECRET: &str = "MSI_SECRET";

impl AzureEndpoint {
    /// Chooses the endpoint.
    ///
    /// # Errors
    /// The outcome if the check cannot ask the endpoint.
    pub(super) fn of(site: &CheckContext) -> Result<Self, CloudServerOutcome> {
        let value = |name: &str| (site.environment)(name);
        let is = |name: &str| value(name).is_some();
        match (value(ENDPOINT), value(HEADER), value(OLD_ENDPOINT), value(OLD_SECRET)) {
            // Service Fabric's endpoint uses https:// with a certificate that is identified by its thumbprint.
            (Some(_), Some(_), ..) if is("IDENTITY_SERVER_THUMBPRINT") => Err(CloudServerOutcome::Unaskable(
                "IDENTITY_SERVER_THUMBPRINT",
                InvalidServerVariable::Unsupported,
            )),
            (Some(url), Some(header), ..) => Self::app_service(url, header),
            (_, _, Some(url), Some(secret)) => Self::machine_learning(url, secret),
            // Azure Arc's endpoint gives a token only to programs that can read a file of root's.
            (Some(_), ..) if is("IMDS_ENDPOINT") => {
                Err(CloudServerOutcome::Unaskable(ENDPOINT, InvalidServerVariable::Unsupported))
            }
            // Cloud Shell's endpoint needs a request body.
            (_, _, Some(_), None) => {
                Err(CloudServerOutcome::Unaskable(OLD_ENDPOINT, InvalidServerVariable::Unsupported))
            }
            _ => Self::metadata(value("AZURE_POD_IDENTITY_AUTHORITY_HOST")),
        }
    }

    fn metadata(host: Option<String>) -> Result<Self, CloudServerOutcome> {
        let named = host.map(|url| ("AZURE_POD_IDENTITY_AUTHORITY_HOST", url));
        Ok(Self {
            credential_server: CredentialServer::new(
                "Azure's metadata service",
                named,
                InvalidServerVariable::parse_url,
                "169.254.169.254:80",
            )?,
            path: "/metadata/identity/oauth2/token?api-version=2018-02-01&resource=https%3A%2F%2Fmanagement.azure.com%2F",
            headers: vec![("Metadata", "true".to_owned())],
            states_remaining_seconds: true,
            may_be_machine_metadata: true,
        })
    }

    /// Returns the endpoint of App Service, Functions and Container Apps ("REST endpoint reference" of App Service's managed
    /// identities).
    fn app_service(url: String, header: String) -> Result<Self, CloudServerOutcome> {
        let wanted = endpoint("the endpoint of Azure's App Service", (ENDPOINT, url), "2019-08-01")?;
        let wanted = sent(wanted, HEADER, &header)?;
        let headers = vec![("X-IDENTITY-HEADER", header), ("Metadata", "true".to_owned())];
        Ok(Self {
            credential_server: wanted,
            path: "",
            headers,
            states_remaining_seconds: false,
            may_be_machine_metadata: false,
        })
    }

    fn machine_learning(url: String, secret: String) -> Result<Self, CloudServerOutcome> {
        let wanted = endpoint("the endpoint of Azure's Machine Learning", (OLD_ENDPOINT, url), "2017-09-01")?;
        let wanted = sent(wanted, OLD_SECRET, &secret)?;
        Ok(Self {
            credential_server: wanted,
            path: "",
            headers: vec![("secret", secret)],
            states_remaining_seconds: false,
            may_be_machine_metadata: false,
        })
    }
}

/// Returns the URL of a token at an endpoint, for this API version. The endpoint's own query stays.
fn endpoint(
    whose: &'static str,
    named: (&'static str, String),
    version: &str,
) -> Result<CredentialServer, CloudServerOutcome> {
    let mut wanted = CredentialServer::new(whose, Some(named), InvalidServerVariable::parse_url, "")?;
    let path = wanted.url.target();
    let and = if path.contains('?') { '&' } else { '?' };
    wanted.url.path =
        format!("{path}{and}api-version={version}&resource=https%3A%2F%2Fmanagement.azure.com%2F");
    Ok(wanted)
}

/// Checks that the secret for the server fits a header.
fn sent(wanted: CredentialServer, name: &str, secret: &str) -> Result<CredentialServer, CloudServerOutcome> {
    if secret.contains(['\r', '\n']) {
        return Err(CloudServerOutcome::NotAskedWithoutToken(
            wanted,
            format!("{name} contains a line end, which HTTP forbids"),
        ));
    }
    Ok(wanted)
}
