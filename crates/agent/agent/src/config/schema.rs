//! The JSON schema of the configuration, which the Helm chart has as the schema of its value `config`. It comes from what the agent reads, so a
//! key that the agent does not know is refused before anything reaches a cluster.

use std::path::Path;

use seawall_config::schema::ReadPlaces;
use seawall_config::{Document, ValidationErrors};
use seawall_identity::downward_api::DownwardApi;
use serde_json::Value;

use super::AgentConfig;

/// Sample configurations. Each list and each table whose keys the user chooses has an element in one of them, and together they make the agent
/// read every key.
const SAMPLES: [&str; 3] = [
    "
listen: ['127.0.0.1:8988', { address: '127.0.0.1:8986', dialects: [google] }]
identity: { trustedProxies: [mesh/proxy], egressRanges: [169.254.172.0/22] }
realServer: [ops/tool]
google:
  projectId: p
  numericProjectId: 1
  zone: z
  cluster: { name: c, location: l }
  workloadIdentityProvider: //iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/c
  attributes: { team: shop }
aws:
  region: eu-west-1
  account: '123456789012'
  roleSources: [irsa]
  defaultRoles: { shop: cart }
  session: { tags: [kubernetes-namespace] }
  imds: { passthroughPaths: [/latest/meta-data/ami-id] }
",
    "{ identity: { strategy: anyone }, google: { mode: conceal } }",
    "
google:
  projectId: p
  numericProjectId: 1
  zone: z
  cluster: { name: c, location: l }
  exchange: identitybindingtoken
  workloadIdentityProvider: 'identitynamespace:p.svc.id.goog:https://container.googleapis.com/v1/projects/p/locations/l/clusters/c'
",
];

/// Returns the schema of the configuration file.
///
/// # Errors
/// The agent refuses one of the samples.
pub(crate) fn config_schema() -> Result<Value, ValidationErrors> {
    Ok(read_places()?.schema())
}

fn read_places() -> Result<ReadPlaces, ValidationErrors> {
    let mut all = ReadPlaces::default();
    for sample in SAMPLES {
        let downward = DownwardApi::default();
        let (places, _) =
            Document::parse_recording(sample, |root| AgentConfig::read(root, Path::new(""), &downward))?;
        all.merge(places);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_list_has_a_sample_so_the_schema_knows_its_elements() {
        assert_eq!(read_places().unwrap().places_without_sample(), [""; 0]);
    }

    #[test]
    fn the_schema_has_each_key_of_the_default_configuration() {
        let schema = config_schema().unwrap();
        let aws = &schema["properties"]["aws"]["properties"];
        for key in
            ["region", "irsaAnnotationPrefix", "imds", "podIdentity", "kube2iam", "containers", "instance"]
        {
            assert!(aws[key].is_object(), "{key}: {aws:#}");
        }
        assert_eq!(
            aws["session"]["properties"]["duration"]["type"],
            serde_json::json!(["null", "number", "string"])
        );
        let root = &schema["properties"];
        for key in
            ["admin", "adminSocket", "identity", "limits", "threads", "seccomp", "logLevel", "realServer"]
        {
            assert!(root[key].is_object(), "{key}");
        }
        assert!(root["mode"].is_null(), "a key of an earlier version is refused");
    }

    /// The schema refuses a key that the agent would refuse, before anything reaches a cluster.
    #[test]
    fn the_charts_schema_of_config_is_the_agents() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../deploy/helm/seawall/values.schema.json");
        let chart: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let mut own = chart["properties"]["config"].clone();
        own.as_object_mut().unwrap().remove("description");
        assert_eq!(own, config_schema().unwrap(), "run scripts/helm/config-schema");
    }
}
