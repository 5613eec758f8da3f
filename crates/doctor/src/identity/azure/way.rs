//! How Azure's SDKs get a token here, which the environment says: from the machine's metadata service, or from an endpoint of the platform that
//! runs the container. In the order of MSAL (AzureAD/microsoft-authentication-library-for-python, `msal/managed_identity.py`,
//! `get_managed_identity_source`) and azidentity (Azure/azure-sdk-for-go, `sdk/azidentity/managed_identity_client.go`).

use crate::check::CheckContext;
use crate::identity::lent::{CloudServerOutcome, CredentialServer, InvalidServerVariable};

/// Which is asked, and as what.
pub(super) struct AzureEndpoint {
    pub(super) wanted: CredentialServer,
    /// What is asked for below the place.
    pub(super) path: &'static str,
    /// What says that it is an SDK that asks, a secret where the platform gave one.
    pub(super) headers: Vec<(&'static str, String)>,
    /// It says in how many seconds a token ends, and not when.
    pub(super) states_lifetime: bool,
    /// The machine's own metadata service may be behind it.
    pub(super) is_machines: bool,
}

const ENDPOINT: &str = "IDENTITY_ENDPOINT";
const HEADER: &str = "IDENTITY_HEADER";
const OLD_ENDPOINT: &str = "MSI_ENDPOINT";
const OLD_SECRET: &str = "MSI_SECRET";

impl AzureEndpoint {
    /// # Errors
    /// The outcome where nobody can be asked.
    pub(super) fn of(site: &CheckContext) -> Result<Self, CloudServerOutcome> {
        let value = |name: &str| (site.environment)(name);
        let is = |name: &str| value(name).is_some();
        match (value(ENDPOINT), value(HEADER), value(OLD_ENDPOINT), value(OLD_SECRET)) {
            // Service Fabric's endpoint, over https:// with a certificate that is told by its print.
            (Some(_), Some(_), ..) if is("IDENTITY_SERVER_THUMBPRINT") => Err(CloudServerOutcome::Unaskable(
                "IDENTITY_SERVER_THUMBPRINT",
                InvalidServerVariable::Unsupported,
            )),
            (Some(url), Some(header), ..) => Self::app_service(url, header),
            (_, _, Some(url), Some(secret)) => Self::machine_learning(url, secret),
            // Azure Arc's, which has a token for who can read a file of root's.
            (Some(_), ..) if is("IMDS_ENDPOINT") => {
                Err(CloudServerOutcome::Unaskable(ENDPOINT, InvalidServerVariable::Unsupported))
            }
            // Cloud Shell's, which is asked with a body.
            (_, _, Some(_), None) => {
                Err(CloudServerOutcome::Unaskable(OLD_ENDPOINT, InvalidServerVariable::Unsupported))
            }
            _ => Self::metadata(value("AZURE_POD_IDENTITY_AUTHORITY_HOST")),
        }
    }

    fn metadata(host: Option<String>) -> Result<Self, CloudServerOutcome> {
        let named = host.map(|url| ("AZURE_POD_IDENTITY_AUTHORITY_HOST", url));
        Ok(Self {
            wanted: CredentialServer::new(
                "Azure's metadata service",
                named,
                InvalidServerVariable::url,
                "169.254.169.254:80",
            )?,
            path: "/metadata/identity/oauth2/token?api-version=2018-02-01&resource=https%3A%2F%2Fmanagement.azure.com%2F",
            headers: vec![("Metadata", "true".to_owned())],
            states_lifetime: true,
            is_machines: true,
        })
    }

    /// Of App Service, Functions and Container Apps ("REST endpoint reference" of App Service's managed identities).
    fn app_service(url: String, header: String) -> Result<Self, CloudServerOutcome> {
        let wanted = endpoint("the endpoint of Azure's App Service", (ENDPOINT, url), "2019-08-01")?;
        let wanted = sent(wanted, HEADER, &header)?;
        let headers = vec![("X-IDENTITY-HEADER", header), ("Metadata", "true".to_owned())];
        Ok(Self { wanted, path: "", headers, states_lifetime: false, is_machines: false })
    }

    fn machine_learning(url: String, secret: String) -> Result<Self, CloudServerOutcome> {
        let wanted = endpoint("the endpoint of Azure's Machine Learning", (OLD_ENDPOINT, url), "2017-09-01")?;
        let wanted = sent(wanted, OLD_SECRET, &secret)?;
        Ok(Self {
            wanted,
            path: "",
            headers: vec![("secret", secret)],
            states_lifetime: false,
            is_machines: false,
        })
    }
}

/// The place of a token of this version at an endpoint, whose own query is kept.
fn endpoint(
    whose: &'static str,
    named: (&'static str, String),
    version: &str,
) -> Result<CredentialServer, CloudServerOutcome> {
    let mut wanted = CredentialServer::new(whose, Some(named), InvalidServerVariable::url, "")?;
    let path = wanted.place.target();
    let and = if path.contains('?') { '&' } else { '?' };
    wanted.place.path =
        format!("{path}{and}api-version={version}&resource=https%3A%2F%2Fmanagement.azure.com%2F");
    Ok(wanted)
}

/// A server whose secret can be sent.
fn sent(wanted: CredentialServer, name: &str, secret: &str) -> Result<CredentialServer, CloudServerOutcome> {
    if secret.contains(['\r', '\n']) {
        return Err(CloudServerOutcome::Tokenless(
            wanted,
            format!("{name} contains a line end, which HTTP forbids"),
        ));
    }
    Ok(wanted)
}
