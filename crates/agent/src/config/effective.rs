//! The effective configuration as YAML: what `check` prints. Reading it back gives the same configuration.

use std::fmt::Write;
use std::time::Duration;

use super::{Config, Federate, Identity, Mode, Threads};

/// Every value in force, defaults included.
pub(crate) fn effective(config: &Config) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write(config, &mut out);
    out
}

fn write(config: &Config, out: &mut String) -> std::fmt::Result {
    let listen: Vec<String> = config.listen.iter().map(|at| format!("{:?}", at.to_string())).collect();
    let (mode, section) = match &config.mode {
        Mode::Federate(federate) => ("federate", federate_section(federate)?),
        Mode::Conceal(conceal) => ("conceal", format!("conceal:\n  upstream: {:?}\n", conceal.upstream)),
    };
    writeln!(out, "mode: {mode}\nlisten: [{}]\nadmin: {:?}", listen.join(", "), config.admin.to_string())?;
    match &config.identity {
        Identity::Static { file } => {
            writeln!(out, "identity:\n  strategy: static\n  file: {:?}", file.display().to_string())?;
        }
        Identity::Anyone => writeln!(out, "identity:\n  strategy: anyone")?,
    }
    out.push_str(&section);
    let limits = &config.limits;
    writeln!(out, "limits:\n  connections: {}", limits.connections)?;
    writeln!(out, "  connectionsPerPod: {}", limits.connections_per_pod)?;
    writeln!(
        out,
        "  headTimeout: {}\n  idleTimeout: {}",
        span(limits.head_timeout),
        span(limits.idle_timeout)
    )?;
    writeln!(out, "  longPolls: {}\n  longPollsPerPod: {}", limits.long_polls, limits.long_polls_per_pod)?;
    writeln!(out, "  forwards: {}", limits.forwards)?;
    match config.threads {
        Threads::Auto => writeln!(out, "threads: auto")?,
        Threads::Fixed(n) => writeln!(out, "threads: {n}")?,
    }
    writeln!(out, "logLevel: {}", config.log_level.as_str().to_lowercase())
}

fn federate_section(federate: &Federate) -> Result<String, std::fmt::Error> {
    let mut out = String::from("federate:\n");
    writeln!(
        out,
        "  projectId: {:?}\n  numericProjectId: {}",
        federate.project_id, federate.numeric_project_id
    )?;
    writeln!(out, "  zone: {:?}", federate.zone)?;
    writeln!(out, "  instance:\n    id: {}\n    name: {:?}", federate.instance_id, federate.instance_name)?;
    writeln!(out, "    hostname: {:?}", federate.hostname)?;
    writeln!(out, "  cluster:\n    name: {:?}", federate.cluster_name)?;
    writeln!(out, "    location: {:?}\n    uid: {:?}", federate.cluster_location, federate.cluster_uid)?;
    writeln!(
        out,
        "  universeDomain: {:?}\n  workloadPool: {:?}",
        federate.universe_domain, federate.workload_pool
    )?;
    writeln!(out, "  provider: {:?}\n  tokenAudience: {:?}", federate.provider, federate.token_audience)?;
    writeln!(out, "  stsUrl: {:?}\n  iamUrl: {:?}", federate.sts_url, federate.iam_url)?;
    Ok(out)
}

fn span(span: Duration) -> String {
    format!("{}ms", span.as_millis())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn reading_the_effective_configuration_back_changes_nothing() {
        for text in [super::super::DEFAULT, "mode: conceal\nidentity: { strategy: anyone }\nthreads: 2\n"] {
            let config = Config::parse(text, Path::new("/etc")).unwrap();
            let printed = effective(&config);
            assert_eq!(Config::parse(&printed, Path::new("/elsewhere")).unwrap(), config, "{printed}");
        }
    }
}
