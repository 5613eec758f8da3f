//! The test's hand on helm, as `scripts/helm/build` built it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use seawall_testkit::objects;
use serde_json::Value;
use tempfile::TempDir;

const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../deploy/helm/seawall");

/// What a build without helm's own flags does not know of the API server.
const VERSION: &str = "1.34.4";

/// Helm, with a home of its own.
pub(super) struct Helm {
    folder: TempDir,
    kubeconfig: PathBuf,
}

/// A file of values that is shipped beside the chart, for its tests.
pub(super) fn values(name: &str) -> String {
    format!("--values={CHART}/ci/{name}-values.yaml")
}

impl Helm {
    /// That speaks to nobody.
    pub(super) fn alone() -> Self {
        Self::with(Path::new("/nonexistent"))
    }

    /// That speaks to whom this file names.
    pub(super) fn with(kubeconfig: &Path) -> Self {
        Self { folder: TempDir::with_prefix("seawall-helm-").unwrap(), kubeconfig: kubeconfig.into() }
    }

    fn command(&self, args: &[&str]) -> Command {
        let program =
            std::env::var_os("SEAWALL_HELM").unwrap_or_else(|| panic!("SKIPPED: run scripts/cluster-test"));
        let mut command = Command::new(program);
        for home in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
            command.env(home, self.folder.path());
        }
        command.arg("--kubeconfig").arg(&self.kubeconfig).args(["--namespace", "seawall"]).args(args);
        command.stdin(Stdio::null());
        command
    }

    /// Runs it.
    pub(super) fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Starts what waits for others.
    pub(super) fn start(&self, args: &[&str]) -> Child {
        self.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// What it says when all goes well.
    pub(super) fn must(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Installs or upgrades (`step`) the chart.
    pub(super) fn bring(&self, step: &str, flags: &[&str]) -> Output {
        self.run(&[&[step, "seawall", CHART], flags].concat())
    }

    /// Starts to install or upgrade (`step`) the chart, which waits for the Job of its hook.
    pub(super) fn start_bringing(&self, step: &str, flags: &[&str]) -> Child {
        self.start(&[&[step, "seawall", CHART, "--timeout", "120s"], flags].concat())
    }

    /// The objects of the chart with these values, each with the path where it is made.
    pub(super) fn render(&self, flags: &[&str]) -> Vec<(String, Value)> {
        let text = self.must(&[&["template", "seawall", CHART, "--kube-version", VERSION], flags].concat());
        objects::parse_yaml_objects(text.trim_start_matches("---\n"))
    }

    /// Why the chart refuses these values.
    pub(super) fn refusal(&self, flags: &[&str]) -> String {
        let output = self.run(&[&["template", "seawall", CHART, "--kube-version", VERSION], flags].concat());
        assert!(!output.status.success(), "{flags:?} is not refused");
        String::from_utf8(output.stderr).unwrap()
    }

    /// What its own reviewer says.
    pub(super) fn lint(&self, flags: &[&str]) -> Output {
        self.run(&[&["lint", "--strict", CHART, "--kube-version", VERSION], flags].concat())
    }
}
