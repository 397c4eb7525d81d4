//! Continuous reviews and installations during a disturbance. The result contains the numbers of
//! admitted and failed reviews, and each apply in the audit log of the API server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use e2e::release::NAMESPACE;
use e2e::{Cluster, wait};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use super::super::super::objects::condition;
use super::super::CLASS;

/// Namespace of the installed objects.
pub(super) const TARGET: &str = "availability";
/// Time between two reviews of one requester.
const REVIEW_INTERVAL: Duration = Duration::from_millis(50);
const REQUESTERS: usize = 2;
/// Value of the load label for BundleDeployments that belong to no load.
const KEPT_LOAD: &str = "none";
/// Time between two new BundleDeployments.
const INSTALL_INTERVAL: Duration = Duration::from_secs(1);
/// Number of objects of a BundleDeployment.
const OBJECTS: usize = 4;
/// Length of the last period of a leader. In this period, the leader can have applied objects
/// without recording them as installed.
const UNRECORDED: Duration = Duration::from_secs(5);
const LONG: Duration = Duration::from_secs(120);

/// Results of the requested reviews.
#[derive(Debug, Default)]
pub(super) struct Reviews {
    pub(super) admitted: usize,
    /// Messages of the API server about reviews that failed.
    pub(super) failed: Vec<String>,
    /// Number of requests without a response of the API server.
    pub(super) unanswered: usize,
    /// Longest time between two admitted reviews of a requester.
    pub(super) longest_gap: Duration,
}

/// An apply of an object of this load, from the audit log.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LoggedApply {
    pub(super) time: Timestamp,
    pub(super) pod: String,
    pub(super) object: String,
}

/// The result of a load.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) reviews: Reviews,
    /// Number of installed BundleDeployments.
    pub(super) installed: usize,
    /// All applies of the objects of the BundleDeployments, in order.
    pub(super) applies: Vec<LoggedApply>,
}

/// A running load.
pub(super) struct Load {
    name: &'static str,
    audit_position: u64,
    stop: Arc<AtomicBool>,
    reviews: Vec<JoinHandle<Reviews>>,
    installations: JoinHandle<usize>,
}

/// Returns a client with the administrator's credentials that does not retry requests.
async fn client(cluster: &Cluster) -> Client {
    let kubeconfig = Kubeconfig::read_from(cluster.kubeconfig()).unwrap();
    let options = KubeConfigOptions::default();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .unwrap();
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

fn deployments(client: Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("core.rukpak.io", "v1alpha1", "BundleDeployment");
    Api::all_with(client, &ApiResource::from_gvk(&kind))
}

fn deployment(load: &str, name: &str) -> DynamicObject {
    let object = json!({
        "apiVersion": "core.rukpak.io/v1alpha1",
        "kind": "BundleDeployment",
        "metadata": {"name": name, "labels": {"load": load}},
        "spec": {"provisionerClassName": CLASS, "template": {"spec": {
            "provisionerClassName": CLASS,
            "source": {"type": "configMaps", "configMaps": [
                {"configMap": {"name": name}, "path": "manifests"},
            ]},
        }}},
    });
    serde_json::from_value(object).unwrap()
}

/// Returns the ConfigMap with the content of a BundleDeployment.
fn content(name: &str) -> ConfigMap {
    let objects: Vec<String> = (0..OBJECTS)
        .map(|n| {
            format!(
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}-{n}, namespace: {TARGET}}}\n"
            )
        })
        .collect();
    serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": NAMESPACE},
        "immutable": true,
        "data": {"all.yaml": objects.join("---\n")},
    }))
    .unwrap()
}

/// Requests dry runs of one object until `stop` is set.
async fn review(client: Client, object: DynamicObject, stop: Arc<AtomicBool>) -> Reviews {
    let api = deployments(client);
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let mut reviews = Reviews::default();
    let mut last = Instant::now();
    let mut ticks = interval(REVIEW_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !stop.load(Ordering::Relaxed) {
        ticks.tick().await;
        match api.create(&params, &object).await {
            Ok(_) => {
                reviews.admitted += 1;
                reviews.longest_gap = reviews.longest_gap.max(last.elapsed());
                last = Instant::now();
            }
            Err(kube::Error::Api(status)) if status.message.contains("webhook") => {
                reviews.failed.push(status.message);
            }
            Err(_) => reviews.unanswered += 1,
        }
    }
    reviews.longest_gap = reviews.longest_gap.max(last.elapsed());
    reviews
}

/// Creates a BundleDeployment each second until `stop` is set, and returns the number of created
/// BundleDeployments. A failed request is retried.
async fn install(client: Client, load: &'static str, stop: Arc<AtomicBool>) -> usize {
    let mut ticks = interval(INSTALL_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut created = 0;
    while !stop.load(Ordering::Relaxed) {
        ticks.tick().await;
        let name = format!("{load}-{created}");
        if create(&client, load, &name).await.is_ok() {
            created += 1;
        }
    }
    created
}

/// Creates the namespace of the installed objects.
async fn create_target(client: &Client) {
    let namespace = json!({"metadata": {"name": TARGET}});
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = serde_json::from_value(namespace).unwrap();
    let created = namespaces.create(&PostParams::default(), &namespace).await;
    assert!(created.map_or_else(|error| exists(&error), |_| true));
}

fn exists(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}

/// Creates one BundleDeployment if it does not exist.
pub(super) async fn install_one(cluster: &Cluster, name: &str) {
    let client = client(cluster).await;
    create_target(&client).await;
    wait::until_true(LONG, "the BundleDeployment is created", || async {
        create(&client, KEPT_LOAD, name).await?;
        Ok(true)
    })
    .await
    .unwrap();
}

/// Creates a BundleDeployment and its content if they do not exist.
async fn create(client: &Client, load: &str, name: &str) -> Result<(), kube::Error> {
    let contents: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let params = PostParams::default();
    match contents.create(&params, &content(name)).await {
        Err(error) if !exists(&error) => return Err(error),
        _ => {}
    }
    let api = deployments(client.clone());
    match api.create(&params, &deployment(load, name)).await {
        Err(error) if !exists(&error) => Err(error),
        _ => Ok(()),
    }
}

/// Requests one review, and returns the error of the API server if the review fails.
pub(super) async fn review_once(cluster: &Cluster, name: &str) -> Result<(), String> {
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let object = deployment(name, name);
    let api = deployments(client(cluster).await);
    let created = api.create(&params, &object).await;
    created.map(drop).map_err(|error| error.to_string())
}

impl Load {
    /// Starts a load. Its objects have the name of the load as prefix.
    pub(super) async fn start(cluster: &Cluster, name: &'static str) -> Self {
        let client = client(cluster).await;
        create_target(&client).await;
        let stop = Arc::new(AtomicBool::new(false));
        let audit_position = cluster.audit_position().unwrap();
        let review = || {
            let object = deployment(KEPT_LOAD, &format!("{name}-review"));
            tokio::spawn(review(client.clone(), object, Arc::clone(&stop)))
        };
        Self {
            name,
            audit_position,
            reviews: (0..REQUESTERS).map(|_| review()).collect(),
            installations: tokio::spawn(install(client.clone(), name, Arc::clone(&stop))),
            stop,
        }
    }

    /// Ends the load, and waits until all BundleDeployments are installed.
    pub(super) async fn end(self, cluster: &Cluster) -> Outcome {
        self.stop.store(true, Ordering::Relaxed);
        let mut reviews = Reviews::default();
        for one in self.reviews {
            let one = one.await.unwrap();
            reviews.admitted += one.admitted;
            reviews.unanswered += one.unanswered;
            reviews.longest_gap = reviews.longest_gap.max(one.longest_gap);
            reviews.failed.extend(one.failed);
        }
        let created = self.installations.await.unwrap();
        let api = deployments(client(cluster).await);
        let all = ListParams::default().labels(&format!("load={}", self.name));
        let installed = wait::until(LONG, "everything is installed", || async {
            let found = api.list(&all).await?.items;
            let missing: Vec<String> = found
                .iter()
                .filter(|found| condition(&found.data, "Installed")["status"] != "True")
                .map(|found| format!("{:?}: {}", found.metadata.name, found.data["status"]))
                .collect();
            // The API server can have stored a BundleDeployment whose response was lost.
            anyhow::ensure!(found.len() >= created, "{} exist", found.len());
            anyhow::ensure!(missing.is_empty(), "{missing:?}");
            Ok(Some(found.len()))
        })
        .await
        .unwrap();
        let outcome = Outcome {
            reviews,
            installed,
            applies: self::applies(cluster, self.audit_position, self.name),
        };
        eprintln!(
            "{}: {} reviews admitted, {} failed, {} without an answer of the API server, longest gap {:?}; \
             {} installed with {} applies by {:?}; failures: {:?}",
            self.name,
            outcome.reviews.admitted,
            outcome.reviews.failed.len(),
            outcome.reviews.unanswered,
            outcome.reviews.longest_gap,
            outcome.installed,
            outcome.applies.len(),
            outcome.leaders(),
            outcome.reviews.failed.first(),
        );
        outcome
    }
}

/// Returns the pod that sent a request.
pub(super) fn pod(event: &Value) -> &str {
    event["user"]["extra"]["authentication.kubernetes.io/pod-name"][0]
        .as_str()
        .unwrap_or_default()
}

/// Returns the time at which the API server received a request.
pub(super) fn received(event: &Value) -> Timestamp {
    event["requestReceivedTimestamp"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap()
}

/// Returns `true` if the request is a create, update, patch or delete, and not a dry run.
pub(super) fn is_write_request(event: &Value) -> bool {
    let is_dry_run = event["requestURI"]
        .as_str()
        .is_some_and(|uri| uri.contains("dryRun=All"));
    let verb = event["verb"].as_str().unwrap_or_default();
    !is_dry_run && ["create", "update", "patch", "delete"].contains(&verb)
}

fn applies(cluster: &Cluster, position: u64, load: &str) -> Vec<LoggedApply> {
    let prefix = format!("{load}-");
    let mut applies: Vec<LoggedApply> = cluster
        .audit_since(position)
        .unwrap()
        .iter()
        .filter(|event| is_write_request(event) && event["objectRef"]["namespace"] == TARGET)
        .filter(|event| {
            let code = event["responseStatus"]["code"].as_u64().unwrap_or_default();
            (200..300).contains(&code)
        })
        .filter_map(|event| {
            let object = event["objectRef"]["name"].as_str()?;
            object.starts_with(&prefix).then(|| LoggedApply {
                time: received(event),
                pod: pod(event).to_owned(),
                object: object.to_owned(),
            })
        })
        .collect();
    applies.sort();
    applies
}

impl Outcome {
    /// Returns the pods that applied objects, in order. A pod that applied again after another pod
    /// is listed again.
    pub(super) fn leaders(&self) -> Vec<&str> {
        let mut leaders: Vec<&str> = self
            .applies
            .iter()
            .map(|apply| apply.pod.as_str())
            .collect();
        leaders.dedup();
        leaders
    }

    /// Returns pairs of applies of the same object. Excludes the applies that the former leader
    /// sent immediately before its end and that the next leader repeated.
    fn double_applies(&self) -> Vec<(&LoggedApply, &LoggedApply)> {
        let mut by_object: BTreeMap<&str, Vec<&LoggedApply>> = BTreeMap::new();
        for apply in &self.applies {
            by_object
                .entry(apply.object.as_str())
                .or_default()
                .push(apply);
        }
        let end = |pod: &str, before: Timestamp| {
            let mut of_pod = self.applies.iter().rev();
            of_pod
                .find(|apply| apply.pod == pod && apply.time < before)
                .map(|apply| apply.time)
        };
        let is_repeated = |first: &LoggedApply, second: &LoggedApply| {
            let end = end(&first.pod, second.time).unwrap_or(first.time);
            first.pod != second.pod && end.duration_since(first.time).unsigned_abs() < UNRECORDED
        };
        by_object
            .values()
            .flat_map(|applies| applies.windows(2))
            .map(|pair| (pair[0], pair[1]))
            .filter(|(first, second)| !is_repeated(first, second))
            .collect()
    }

    /// Checks that each object was applied once, and that at most `most_leaders` leaders applied
    /// objects, one after the other.
    pub(super) fn assert_applied_once(&self, most_leaders: usize) {
        assert!(self.installed > 0);
        let objects: std::collections::BTreeSet<&str> =
            self.applies.iter().map(|apply| &*apply.object).collect();
        assert_eq!(objects.len(), self.installed * OBJECTS);
        let doubles = self.double_applies();
        assert!(
            doubles.is_empty(),
            "{} double applies: {doubles:?}",
            doubles.len()
        );
        let leaders = self.leaders();
        assert!(leaders.len() <= most_leaders, "{leaders:?}");
    }

    /// Checks that no review failed.
    pub(super) fn assert_no_failed_review(&self) {
        assert!(self.reviews.admitted > 0);
        assert_eq!(self.reviews.failed, [] as [String; 0]);
    }

    /// Checks that the API server responded to each request.
    pub(super) fn assert_all_answered(&self) {
        assert_eq!(self.reviews.unanswered, 0);
    }
}
