//! A virtual machine's metadata server.

/// Marks every value that a concealing proxy must hold back: no answer of such a proxy may contain it.
pub const CONCEALED: &str = "SEAWALL-EMULATOR-CONCEALED";

/// The virtual machine and its project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Project id.
    pub project: String,
    /// Project number.
    pub project_number: u64,
    /// Zone, such as `europe-west1-b`.
    pub zone: String,
    /// Instance name.
    pub name: String,
    /// Instance id.
    pub id: u64,
    /// E-mail of the machine's own service account.
    pub service_account: String,
    /// Kubernetes cluster name.
    pub cluster: String,
}

impl Default for Machine {
    fn default() -> Self {
        Self {
            project: "seawall-emulator".into(),
            project_number: 123_456_789_012,
            zone: "europe-west1-b".into(),
            name: "node-1".into(),
            id: 8_087_716_956_832_600_001,
            service_account: "node@seawall-emulator.iam.gserviceaccount.com".into(),
            cluster: "reef".into(),
        }
    }
}
