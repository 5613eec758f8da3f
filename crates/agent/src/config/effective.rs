//! The effective configuration as YAML: what `check` prints. Reading it back gives the same configuration.

use std::fmt::Write;
use std::time::Duration;

use super::{Config, Exchange, Federate, Identity, Mode, SourceIp, Threads};

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
        Mode::Conceal => ("conceal", String::new()),
    };
    writeln!(out, "mode: {mode}\nlisten: [{}]\nadmin: {:?}", listen.join(", "), config.admin.to_string())?;
    match &config.identity {
        Identity::Static { file } => {
            writeln!(out, "identity:\n  strategy: static\n  file: {:?}", file.display().to_string())?;
        }
        Identity::SourceIp(source) => source_ip(source, out)?,
        Identity::Anyone => writeln!(out, "identity:\n  strategy: anyone")?,
    }
    out.push_str(&section);
    writeln!(out, "conceal:\n  upstream: {:?}", config.conceal.upstream)?;
    let limits = &config.limits;
    writeln!(out, "limits:\n  connections: {}", count_or_auto(limits.connections))?;
    writeln!(out, "  connectionsPerPod: {}", count_or_auto(limits.connections_per_pod))?;
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
    let exchange = match federate.exchange {
        Exchange::Sts => "sts",
        Exchange::IdentityBindingToken => "identitybindingtoken",
    };
    writeln!(out, "  exchange: {exchange}")?;
    writeln!(out, "  stsUrl: {:?}\n  iamUrl: {:?}", federate.sts_url, federate.iam_url)?;
    if let Some(file) = &federate.ca_file {
        writeln!(out, "  caFile: {:?}", file.display().to_string())?;
    }
    if let Some(proxy) = &federate.proxy {
        writeln!(out, "  proxy: {proxy:?}")?;
    }
    Ok(out)
}

fn source_ip(source: &SourceIp, out: &mut String) -> std::fmt::Result {
    writeln!(out, "identity:\n  strategy: source-ip\n  node: {:?}", source.node.as_str())?;
    if let Some(file) = &source.kubeconfig {
        writeln!(out, "  kubeconfig: {:?}", file.display().to_string())?;
    }
    writeln!(out, "  tokenLifetime: {}", span(source.token_lifetime))?;
    if let Some(taint) = &source.taint {
        writeln!(out, "  taint: {taint:?}")?;
    }
    let passthrough: Vec<String> = source.passthrough.iter().map(ToString::to_string).collect();
    writeln!(out, "  passthrough: {passthrough:?}")
}

fn count_or_auto(count: Option<u32>) -> String {
    count.map_or("auto".to_owned(), |count| count.to_string())
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
        let source_ip = "{ strategy: source-ip, node: n1, kubeconfig: k, tokenLifetime: 2h, taint: a.b/c, \
                         passthrough: [kube-system/dns] }";
        let gke = super::super::DEFAULT
            .replace("strategy: static", "strategy: source-ip\n  node: n1")
            .replace("\"//iam", "\"identitynamespace:p.svc.id.goog://iam")
            .replace(
                "exchange: sts",
                "exchange: identitybindingtoken\n  proxy: http://proxy:3128\n  caFile: ca.pem",
            );
        for text in [
            super::super::DEFAULT,
            "mode: conceal\nidentity: { strategy: anyone }\nthreads: 2\n",
            &format!("mode: conceal\nidentity: {source_ip}\n"),
            &gke,
        ] {
            let config = Config::parse(text, Path::new("/etc"), None).unwrap();
            let printed = effective(&config);
            let back = Config::parse(&printed, Path::new("/elsewhere"), None).unwrap();
            assert_eq!(back, config, "{printed}");
        }
    }
}
