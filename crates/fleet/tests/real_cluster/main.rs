//! Against a real kube-apiserver with the real controllers, under the Role that is shipped. `scripts/cluster-test` runs these; a plain `cargo test`
//! names them and says so. No kubelet: the tests play it, so that they decide how pods end.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::process::Command;
use std::time::Duration;

use seawall_fleet::job::{Job, JobError};
use seawall_fleet::job_obstacles::{self, PERMISSIONS};
use seawall_fleet::manifest::{self, LoadJobSpec};
use seawall_fleet::pod_inputs::MAX_SECRET_BYTES;
use seawall_testkit::control_plane::{ADMIN_TOKEN, LOAD_SENDER_TOKEN};
use serde_json::{Value, json};
use support::*;

fn told<T: std::fmt::Debug>(refused: Result<T, JobError>) -> String {
    refused.unwrap_err().to_string()
}

/// Each right is taken away by itself, and named; with all of them a load is made, joined and taken away.
#[tokio::test]
#[ignore = "SKIPPED: needs kube-apiserver and controllers: run scripts/cluster-test"]
async fn the_role_that_is_shipped_is_enough_and_each_right_that_is_missing_is_named() {
    let cluster = Cluster::start().await;
    let loader = cluster.site(LOAD_SENDER_TOKEN).await;
    let without = told(loader.preflight(false).await);
    for right in PERMISSIONS {
        assert!(without.contains(&right.to_string()), "{right}: {without}");
    }
    assert!(without.contains("kubectl --namespace load auth can-i create jobs.batch"), "{without}");

    cluster.apply(ROLE).await;
    cluster.until("the role is in force", async || loader.preflight(false).await.is_ok()).await;
    let (spec, materials) = (spec("all", 2), materials(b"GET http://a/\n".to_vec()));
    let job = loader.create_job(&spec, &materials).await.unwrap();
    let running = run_pods(&cluster, &job);
    let (pods, ()) = tokio::join!(loader.wait_running(&job, EVENTUALLY, |_| {}), running);
    let pods = pods.unwrap();
    let places = pods.iter().map(|pod| pod.name.rsplit_once('-').unwrap().0.to_owned()).collect::<Vec<_>>();
    assert_eq!(places, ["all-0", "all-1"]);
    assert_eq!(loader.open_existing_job("all", &materials).await.unwrap(), job);
    loader.delete_job(&job).await.unwrap();

    for right in PERMISSIONS {
        cluster.take_away(right).await;
        let refused = async || {
            loader
                .preflight(false)
                .await
                .is_err_and(|refused| refused.to_string().contains("you are not allowed to"))
        };
        cluster.until("the right is gone", refused).await;
        let told = told(loader.preflight(false).await);
        assert!(told.contains(&format!("not allowed to {right} in")), "{right}: {told}");
        cluster.give_back().await;
        cluster.until("it is back", async || loader.preflight(false).await.is_ok()).await;
    }
}

#[tokio::test]
#[ignore = "SKIPPED: needs kube-apiserver and controllers: run scripts/cluster-test"]
async fn a_jobs_deletion_takes_its_pods_and_its_secret_along() {
    let cluster = Cluster::start().await;
    let site = cluster.site(ADMIN_TOKEN).await;
    let job = site.create_job(&spec("run", 3), &materials(b"x".to_vec())).await.unwrap();
    cluster.until("there are three pods", async || site.pods("run").await.unwrap().len() == 3).await;
    let secret = cluster.get("/api/v1/namespaces/load/secrets/run").await.unwrap();
    assert_eq!(secret["metadata"]["ownerReferences"][0]["uid"], job.uid);
    site.delete_job(&job).await.unwrap();
    cluster
        .until("the Secret is gone", async || {
            cluster.get("/api/v1/namespaces/load/secrets/run").await.is_err()
        })
        .await;
    let marked = |pod: &Value| pod.pointer("/metadata/deletionTimestamp").is_some();
    cluster.until("its pods are, too", async || site.pods("run").await.unwrap().iter().all(marked)).await;
    site.delete_job(&job).await.unwrap();
}

/// One that is killed is neither replaced nor does it end the others.
#[tokio::test]
#[ignore = "SKIPPED: needs kube-apiserver and controllers: run scripts/cluster-test"]
async fn a_pod_that_fails_leaves_its_place_empty_and_the_job_goes_on_and_grows() {
    let cluster = Cluster::start().await;
    let site = cluster.site(ADMIN_TOKEN).await;
    let mut job = site.create_job(&spec("run", 2), &materials(b"x".to_vec())).await.unwrap();
    let (pods, ()) = tokio::join!(site.wait_running(&job, EVENTUALLY, |_| {}), run_pods(&cluster, &job));
    let pods = pods.unwrap();
    let state = json!({"terminated": {"exitCode": 137, "reason": "Error"}});
    cluster.report(&pods[1].name, &status("Failed", &state)).await;
    let failed = async || cluster.job("run").await["status"]["failedIndexes"] == "1";
    cluster.until("the Job knows", failed).await;
    let all = site.pods("run").await.unwrap();
    assert_eq!(all.len(), 2, "{all:#?}");
    let ends: Vec<_> = all.iter().filter_map(|pod| job_obstacles::end_reason(pod, false)).collect();
    assert_eq!(ends, ["killed (exit code 137)"]);
    assert_eq!(job_obstacles::job_failure_reason(&cluster.job("run").await), None);
    site.scale_up(&mut job, 4).await.unwrap();
    cluster.until("there are four", async || site.pods("run").await.unwrap().len() == 4).await;
    assert_eq!(
        site.pods("run").await.unwrap().iter().filter(|pod| job_obstacles::is_pod_running(pod)).count(),
        1
    );
}

#[tokio::test]
#[ignore = "SKIPPED: needs kube-apiserver and controllers: run scripts/cluster-test"]
async fn a_quota_and_pod_security_are_named_before_anything_runs() {
    let cluster = Cluster::start().await;
    let site = cluster.site(ADMIN_TOKEN).await;
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "small"}, "spec": {"hard": {"requests.cpu": "2"}},
    });
    cluster.create("/api/v1/namespaces/load/resourcequotas", &quota).await;
    let counted = async || {
        cluster.get("/api/v1/namespaces/load/resourcequotas/small").await.unwrap()["status"]["hard"]
            .is_object()
    };
    cluster.until("the quota is in force", counted).await;
    let job = site.create_job(&spec("large", 4), &materials(b"x".to_vec())).await.unwrap();
    let refused = told(site.wait_running(&job, EVENTUALLY, |_| {}).await);
    assert!(
        refused.contains("the namespace's quota is too small for all pods: exceeded quota: small"),
        "{refused}"
    );
    assert!(refused.contains("kubectl --namespace load describe job large"), "{refused}");
    site.delete_job(&job).await.unwrap();

    cluster.create_namespace("strict", "restricted").await;
    let strict = cluster.site_in(ADMIN_TOKEN, "strict").await;
    let mut ours = spec("fits", 1);
    ours.namespace = Some("strict".parse().unwrap());
    strict.create_job(&ours, &materials(b"x".to_vec())).await.unwrap();
    cluster
        .until("what we make is restricted enough", async || strict.pods("fits").await.unwrap().len() == 1)
        .await;
}

/// The API server's own word on what is too large, beside ours.
#[tokio::test]
#[ignore = "SKIPPED: needs kube-apiserver and controllers: run scripts/cluster-test"]
async fn what_we_let_pass_as_small_enough_is_taken_and_a_byte_more_is_not() {
    let cluster = Cluster::start().await;
    let site = cluster.site(ADMIN_TOKEN).await;
    let (file, arguments) = (MAX_SECRET_BYTES - r#"["attack"]"#.len(), r#"["attack"]"#);
    let largest = materials(vec![b'x'; file]);
    let job = site.create_job(&spec("largest", 1), &largest).await.unwrap();
    let mut larger = manifest::secret(&spec("larger", 1), &largest, None);
    larger.as_object_mut().unwrap().remove("data");
    larger["stringData"] = json!({"arguments": arguments, "file-0": "x".repeat(file + 1)});
    let refused = cluster.try_create("/api/v1/namespaces/load/secrets", &larger).await.unwrap_err();
    assert!(refused.contains("1048576"), "{refused}");
    site.delete_job(&job).await.unwrap();
}

#[tokio::test]
#[ignore = "SKIPPED: needs kube-apiserver and controllers: run scripts/cluster-test"]
async fn a_cluster_without_room_and_an_image_that_nobody_has_are_named() {
    let cluster = Cluster::start_with_scheduler().await;
    let site = cluster.site(ADMIN_TOKEN).await;
    let job = site.create_job(&spec("run", 1), &materials(b"x".to_vec())).await.unwrap();
    let refused = told(site.wait_running(&job, EVENTUALLY, |_| {}).await);
    assert!(
        refused.contains("no node has room for run-0-") && refused.contains("no nodes available"),
        "{refused}"
    );
    let name = job_obstacles::pod_name(&site.pods("run").await.unwrap()[0]).to_owned();
    let state = json!({"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}});
    cluster.report(&name, &status("Pending", &state)).await;
    let refused = told(site.wait_running(&job, EVENTUALLY, |_| {}).await);
    assert!(
        refused.contains("cannot pull the image r.test/seawall:1 on an unknown node: ImagePullBackOff"),
        "{refused}"
    );
    assert!(refused.contains(&format!("describe pod {name}")), "{refused}");
}

/// What `--dry-run` prints is read by kubectl, and its Job is one that can be joined.
#[tokio::test]
#[ignore = "SKIPPED: needs kube-apiserver and controllers: run scripts/cluster-test"]
async fn what_is_applied_by_hand_is_joined_by_who_says_the_same_words() {
    let cluster = Cluster::start().await;
    let site = cluster.site(ADMIN_TOKEN).await;
    let given = materials(b"GET http://a/\nX-Token: s3cret\n".to_vec());
    let text = manifest::to_yaml(&spec("kept", 2), &given, "attack");
    let file = cluster.write("kept.yaml", &text);
    let mut kubectl = Command::new(cluster.plane.programs_folder().join("kubectl"));
    kubectl
        .arg("--kubeconfig")
        .arg(cluster.kubeconfig(ADMIN_TOKEN))
        .args(["--namespace", "load", "apply", "--filename"])
        .arg(file);
    let done = tokio::task::spawn_blocking(move || kubectl.output().unwrap()).await.unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert!(
        !String::from_utf8_lossy(&done.stderr).contains("Warning"),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    let job: Job = site.open_existing_job("kept", &given).await.unwrap();
    assert_eq!(job.pod_count, 2);
    cluster.until("its pods are made", async || site.pods("kept").await.unwrap().len() == 2).await;
    let by_hand = cluster.get("/api/v1/namespaces/load/secrets/kept").await.unwrap();
    assert_eq!(by_hand["data"], manifest::secret(&spec("kept", 2), &given, None)["data"]);
    let other = told(site.open_existing_job("kept", &materials(b"GET http://b/\n".to_vec())).await);
    assert!(other.contains("has another command or other files"), "{other}");
    assert!(
        told(site.open_existing_job("none", &given).await).contains("cannot find the Job none: not found")
    );
}

/// What was made is taken away where the rest cannot be.
#[tokio::test]
#[ignore = "SKIPPED: needs kube-apiserver and controllers: run scripts/cluster-test"]
async fn a_secret_that_is_refused_leaves_no_job_behind() {
    let cluster = Cluster::start().await;
    cluster.apply(ROLE).await;
    cluster.take_away(PERMISSIONS[4]).await;
    let loader = cluster.site(LOAD_SENDER_TOKEN).await;
    cluster.until("the role is in force", async || loader.preflight(true).await.is_ok()).await;
    let refused = told(loader.create_job(&spec("run", 1), &materials(b"x".to_vec())).await);
    assert!(refused.starts_with("cannot create the Secret with the files of the command: "), "{refused}");
    let gone = async || cluster.get("/apis/batch/v1/namespaces/load/jobs/run").await.is_err();
    cluster.until("no Job is left", gone).await;
}

/// Plays the kubelet: what is made begins.
async fn run_pods(cluster: &Cluster, job: &Job) {
    let site = cluster.site(ADMIN_TOKEN).await;
    let all = async || site.pods(&job.name).await.unwrap().len() == job.pod_count;
    cluster.until("all pods are made", all).await;
    for pod in site.pods(&job.name).await.unwrap() {
        cluster.report(job_obstacles::pod_name(&pod), &status("Running", &json!({"running": {}}))).await;
    }
}

fn spec(name: &str, pods: u32) -> LoadJobSpec {
    let spec = LoadJobSpec::new(name.parse().unwrap(), pods, "r.test/seawall:1".parse().unwrap());
    LoadJobSpec { deadline_seconds: Duration::from_secs(600).as_secs(), ..spec }
}

/// As a kubelet reports it.
fn status(phase: &str, state: &Value) -> Value {
    let container = json!({"name": manifest::CONTAINER, "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state});
    json!({"phase": phase, "containerStatuses": [container]})
}
